// A form, its JSON, and the button that runs it; beside it the result. The check runs while a person types, marks what is
// wrong at its field, and never stands in the way: "Send anyway" sends what is there.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, post } from "../api/http";
import { asObject, asText, parseTyped, pretty } from "../api/json";
import type { CallKind, CallRow, Failure, Json, NewCall, Saved, Violation } from "../api/types";
import { get, request } from "../api/http";
import { JsonEditor } from "../forms/editor";
import { SchemaForm, type Suggest } from "../forms/form";
import { same, type Schema, SchemaReader } from "../forms/schema";
import { CallView } from "../results/call";
import { keepDraft, readDraft } from "../state/drafts";
import { go, link, route, setParams, stayer } from "../state/route";
import { calls } from "../state/store";
import { duration, shortTime } from "../ui/format";
import { Action, copy, Empty, FailureBox, outcome, say, Segments, toFailure } from "../ui/parts";
import { Theirs } from "../ui/text";

interface Props {
  server: string;
  kind: CallKind;
  /** Of the call: a tool, prompt or address. */
  name: string;
  schema: Schema;
  checked?: boolean;
  suggest?: Suggest;
  mayBeTask?: boolean;
  head: ComponentChildren;
  foot?: ComponentChildren;
  runLabel?: string;
  /** What to send, where that is not simply the name and the arguments. */
  prepare?: (value: Json) => Partial<NewCall>;
  /** Under which name drafts and past calls are kept, if the call's name varies. */
  matches?: (call: CallRow) => boolean;
}

export function Runner(props: Props): JSX.Element {
  const { server, kind, name, schema } = props;
  const [value, setValue] = useState<Json>(() => startValue(server, kind, name));
  const halfTyped = (text: string): void => keepDraft(server, `${kind} text`, name, text);
  const [text, setText] = useState(() => (route.value.params["args"] === undefined && asText(readDraft(server, `${kind} text`, name))) || pretty(value));
  const [mode, setMode] = useState<"form" | "json">(() => (jsonProblem(text) === undefined ? "form" : "json"));
  const [violations, setViolations] = useState<Violation[]>([]);
  const [refused, setRefused] = useState(false);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  const [asTask, setAsTask] = useState(false);
  const [replaced, setReplaced] = useState<Json | undefined>(undefined);
  const touched = useRef(false);
  const problem = mode === "json" ? jsonProblem(text) : undefined;

  const change = (next: Json): void => {
    touched.current = true;
    setValue(next);
    setText(pretty(next));
    setRefused(false);
    keepDraft(server, kind, name, next);
    halfTyped("");
    setReplaced(undefined);
  };
  /** One click puts other arguments there; another brings back what a person typed. */
  const replace = (next: Json): void => {
    const typed = value;
    change(next);
    if (!same(typed, {}) && !same(typed, next)) setReplaced(typed);
  };
  const changeText = (next: string): void => {
    touched.current = true;
    setText(next);
    setRefused(false);
    try {
      const parsed = parseTyped(next);
      setValue(parsed);
      keepDraft(server, kind, name, parsed);
      halfTyped("");
    } catch {
      halfTyped(next); // the value stays until this is JSON again
    }
  };

  useEffect(() => {
    if (!props.checked || !touched.current) return;
    const timer = setTimeout(() => {
      post<{ violations: Violation[] }>("/api/check", { server, tool: name, arguments: value }).then((answer) => setViolations(answer.violations), () => undefined);
    }, 200);
    return () => clearTimeout(timer);
  }, [value, server, name, props.checked]);

  const run = async (sendAnyway: boolean): Promise<void> => {
    setFailure(undefined);
    const isStillHere = stayer();
    try {
      const call: NewCall = { server, kind, name, arguments: value, ...(sendAnyway ? { sendAnyway } : {}), ...(asTask ? { asTask } : {}), ...props.prepare?.(value) };
      const row = await post<CallRow>("/api/calls", call);
      if (!sendAnyway) setViolations([]);
      if (isStillHere()) setParams({ call: row.id, args: undefined });
    } catch (error) {
      if (error instanceof ApiError && error.status === 422) {
        setViolations(error.violations);
        setRefused(true);
      } else setFailure(toFailure(error));
    }
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && problem === undefined) {
      event.preventDefault();
      void run(false);
    }
  };
  const saveCall = async (): Promise<void> => {
    const { calls: saved } = await get<{ calls: Saved[] }>("/api/saved");
    const entry: Saved = { id: crypto.randomUUID(), title: name, server, kind, name, arguments: value, expect: [{ what: "ok" }] };
    await request("PUT", "/api/saved", { calls: [...saved, entry] });
    say("Saved; see Sessions");
  };
  const reader = useMemo(() => new SchemaReader(schema), [schema]);
  const takesNothing = kind === "resource" && Object.keys(asObject(reader.resolve(schema)["properties"])).length === 0;
  // Errors about absent fields are shown once somebody tries to run it: an empty form is not a mistake yet.
  const shown = refused ? violations : violations.filter((violation) => violation.keyword !== "required");
  const id = `run-${server}-${kind}`;
  return (
    <>
      <section class="pane form-pane" aria-label="Arguments" onKeyDown={onKey}>
        {props.head}
        {!takesNothing && <div class="row wrap form-tools">
          <Segments label="Edit the arguments as" items={[["form", "Form"], ["json", "JSON"]]} current={mode} pick={setMode} />
          <span class="grow" />
          {replaced !== undefined && <button type="button" class="small ghost" onClick={() => change(replaced)}>Undo</button>}
          <button type="button" class="small ghost" onClick={() => replace(reader.first(schema, "", 0, true))}>Example</button>
          <button type="button" class="small ghost" onClick={() => { replace({}); touched.current = false; setViolations([]); }}>Clear</button>
        </div>}
        {takesNothing ? null : mode === "form" ? (
          <SchemaForm schema={schema} value={value} set={(next) => change(next ?? {})} violations={shown} id={id} suggest={props.suggest} />
        ) : (
          <>
            <JsonEditor text={text} onText={changeText} schema={schema as Json} label="Arguments as JSON" />
            {problem && <p class="field-error" role="alert">Not JSON yet: {problem}</p>}
            {shown.map((violation, index) => <p class="field-error" key={index}><code><Theirs text={violation.path || "/"} /></code> <Theirs text={violation.message} /></p>)}
          </>
        )}
        {failure && <FailureBox failure={failure} />}
        {refused && <p class="failure-line" role="alert">Not sent: the arguments break their schema. Mend the marked fields, or send them anyway to see what the server says.</p>}
        <div class="row wrap run-row">
          <Action kind="primary" disabled={problem !== undefined} run={() => run(false)} title="Ctrl+Enter">{props.runLabel ?? "Run"}</Action>
          {violations.length > 0 && <Action run={() => run(true)}>Send anyway</Action>}
          {props.mayBeTask && <label class="check"><input type="checkbox" checked={asTask} onChange={(event) => setAsTask(event.currentTarget.checked)} />as a task</label>}
          <span class="grow" />
          <Action kind="small ghost" run={saveCall}>Save call</Action>
          <button type="button" class="small ghost" onClick={() => void copy(`${location.origin}/${link(route.value.path, { args: JSON.stringify(value) })}`, "Link with these arguments copied")}>Link</button>
        </div>
        {props.foot}
      </section>
      <ResultPane {...props} reuse={replace} />
    </>
  );
}

function startValue(server: string, kind: string, name: string): Json {
  const given = route.value.params["args"];
  if (given !== undefined) {
    try {
      return parseTyped(given);
    } catch {
      say("The arguments in this link are not JSON.", true);
    }
  }
  return asObject(readDraft(server, kind, name));
}

function jsonProblem(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function ResultPane({ server, kind, name, matches, reuse }: Props & { reuse: (value: Json) => void }): JSX.Element {
  const past = calls.value.filter((call) => call.server === server && call.kind === kind && (matches ? matches(call) : call.name === name)).slice(-30).reverse();
  const picked = route.value.params["call"] ?? past[0]?.id;
  return (
    <section class="pane result-pane" aria-label="Result">
      {past.length > 0 && (
        <div class="history">
          <label class="visually-hidden" for="history">Earlier calls</label>
          <select id="history" class="small" value={picked ?? ""} onChange={(event) => setParams({ call: event.currentTarget.value }, false)}>
            {picked !== undefined && !past.some((call) => call.id === picked) && <option value={picked}>another call</option>}
            {past.map((call) => <option key={call.id} value={call.id}>{shortTime(call.at)} · {outcome(call)[1]} · {duration(call.ms) || "…"}</option>)}
          </select>
          <span class="note inline">{past.length} {past.length === 1 ? "call" : "calls"} so far</span>
        </div>
      )}
      {picked !== undefined ? <CallView key={picked} id={picked} reuse={reuse} /> : <Empty title="Nothing called yet"><p>Fill in the form and press <kbd>Ctrl</kbd> <kbd>Enter</kbd>. The result appears here, and every message below.</p></Empty>}
    </section>
  );
}

/** A call that stands alone: `#/calls/ID`. */
export function CallPage({ id }: { id: string }): JSX.Element {
  const row = calls.value.find((call) => call.id === id);
  const place = row && { tool: "tools", resource: "resources", prompt: "prompts", request: "requests" }[row.kind];
  return (
    <div class="page">
      <h1>{row ? <Theirs text={row.name} /> : "Call"}</h1>
      {row && place && <p><button type="button" class="small" onClick={() => go(["s", row.server, place, row.name], { call: id })}>Open beside its form</button></p>}
      <CallView id={id} />
    </div>
  );
}
