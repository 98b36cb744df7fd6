// The strip below the workbench: the wire, the log and stderr of the open server, always in sight.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../api/http";
import type { Server } from "../api/types";
import { LogPanel } from "../results/call";
import { keepChoice, readChoice } from "../state/drafts";
import { link, route } from "../state/route";
import { logsOf, stderrOf } from "../state/store";
import { NO_FILTER } from "../state/wire";
import { count, time } from "../ui/format";
import { complain, Empty, Tabs } from "../ui/parts";
import { Theirs } from "../ui/text";
import { VirtualList } from "../ui/virtual";
import { MessagePanel, WireList } from "./wire";

const height = signal(Number(readChoice("dock")) || 220);
const closed = signal(readChoice("dock-closed") === "1");
const LOWEST = 90;

function setHeight(pixels: number): void {
  height.value = Math.max(LOWEST, Math.min(innerHeight * 0.75, pixels));
  keepChoice("dock", String(Math.round(height.value)));
}
export function toggleDock(): void {
  closed.value = !closed.value;
  keepChoice("dock-closed", closed.value ? "1" : "0");
}

export function Dock({ server }: { server: Server }): JSX.Element {
  const [tab, setTab] = useState("wire");
  const [seq, setSeq] = useState<number | undefined>(undefined);
  const [onlyCall, setOnlyCall] = useState(false);
  const call = route.value.params["call"] ?? "";
  void logsOf(server.id).version.value;
  const drag = (event: PointerEvent): void => {
    const from = event.clientY;
    const before = height.value;
    const move = (moved: PointerEvent): void => setHeight(before + from - moved.clientY);
    const stop = (): void => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "ArrowUp") setHeight(height.value + 24);
    if (event.key === "ArrowDown") setHeight(height.value - 24);
  };
  return (
    <section class={`dock ${closed.value ? "closed" : ""}`} aria-label="Wire and logs" style={{ "--dock-height": `${height.value}px` }}>
      <div class="dock-handle" role="separator" aria-orientation="horizontal" aria-label="Height of the wire" tabIndex={0} aria-valuenow={Math.round(height.value)} aria-valuemin={LOWEST} aria-valuemax={1000} onPointerDown={drag} onKeyDown={onKey} />
      <div class="dock-head row">
        <Tabs label="Wire and logs" current={tab} pick={setTab} items={[
          { key: "wire", label: "Wire" },
          { key: "log", label: <>Log <span class="tab-count">{count(logsOf(server.id).items.length)}</span></> },
          ...(server.transport === "stdio" ? [{ key: "stderr", label: <>stderr <span class="tab-count">{count(server.stderrLines)}</span></> }] : []),
        ]} />
        <span class="grow" />
        {tab === "wire" && call !== "" && <label class="check"><input type="checkbox" checked={onlyCall} onChange={(event) => setOnlyCall(event.currentTarget.checked)} />this call only</label>}
        <a class="button small ghost" href={link(["wire"], { server: server.id })}>Open wide</a>
        <button type="button" class="small ghost" aria-expanded={!closed.value} aria-label={closed.value ? "Show the wire" : "Hide the wire"} onClick={toggleDock}>{closed.value ? "▴" : "▾"}</button>
      </div>
      {!closed.value && (
        <div class="dock-body">
          {tab === "wire" && (
            <div class={`wire-split ${seq === undefined ? "" : "open"}`}>
              <WireList id="dock-wire" showServer={false} filter={{ ...NO_FILTER, server: server.id, call: onlyCall ? call : "" }} selected={seq} onSelect={(row) => setSeq(row.seq)} />
              {seq !== undefined && <MessagePanel key={seq} path={`/api/messages/${seq}`} close={() => setSeq(undefined)} />}
            </div>
          )}
          {tab === "log" && <LogPanel lines={logsOf(server.id)} />}
          {tab === "stderr" && <Stderr server={server} />}
        </div>
      )}
    </section>
  );
}

const loaded = new Set<string>();

export function Stderr({ server }: { server: Server }): JSX.Element {
  const lines = stderrOf(server.id);
  void lines.version.value;
  useEffect(() => {
    if (loaded.has(server.id)) return;
    loaded.add(server.id);
    get<{ lines: { at: number; text: string }[]; dropped: number; seq: number }>(`/api/servers/${server.id}/stderr`).then((answer) => {
      lines.items = [...answer.lines, ...lines.items.filter((line) => line.seq > answer.seq)].map((line) => ({ seq: answer.seq, ...line }));
      lines.dropped = answer.dropped;
      lines.version.value++;
    }, complain);
  }, [server.id]);
  return (
    <div class="log-panel">
      <VirtualList id={`stderr-${server.id}`} label="stderr" items={lines.items} height={20} follow keyOf={(_, index) => index}
        empty={<Empty title="Nothing on stderr"><p>{server.transport === "stdio" ? "What the program prints there appears here." : "Only programs that the inspector started have one."}</p></Empty>}
        row={(line) => <div class="log-line"><span class="num faint">{time(line.at)}</span><span class="cut"><Theirs text={line.text} /></span></div>}
      />
    </div>
  );
}
