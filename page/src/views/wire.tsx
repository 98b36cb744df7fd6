// Every message both ways: a list of any length, filters, a search in the bodies, and one message in full with the HTTP
// exchange that carried it.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, getBlob, getText, query, request } from "../api/http";
import type { Exchange, Failure, MessageDetail, MessageRow } from "../api/types";
import { pretty } from "../api/json";
import { JsonTree } from "../results/tree";
import { link, route, setParams } from "../state/route";
import { serverName, servers } from "../state/store";
import { FilteredRows, type WireFilter, type WireRows, wire } from "../state/wire";
import { bytes, count, duration, time } from "../ui/format";
import { Action, Badge, complain, copy, CopyButton, Disclosure, Empty, Facts, FailureBox, save, toFailure } from "../ui/parts";
import { TheirBlock, Theirs } from "../ui/text";
import { VirtualList } from "../ui/virtual";

const ROW = 24;

export function WireList({ filter, selected, onSelect, id, rows: source = wire, matches, showServer = true }: { filter: WireFilter; selected?: number; onSelect: (row: MessageRow) => void; id: string; rows?: WireRows; matches?: MessageRow[]; showServer?: boolean }): JSX.Element {
  void source.version.value;
  const filtered = useMemo(() => new FilteredRows(source), [source]);
  const rows = matches ?? filtered.view(filter);
  const isFiltered = filter.text !== "" || filter.direction !== "" || filter.kind !== "" || filter.method !== "" || filter.call !== "";
  const index = selected === undefined ? -1 : findSeq(rows, selected);
  return (
    <VirtualList
      id={id} label="Messages" items={rows} height={ROW} keyOf={(row) => row.seq} selected={index} onSelect={(place) => rows[place] && onSelect(rows[place])} follow={selected === undefined}
      empty={<Empty title={isFiltered ? "No message matches" : "Nothing on the wire yet"}><p>{isFiltered ? "Loosen the filter." : "Every message to and from a server appears here the moment it is seen."}</p></Empty>}
      row={(row) => <WireRow row={row} showServer={showServer && servers.value.length > 1} />}
    />
  );
}

/** Rows are in the order of their numbers. */
function findSeq(rows: readonly MessageRow[], seq: number): number {
  let low = 0;
  let high = rows.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const at = rows[middle]!.seq;
    if (at === seq) return middle;
    if (at < seq) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

const KIND_MARK: Record<MessageRow["kind"], string> = { request: "req", response: "res", error: "err", notification: "ntf", invalid: "???" };

function WireRow({ row, showServer }: { row: MessageRow; showServer: boolean }): JSX.Element {
  return (
    <div class={`wire-row ${row.kind}`}>
      <span class="num faint wire-time">{time(row.at)}</span>
      <span class={`arrow ${row.direction}`} title={row.direction === "out" ? "to the server" : "from the server"} aria-label={row.direction === "out" ? "to the server" : "from the server"} role="img">{row.direction === "out" ? "→" : "←"}</span>
      <span class="wire-kind">{KIND_MARK[row.kind]}</span>
      {showServer && <span class="wire-server cut"><Theirs text={serverName(row.server)} /></span>}
      <span class="wire-summary cut"><Theirs text={row.summary} /></span>
      <span class="num faint wire-id">{row.id !== undefined ? `#${String(row.id).slice(0, 8)}` : ""}</span>
      <span class="num wire-ms">{duration(row.ms)}</span>
      <span class="num faint wire-size">{bytes(row.size)}</span>
    </div>
  );
}

function readFilter(): WireFilter {
  const { q = "", server = "", direction = "", kind = "", method = "", call = "" } = route.value.params;
  return { text: q, server, direction, kind, method, call };
}

export function WirePage(): JSX.Element {
  const filter = readFilter();
  const seq = route.value.params["seq"] === undefined ? undefined : Number(route.value.params["seq"]);
  const [found, setFound] = useState<{ text: string; rows: MessageRow[]; total: number } | undefined>(undefined);
  const inBodies = route.value.params["bodies"] === "1";
  void wire.version.value;
  const filtered = useMemo(() => new FilteredRows(wire), []);
  const rows = found?.text === filter.text ? found.rows : filtered.view(filter);
  const total = found?.total ?? (rows === wire.rows ? undefined : rows.length);
  useEffect(() => {
    setFound(undefined);
    if (!inBodies || filter.text === "") return;
    const timer = setTimeout(() => {
      get<{ messages: MessageRow[]; total: number }>(`/api/messages${query({ q: filter.text, server: filter.server, direction: filter.direction, kind: filter.kind, method: filter.method, call: filter.call, limit: 5000 })}`).then((answer) => setFound({ text: filter.text, rows: answer.messages, total: answer.total }), complain);
    }, 200);
    return () => clearTimeout(timer);
  }, [inBodies, filter.text, filter.server, filter.direction, filter.kind, filter.method, filter.call]);
  return (
    <div class="wire-page">
      <h1 class="visually-hidden">Wire</h1>
      <WireTools filter={filter} inBodies={inBodies} total={total} />
      <div class={`wire-split ${seq === undefined ? "" : "open"}`}>
        <WireList id="wire" filter={filter} selected={seq} rows={wire} matches={rows} onSelect={(row) => setParams({ seq: row.seq })} />
        {seq !== undefined && <MessagePanel key={seq} path={`/api/messages/${seq}`} find={inBodies ? filter.text : ""} close={() => setParams({ seq: undefined })} />}
      </div>
    </div>
  );
}

function WireTools({ filter, inBodies, total }: { filter: WireFilter; inBodies: boolean; total?: number }): JSX.Element {
  void wire.version.value;
  const methods = useMethods();
  const box = useRef<HTMLInputElement>(null);
  const har = async (): Promise<void> => save("trimaran.har", await getText(`/api/export/har${query({ server: filter.server })}`));
  const clear = async (): Promise<void> => {
    await request("DELETE", "/api/messages");
    wire.clear();
  };
  return (
    <div class="wire-tools" role="search">
      <input ref={box} type="search" class="search" data-search placeholder="Filter messages  /" aria-label="Filter messages" value={filter.text} onInput={(event) => setParams({ q: event.currentTarget.value })} />
      <label class="check"><input type="checkbox" checked={inBodies} onChange={(event) => setParams({ bodies: event.currentTarget.checked ? "1" : undefined })} />in bodies</label>
      <Pick label="Server" value={filter.server} set={(server) => setParams({ server })} options={servers.value.map((server) => [server.id, server.name])} />
      <Pick label="Direction" value={filter.direction} set={(direction) => setParams({ direction })} options={[["out", "to the server"], ["in", "from the server"]]} />
      <Pick label="Kind" value={filter.kind} set={(kind) => setParams({ kind })} options={["request", "response", "error", "notification", "invalid"].map((kind) => [kind, kind])} />
      <Pick label="Method" value={filter.method} set={(method) => setParams({ method })} options={methods.map((method) => [method, method])} />
      {filter.call && <span class="chip static">one call <button type="button" class="ghost small" aria-label="Show all calls" onClick={() => setParams({ call: undefined })}>✕</button></span>}
      <span class="grow" />
      <span class="note inline num">{total !== undefined ? `${count(total)} of ` : ""}{count(wire.rows.length)} messages</span>
      <a class="button small ghost" href={link(["timeline"], { server: filter.server })}>Timeline</a>
      <Action kind="small ghost" title="Save the HTTP exchanges" run={har}>HAR</Action>
      <Action kind="small ghost" title="Forget all messages" run={clear}>Clear</Action>
    </div>
  );
}

function useMethods(): string[] {
  const seen = useRef({ methods: new Set<string>(), from: 0, epoch: -1 });
  const state = seen.current;
  if (state.epoch !== wire.epoch) [state.from, state.epoch] = [0, wire.epoch];
  for (; state.from < wire.rows.length; state.from++) {
    const method = wire.rows[state.from]!.method;
    if (method !== undefined && state.methods.size < 60) state.methods.add(method);
  }
  return [...state.methods].sort();
}

export function Pick({ label, value, set, options }: { label: string; value: string; set: (value: string | undefined) => void; options: readonly (readonly [string, string])[] }): JSX.Element {
  return (
    <select class="small" aria-label={label} value={value} onChange={(event) => set(event.currentTarget.value || undefined)}>
      <option value="">{label}: all</option>
      {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
    </select>
  );
}

export function MessagePanel({ path, close, find = "" }: { path: string; close: () => void; find?: string }): JSX.Element {
  const [detail, setDetail] = useState<MessageDetail | undefined>(undefined);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  useEffect(() => {
    let gone = false;
    get<MessageDetail>(path).then((answer) => !gone && setDetail(answer), (error) => !gone && setFailure(toFailure(error)));
    return () => void (gone = true);
  }, [path]);
  return (
    <section class="message-panel" aria-label="Message">
      <header class="row wrap">
        <strong>{detail ? <Theirs text={detail.method ?? detail.kind} /> : "Message"}</strong>
        {detail && <Badge tone={detail.kind === "error" || detail.kind === "invalid" ? "bad" : "quiet"}>{detail.kind}</Badge>}
        <span class="grow" />
        {detail && <CopyAs path={path} detail={detail} />}
        <button type="button" class="small ghost" aria-label="Close message" onClick={close}>✕</button>
      </header>
      {failure && <FailureBox failure={failure} />}
      {detail && <MessageBody detail={detail} path={path} find={find} />}
    </section>
  );
}

/** What can be sent again can be copied as a program; a recording has its messages alone. */
function CopyAs({ path, detail }: { path: string; detail: MessageDetail }): JSX.Element {
  const isLive = path.startsWith("/api/messages/");
  const isRequest = isLive && detail.direction === "out" && detail.kind === "request";
  const as = (kind: string, label: string): JSX.Element => <Action kind="small ghost" run={() => getText(`${path}/copy?as=${kind}`).then((text) => copy(text, `Copied as ${label}`))}>{label}</Action>;
  return <span class="copy-as" role="group" aria-label="Copy as">{isLive && detail.direction === "out" && detail.exchange && as("curl", "curl")}{isRequest && as("python", "Python")}{isRequest && as("pytest", "pytest")}{isLive ? as("json", "JSON") : <CopyButton label="JSON" text={() => detail.text ?? pretty(detail.body)} />}</span>;
}

function MessageBody({ detail, path, find }: { detail: MessageDetail; path: string; find: string }): JSX.Element {
  const answer = detail.kind === "request" ? wire.rows.find((row) => row.pair === detail.seq) : undefined;
  return (
    <>
      <Facts items={[
        ["at", time(detail.at)], ["server", <Theirs text={serverName(detail.server)} />], ["id", detail.id !== undefined ? String(detail.id) : undefined], ["took", duration(detail.ms)],
        ["size", bytes(detail.size)], ["revision", [detail.era, detail.revision].filter(Boolean).join(" ")], ["connection", String(detail.connection)],
        ["pair", detail.pair !== undefined ? <a href={link(["wire"], { ...route.value.params, seq: detail.pair })}>its request</a> : undefined],
        ["answer", answer && path.startsWith("/api/messages/") ? <a href={link(["wire"], { ...route.value.params, seq: answer.seq })}><Theirs text={answer.summary.slice(0, 80)} /></a> : undefined],
        ["call", detail.call ? <a href={link(["calls", detail.call])}>{detail.call}</a> : undefined],
      ]} />
      {detail.truncated && <p class="note">Only the beginning is shown. <Action kind="small" run={async () => save("message.json", await getBlob(`${path}/body`))}>Save all of it</Action></p>}
      {detail.body !== undefined ? <JsonTree value={detail.body} open={4} find={find} /> : detail.text !== undefined ? <TheirBlock text={detail.text} /> : null}
      {detail.exchange && <ExchangeView exchange={detail.exchange} />}
    </>
  );
}

function ExchangeView({ exchange }: { exchange: Exchange }): JSX.Element {
  return (
    <Disclosure open title={<>HTTP <code><Theirs text={`${exchange.verb} ${exchange.url}`} /></code> {exchange.status !== undefined && <Badge tone={exchange.status >= 400 ? "bad" : "ok"}>{exchange.status}</Badge>}{exchange.stream && <Badge>stream, {exchange.events} events</Badge>}</>}>
      <Facts items={[["head after", duration(exchange.headMs)], ["ended after", duration(exchange.endMs)], ["sent", bytes(exchange.sent)], ["received", bytes(exchange.received)], ["failure", exchange.failure]]} />
      {exchange.decoded.length > 0 && (
        <table class="plain"><caption>What the headers say</caption><tbody>{exchange.decoded.map((item, index) => <tr key={index}><th scope="row"><code><Theirs text={item.header} /></code></th><td><code><Theirs text={item.value} /></code></td><td><Theirs text={item.meaning} /></td></tr>)}</tbody></table>
      )}
      <Headers title="Request headers" items={exchange.requestHeaders} />
      <Headers title="Response headers" items={exchange.responseHeaders} />
      {exchange.errorBody && <TheirBlock text={exchange.errorBody} />}
    </Disclosure>
  );
}

export function Headers({ title, items }: { title: string; items: readonly (readonly [string, string])[] }): JSX.Element {
  return (
    <Disclosure title={<>{title} <span class="note inline">{items.length}</span></>}>
      <dl class="headers">{items.map(([name, value], index) => <div key={index}><dt><Theirs text={name} /></dt><dd><Theirs text={value} /></dd></div>)}</dl>
      <CopyButton text={() => items.map(([name, value]) => `${name}: ${value}`).join("\n")} />
    </Disclosure>
  );
}
