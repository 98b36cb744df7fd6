// An MCP App in its frame. The frame has an origin of its own (no allow-same-origin) and the app's own policy from the
// inspector, so it reaches neither this page nor the network; all it can do is post messages, which are listed below it.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { post } from "../api/http";
import { asObject, asText } from "../api/json";
import type { CallDetail, CallRow, Failure, Json, JsonObject } from "../api/types";
import { callDetails, calls, catalogOf, loadCall } from "../state/store";
import { time } from "../ui/format";
import { Badge, Disclosure, FailureBox, safeUrl, say, toFailure } from "../ui/parts";
import { Theirs } from "../ui/text";
import { AppBridge, type BridgeEntry } from "./bridge";
import { JsonTree } from "./tree";

interface Opened {
  frame: string;
  csp: string;
  permissions: string;
  meta: Json;
  mimeType: string;
  bytes: number;
  problems?: string[];
}
interface Asked {
  url: string;
  answer: (yes: boolean) => void;
}
const ENTRIES_KEPT = 300; // of the conversation; an app in a loop would fill the page
const STILL_TYPING = 1_000; // milliseconds since the last key or click of theirs
const MAX_THEFTS = 3; // of the focus; a person who clicks into the frame so soon does so once
const DRAW_EVERY = 100; // milliseconds
const TALLEST = 900; // pixels: an app may ask for any height, and the page stays usable

export function AppFrame({ server, uri, call }: { server: string; uri: string; call: CallDetail }): JSX.Element {
  const [opened, setOpened] = useState<Opened | undefined>(undefined);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  useEffect(() => {
    let gone = false;
    setOpened(undefined);
    post<Opened>(`/api/servers/${server}/apps`, { uri }).then((answer) => !gone && setOpened(answer), (error) => !gone && setFailure(toFailure(error)));
    return () => void (gone = true);
  }, [server, uri, call.id]);
  if (failure) return <FailureBox failure={failure} />;
  if (!opened) return <p class="note">Opening the app …</p>;
  return <Frame key={opened.frame} opened={opened} server={server} call={call} />;
}

function Frame({ opened, server, call }: { opened: Opened; server: string; call: CallDetail }): JSX.Element {
  const frame = useRef<HTMLIFrameElement>(null);
  const [entries, setEntries] = useState<BridgeEntry[]>([]);
  const [asked, setAsked] = useState<Asked | undefined>(undefined);
  const [closed, setClosed] = useState("");
  const [height, setHeight] = useState(320);
  const bridge = useMemo(() => {
    let kept: BridgeEntry[] = [];
    let drawing = 0;
    let asking = false;
    const made = new AppBridge({
      post: (message) => frame.current?.contentWindow?.postMessage(message, "*"), // its origin is opaque: there is no other name for it
      callTool: (name, args) => finish(post<CallRow>("/api/calls", { server, kind: "tool", name, arguments: args, by: "app" })),
      readResource: (uri) => finish(post<CallRow>("/api/calls", { server, kind: "resource", name: uri, by: "app" })),
      tools: () => catalogOf(server).value?.tools ?? [],
      // A card and no dialog: a dialog that comes again and again would hold the whole page.
      mayOpen: (url) => new Promise((resolve) => {
        if (asking) return resolve(false);
        asking = true;
        setAsked({ url, answer: (yes) => {
          asking = false;
          setAsked(undefined);
          resolve(yes);
        } });
      }),
      told: (kind) => say(kind === "message" ? "The app sent a message to the conversation" : "The app updated the model's context"),
      resized: (wanted) => setHeight(Math.max(80, Math.min(TALLEST, Math.ceil(wanted)))),
      flooded: (why) => {
        setAsked(undefined);
        setClosed(why);
      },
      seen: (entry) => {
        kept = [...kept.slice(1 - ENTRIES_KEPT), entry];
        drawing ||= window.setTimeout(() => {
          drawing = 0;
          setEntries(kept);
        }, DRAW_EVERY);
      },
      context: () => ({ theme: document.documentElement.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"), displayMode: "inline", availableDisplayModes: ["inline"], locale: navigator.language, platform: "web" }),
    });
    return made;
  }, [server, opened.frame]);
  useEffect(() => {
    const onMessage = (event: MessageEvent): void => {
      if (event.source === frame.current?.contentWindow) bridge.receive(event);
    };
    addEventListener("message", onMessage);
    bridge.notify("ui/notifications/tool-input", { arguments: asObject(call.arguments) });
    if (call.result !== undefined) bridge.notify("ui/notifications/tool-result", asObject(call.result));
    return () => removeEventListener("message", onMessage);
  }, [bridge]);
  useEffect(() => keepFocus(frame, () => setClosed("The app kept taking the keyboard.")), []);
  return (
    <section class="app-frame" aria-label="MCP App">
      <header class="content-head"><span class="content-kind">MCP App, in a frame of its own</span><code><Theirs text={opened.mimeType} /></code></header>
      {opened.problems?.map((problem, index) => <p class="failure-line" key={index}><Theirs text={problem} /></p>)}
      {asked && (
        <div class="row wrap asked" role="alert">
          <span>The app asks to open <code class="break"><Theirs text={asked.url} /></code></span>
          <a class="button small primary" href={safeUrl(asked.url)} target="_blank" rel="noopener noreferrer nofollow" onClick={() => asked.answer(true)}>Open it</a>
          <button type="button" class="small" onClick={() => asked.answer(false)}>No</button>
        </div>
      )}
      {closed !== "" && <p class="failure-line" role="alert">{closed} It was closed, so that it does not hold this page; run the tool again to open it again.</p>}
      {closed === "" && <iframe ref={frame} src={opened.frame} title="MCP App from the server" sandbox="allow-scripts allow-forms" referrerpolicy="no-referrer" style={{ height: `${height}px` }} />}
      <Disclosure title={<>Bridge <span class="note inline">{entries.length} messages</span></>} open>
        <ol class="bridge">
          {entries.map((entry) => <BridgeLine key={entry.number} entry={entry} />)}
        </ol>
        {entries.length === 0 && <p class="note">The app has not said anything yet.</p>}
      </Disclosure>
      <Disclosure title="Its policy"><p class="note">Content-Security-Policy</p><pre class="block wrap" tabIndex={0}><Theirs text={opened.csp} /></pre><p class="note">Permissions: <Theirs text={opened.permissions || "none"} /></p></Disclosure>
    </section>
  );
}

/**
 * A frame may take the focus whenever it likes, and with it what a person types elsewhere. Whoever types keeps the focus; a
 * click into the frame is the frame's own and cannot be told from a theft, so it counts a moment after the last key.
 */
function keepFocus(frame: { readonly current: HTMLIFrameElement | null }, close: () => void): () => void {
  let typing: Element | null = null;
  let typedAt = 0;
  let thefts = 0;
  const onUse = (event: Event): void => {
    typing = event instanceof KeyboardEvent && event.key === "Tab" ? null : event.target as Element;
    typedAt = performance.now();
  };
  const onBlur = (): void => void setTimeout(() => { // meanwhile the focus has moved
    if (document.activeElement !== frame.current || performance.now() - typedAt > STILL_TYPING) return;
    if (++thefts > MAX_THEFTS) close();
    if (typing instanceof HTMLElement && typing.isConnected) typing.focus({ preventScroll: true });
  });
  addEventListener("keydown", onUse, true);
  addEventListener("pointerdown", onUse, true);
  addEventListener("blur", onBlur);
  return () => {
    removeEventListener("keydown", onUse, true);
    removeEventListener("pointerdown", onUse, true);
    removeEventListener("blur", onBlur);
  };
}

function BridgeLine({ entry }: { entry: BridgeEntry }): JSX.Element {
  const method = asText(entry.message["method"]);
  const error = asObject(entry.message["error"] ?? {});
  const title = method ?? (entry.message["error"] !== undefined ? `error: ${asText(error["message"])}` : `answer to ${String(entry.message["id"])}`);
  return (
    <li>
      <Disclosure title={<><span class="num">{time(entry.at)}</span> <Badge tone={entry.direction === "app" ? "accent" : "quiet"}>{entry.direction === "app" ? "app →" : "← host"}</Badge> <Theirs text={title} />{entry.refused && <Badge tone="bad">{entry.refused}</Badge>}</>}>
        <JsonTree value={entry.message as JsonObject} />
      </Disclosure>
    </li>
  );
}

/** Wait for a call of the app's, and give its result. */
async function finish(begun: Promise<CallRow>): Promise<Json> {
  const { id } = await begun;
  await loadCall(id);
  return new Promise((resolve, reject) => {
    const stop = callDetails(id).subscribe((detail) => {
      const row = calls.value.find((call) => call.id === id) ?? detail;
      if (!detail || (row && row.endedAt === undefined && detail.endedAt === undefined)) return;
      if (detail.endedAt === undefined) return;
      queueMicrotask(() => stop());
      if (detail.result !== undefined) resolve(detail.result);
      else reject(new Error(detail.failure?.message ?? "The call failed."));
    });
  });
}
