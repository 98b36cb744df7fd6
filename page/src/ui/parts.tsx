// The small parts that every page of the inspector is made of.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/http";
import type { Activity, Blame, CallRow, Failure, ServerState } from "../api/types";
import { Theirs } from "./text";
import { duration } from "./format";

type Tone = "ok" | "warn" | "bad" | "busy" | "quiet" | "accent";

export function Badge({ tone = "quiet", children, title }: { tone?: Tone; children: ComponentChildren; title?: string }): JSX.Element {
  return <span class={`badge ${tone}`} title={title}>{children}</span>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return <div class="empty"><p class="empty-title">{title}</p>{children}</div>;
}

const WHO: Record<Blame, string> = {
  server: "The server failed",
  transport: "The connection failed",
  check: "Our check: the server's answer breaks its own schema",
  auth: "The login failed",
  client: "Our side refused this",
  person: "A person ended this",
};

/** A tool that says `isError` has done its part: neither the server nor the connection is broken. */
function whoFailed(failure: Failure): string {
  if (failure.kind === "ToolError") return "The tool says that it failed";
  if (failure.kind === "Unauthorized" && failure.status === 401) return "The server wants a login";
  return WHO[failure.blame] ?? "Failed";
}

export function FailureBox({ failure, children }: { failure: Failure; children?: ComponentChildren }): JSX.Element {
  const facts = [failure.kind, failure.code !== undefined ? `code ${failure.code}` : "", failure.status !== undefined ? `HTTP ${failure.status}` : ""];
  return (
    <div class={`failure ${failure.blame === "person" ? "mild" : ""}`} role="alert" data-blame={failure.blame}>
      <p class="failure-who">{whoFailed(failure)} <span class="facts">{facts.filter(Boolean).join(" · ")}</span></p>
      <p class="failure-text"><Theirs text={failure.message} /></p>
      {failure.hint && <p class="hint"><Theirs text={failure.hint} /></p>}
      {failure.data !== undefined && failure.data !== null && <pre class="block wrap" tabIndex={0}><Theirs text={JSON.stringify(failure.data, null, 2)} /></pre>}
      {children}
    </div>
  );
}

export function toFailure(error: unknown): Failure {
  if (error instanceof ApiError) return error.failure;
  return { blame: "client", kind: "Error", message: error instanceof Error ? error.message : String(error) };
}

const STATES: Record<ServerState, [Tone, string]> = {
  idle: ["quiet", "not connected"], connecting: ["busy", "connecting"], ready: ["ok", "connected"], reconnecting: ["warn", "reconnecting"],
  "needs-auth": ["warn", "needs a login"], failed: ["bad", "failed"], closed: ["quiet", "disconnected"],
};
export function StateBadge({ state }: { state: ServerState }): JSX.Element {
  const [tone, text] = STATES[state] ?? ["quiet", state];
  return <Badge tone={tone}>{text}</Badge>;
}
export function StateDot({ state }: { state: ServerState }): JSX.Element {
  const [tone, text] = STATES[state] ?? ["quiet", state];
  return <span class={`dot ${tone}`} role="img" aria-label={text} title={text} />;
}

const ACTIVITIES: Record<string, Tone> = { ready: "ok", lost: "bad", failed: "bad", "needs-auth": "warn" };
export const activityTone = (activity: Activity): Tone => ACTIVITIES[activity.what] ?? (activity.failure ? "warn" : "quiet");
export function ActivityBadge({ activity }: { activity: Activity }): JSX.Element {
  return <Badge tone={activityTone(activity)}>{activity.what === "needs-auth" ? STATES["needs-auth"][1] : activity.what}</Badge>;
}

/** Who is to blame comes with the state: an error of the tool is not "OK", and a broken schema is not the arguments' fault. */
export function outcome(call: Pick<CallRow, "state" | "failure" | "wireMs">): [Tone, string] {
  switch (call.state) {
    case "running": return ["busy", "running"];
    case "waiting": return ["warn", "waiting for you"];
    case "cancelling": return ["warn", "cancelling"];
    case "ok": return ["ok", "OK"];
    case "tool-error": return ["bad", "tool error"];
    case "invalid": return ["bad", "breaks its schema"];
    case "cancelled": return ["quiet", "cancelled"];
    case "failed": return ["bad", { server: "server error", transport: "connection lost", check: "check failed", auth: "login refused", client: call.wireMs === undefined ? "not sent" : "answer refused", person: "declined" }[call.failure?.blame ?? "server"]];
  }
}
export function CallBadge({ call }: { call: CallRow }): JSX.Element {
  const [tone, text] = outcome(call);
  return <Badge tone={tone}>{text}</Badge>;
}
export const isRunning = (call: CallRow): boolean => call.endedAt === undefined && (call.state === "running" || call.state === "waiting" || call.state === "cancelling");

/** Time that goes on while something runs. */
export function Elapsed({ since, until }: { since: number; until?: number }): JSX.Element {
  const [, tick] = useState(0);
  useEffect(() => {
    if (until !== undefined) return;
    const timer = setInterval(() => tick((value) => value + 1), 100);
    return () => clearInterval(timer);
  }, [until]);
  return <span class="num">{duration(Math.max(0, (until ?? Date.now()) - since))}</span>;
}

interface Notice {
  id: number;
  text: string;
  bad: boolean;
}
export const notices = signal<readonly Notice[]>([]);
let nextNotice = 1;
export function say(text: string, bad = false): void {
  if (notices.value.at(-1)?.text === text) return; // an app in a loop would say it for ever
  const notice = { id: nextNotice++, text, bad };
  notices.value = [...notices.value.slice(-2), notice];
  setTimeout(() => {
    notices.value = notices.value.filter((other) => other.id !== notice.id);
  }, bad ? 8000 : 2500);
}
export function complain(error: unknown): void {
  say(toFailure(error).message, true);
}

export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    // Without a secure context or permission there is the old way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    say(done ? what : "The browser does not let this page copy.", !done);
  }
}

export function CopyButton({ text, label = "Copy" }: { text: () => string | Promise<string>; label?: string }): JSX.Element {
  return <button type="button" class="small ghost" onClick={() => void Promise.resolve(text()).then((value) => copy(value)).catch(complain)}>{label}</button>;
}

export function save(name: string, content: string | Blob, type = "application/json"): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(new Blob([content], { type }));
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

/** A button that shows that it works, and says when that fails. */
export function Action({ run, children, kind = "", disabled, title, label }: { run: () => Promise<unknown> | unknown; children: ComponentChildren; kind?: string; disabled?: boolean; title?: string; label?: string }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const alive = useRef(true);
  useEffect(() => () => void (alive.current = false), []);
  const click = async (): Promise<void> => {
    setBusy(true);
    try {
      await run();
    } catch (error) {
      complain(error);
    } finally {
      if (alive.current) setBusy(false);
    }
  };
  return <button type="button" class={kind} disabled={disabled || busy} aria-busy={busy} title={title} aria-label={label} onClick={() => void click()}>{children}</button>;
}

interface TabItem {
  key: string;
  label: ComponentChildren;
}
const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Arrow keys move among the buttons of a group, which is one stop of the Tab key. */
function onArrows<T extends string>(keys: readonly T[], current: T, pick: (key: T) => void): (event: KeyboardEvent) => void {
  return (event) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = (keys.indexOf(current) + step + keys.length) % keys.length;
    pick(keys[index]!);
    ((event.currentTarget as HTMLElement).children[index] as HTMLElement | undefined)?.focus();
  };
}

export function Tabs({ items, current, pick, label }: { items: TabItem[]; current: string; pick: (key: string) => void; label: string }): JSX.Element {
  const onKey = onArrows(items.map((item) => item.key), current, pick);
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKey}>
      {items.map((item) => (
        <button type="button" role="tab" key={item.key} aria-selected={item.key === current} tabIndex={item.key === current ? 0 : -1} onClick={() => pick(item.key)}>{item.label}</button>
      ))}
    </div>
  );
}

export function Segments<T extends string>({ items, current, pick, label }: { items: readonly (readonly [T, string])[]; current: T; pick: (key: T) => void; label: string }): JSX.Element {
  const keys = items.map(([key]) => key);
  const stop = keys.includes(current) ? current : keys[0];
  return (
    <div class="segments" role="radiogroup" aria-label={label} onKeyDown={onArrows(keys, current, pick)}>
      {items.map(([key, text]) => (
        <button type="button" role="radio" key={key} aria-checked={key === current} tabIndex={key === stop ? 0 : -1} onClick={() => pick(key)}>{text}</button>
      ))}
    </div>
  );
}

export function Disclosure({ title, children, open = false }: { title: ComponentChildren; children: ComponentChildren; open?: boolean }): JSX.Element {
  const [isOpen, setOpen] = useState(open);
  return (
    <details class="disclosure" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && children}
    </details>
  );
}

export function Dialog({ title, close, children, wide = false }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key is pressed: whoever types at once would lose the first character.
  useLayoutEffect(() => {
    const element = box.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  useEffect(() => {
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  return (
    <dialog ref={box} class={wide ? "wide" : ""} aria-label={title} onCancel={(event) => { event.preventDefault(); close(); }} onClick={(event) => event.target === box.current && close()}>
      <div class="dialog-body">
        <header><h2>{title}</h2><button type="button" class="ghost small" aria-label="Close" onClick={close}>✕</button></header>
        {children}
      </div>
    </dialog>
  );
}

/** A field of our own pages; those of a schema are in `forms/form.tsx`. */
export function Labelled({ label, id, children }: { label: string; id: string; children: ComponentChildren }): JSX.Element {
  return <div class="field"><div class="field-head"><label for={id}>{label}</label></div>{children}</div>;
}

export function Facts({ items }: { items: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts-list">
      {items.filter(([, value]) => value !== undefined && value !== "" && value !== null).map(([name, value]) => (
        <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

export function Diff({ lines }: { lines: readonly { mark: string; text: string }[] }): JSX.Element {
  return (
    <pre class="diff" tabIndex={0}>
      {lines.map((line, index) => (
        <div key={index} class={line.mark === "+" ? "plus" : line.mark === "-" ? "minus" : ""}>{line.mark} <Theirs text={line.text} /></div>
      ))}
    </pre>
  );
}

export const safeUrl = (url: string | undefined): string | undefined => (url !== undefined && /^https?:\/\//i.test(url) ? url : undefined);

/** An address a server gave. Its text is all of it; it opens in a tab that knows nothing of this page, on a click only. */
export function OutsideLink({ url }: { url: string }): JSX.Element {
  const href = safeUrl(url);
  if (href === undefined) return <code><Theirs text={url} /></code>;
  return <a href={href} target="_blank" rel="noopener noreferrer nofollow"><Theirs text={url} /> ↗</a>;
}
