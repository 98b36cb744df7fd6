// Recordings and saved calls: record, replay, compare, mail, turn into a mock server or into tests.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, getText, post, request } from "../api/http";
import { asText, isObject, pretty } from "../api/json";
import type { CallRow, DiffLine, Expectation, Json, MessageRow, Recording, RunResult, Saved, Server } from "../api/types";
import { JsonTree } from "../results/tree";
import { go, link, route, setParams } from "../state/route";
import { activeRecording, recordings, savedVersion, serverName, servers } from "../state/store";
import { NO_FILTER, WireRows } from "../state/wire";
import { bytes, duration, plural, time } from "../ui/format";
import { Action, Badge, complain, Diff, Disclosure, Empty, save, say, Tabs } from "../ui/parts";
import { Theirs } from "../ui/text";
import { MessagePanel, WireList } from "./wire";

export function SessionsPage({ path }: { path: string[] }): JSX.Element {
  const tab = path[0] ?? "recordings";
  if (tab === "recording" && path[1] !== undefined) return <RecordingPage id={path[1]} />;
  return (
    <div class="page">
      <h1>Sessions</h1>
      <Tabs label="Sessions" current={tab} pick={(key) => go(["sessions", key])} items={[{ key: "recordings", label: "Recordings" }, { key: "compare", label: "Compare" }, { key: "saved", label: "Saved calls" }]} />
      {tab === "saved" ? <SavedCalls /> : tab === "compare" ? <Compare /> : <Recordings />}
    </div>
  );
}

function Recordings(): JSX.Element {
  const [name, setName] = useState("");
  const begin = async (sinceStart: boolean): Promise<Recording> => {
    const recording = await post<Recording>("/api/recordings", { ...(name ? { name } : {}), ...(sinceStart ? { sinceStart } : {}) });
    setName("");
    return recording;
  };
  const keep = async (): Promise<unknown> => post(`/api/recordings/${(await begin(true)).id}/stop`);
  const importFile = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const recording = await request<Recording>("POST", "/api/recordings/import", await file.text());
    say(`Imported ${recording.name}`);
  };
  return (
    <>
      <section class="card" aria-label="Record">
        <div class="row wrap">
          <label class="visually-hidden" for="recording-name">Name</label>
          <input id="recording-name" type="text" placeholder="Name of the recording" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          {activeRecording.value === undefined ? <Action kind="primary" run={() => begin(false)}>Record from now</Action> : <Action kind="primary" run={() => post(`/api/recordings/${activeRecording.value}/stop`)}>Stop recording</Action>}
          <Action disabled={activeRecording.value !== undefined} run={keep} title="Everything that is still on the wire">Keep everything so far</Action>
          <span class="grow" />
          <label class="button ghost">Import a file<input class="visually-hidden" type="file" accept=".json,application/json" onChange={(event) => void importFile(takeFile(event.currentTarget)).catch(complain)} /></label>
        </div>
      </section>
      {recordings.value.length === 0 ? (
        <Empty title="No recording yet"><p>Record a session and it becomes a file to mail, a mock server, or a pytest file.</p></Empty>
      ) : (
        <div class="cards">{recordings.value.map((recording) => <RecordingCard key={recording.id} recording={recording} />)}</div>
      )}
    </>
  );
}

/** The file that was picked. The field forgets it: the same file, picked again, is a change again. */
function takeFile(input: HTMLInputElement): File | undefined {
  const file = input.files?.[0];
  input.value = "";
  return file;
}

const fileName = (recording: Recording): string => recording.name.replace(/[^\w.-]+/g, "-") || "recording";

function RecordingCard({ recording }: { recording: Recording }): JSX.Element {
  const base = `/api/recordings/${recording.id}`;
  return (
    <article class="card" aria-label={recording.name}>
      <header class="row"><h2><a href={link(["sessions", "recording", recording.id])}><Theirs text={recording.name} /></a></h2><span class="grow" /><Badge tone={recording.state === "recording" ? "bad" : "quiet"}>{recording.state}</Badge></header>
      <p class="note">{recording.state === "recording" ? `since ${time(recording.at)}` : `${time(recording.at)} · ${plural(recording.messages, "message")} · ${plural(recording.calls, "call")} · ${bytes(recording.bytes)}`} · {recording.servers.map(serverName).join(", ")}</p>
      <p class="row wrap">
        {recording.state === "recording" && <Action kind="small primary" run={() => post(`${base}/stop`)}>Stop</Action>}
        <Action kind="small" run={async () => save(`${fileName(recording)}.json`, await getText(`${base}/export`))}>Export</Action>
        <Action kind="small" run={async () => { const mocks = await Promise.all(recording.servers.map((server) => post<Server>(`${base}/mock`, { server }))); say(mocks.length === 1 ? "A mock server answers as recorded" : `${mocks.length} mock servers answer as recorded`); go(mocks.length === 1 ? ["s", mocks[0]!.id] : ["servers"]); }}>Mock server</Action>
        <Action kind="small" run={async () => save(`test_${fileName(recording).replace(/\W/g, "_")}.py`, await getText(`${base}/pytest`), "text/x-python")}>pytest file</Action>
        <Action kind="small" run={async () => save("calls.toml", await getText(`${base}/calls.toml`), "application/toml")}>calls.toml</Action>
        <Action kind="small ghost" run={() => request("DELETE", base)}>Delete</Action>
      </p>
    </article>
  );
}

interface ReplayLine {
  call: CallRow;
  recorded: Json;
  now: Json;
  same: boolean;
  difference: DiffLine[];
}

function RecordingPage({ id }: { id: string }): JSX.Element {
  const recording = recordings.value.find((candidate) => candidate.id === id);
  const rows = useMemo(() => new WireRows(), [id]);
  const [results, setResults] = useState<ReplayLine[] | undefined>(undefined);
  const [target, setTarget] = useState("");
  const seq = route.value.params["seq"] === undefined ? undefined : Number(route.value.params["seq"]);
  useEffect(() => {
    get<{ messages: MessageRow[] }>(`/api/recordings/${id}/messages?limit=5000`).then((answer) => rows.add(answer.messages), complain);
  }, [id, rows]);
  if (!recording) return <div class="page"><Empty title="No such recording"><p><a href={link(["sessions"])}>All recordings</a></p></Empty></div>;
  return (
    <div class="page">
      <p><a href={link(["sessions"])}>← all recordings</a></p>
      <RecordingCard recording={recording} />
      <section class="card" aria-label="Replay">
        <div class="row wrap"><h2>Replay</h2>
          <label class="visually-hidden" for="replay-target">Against</label>
          <select id="replay-target" value={target} onChange={(event) => setTarget(event.currentTarget.value)}><option value="">against the recorded server</option>{servers.value.map((server) => <option key={server.id} value={server.id}>{server.name}</option>)}</select>
          <Action kind="primary" run={async () => setResults((await post<{ results: ReplayLine[] }>(`/api/recordings/${id}/replay`, target ? { server: target } : {})).results)}>Replay the calls</Action></div>
        {results && <ul class="check-list" aria-live="polite">{results.map((line, index) => <li key={index}><Badge tone={line.same ? "ok" : "bad"}>{line.same ? "same" : "differs"}</Badge> <Theirs text={line.call.name} />{!line.same && <Diff lines={line.difference} />}</li>)}</ul>}
        {results?.length === 0 && <p class="note">The recording holds no calls.</p>}
      </section>
      <section class="card recorded-wire" aria-label="Messages">
        <h2>Messages</h2>
        <div class={`wire-split fixed ${seq === undefined ? "" : "open"}`}>
          <WireList id="recorded" rows={rows} filter={NO_FILTER} selected={seq} onSelect={(row) => setParams({ seq: row.seq })} />
          {seq !== undefined && <MessagePanel key={seq} path={`/api/recordings/${id}/messages/${seq}`} close={() => setParams({ seq: undefined })} />}
        </div>
      </section>
    </div>
  );
}

function Compare(): JSX.Element {
  const [a, setA] = useState("");
  const [b, setB] = useState("");
  const [answer, setAnswer] = useState<{ same: boolean; calls: { name: string; a?: Json; b?: Json; same: boolean; difference: DiffLine[] }[]; definitions: DiffLine[] } | undefined>(undefined);
  const list = recordings.value;
  const [first, second] = [a || list[0]?.id || "", b || list[1]?.id || ""];
  if (list.length < 2) return <Empty title="Two recordings are needed"><p>Record twice, or import a file, then compare what the servers said.</p></Empty>;
  const pick = (label: string, value: string, set: (id: string) => void): JSX.Element => <select aria-label={label} value={value} onChange={(event) => set(event.currentTarget.value)}>{list.map((recording) => <option key={recording.id} value={recording.id}>{recording.name}</option>)}</select>;
  return (
    <>
      <p class="row wrap">{pick("First recording", first, setA)}<span>against</span>{pick("Second recording", second, setB)}<Action kind="primary" run={async () => setAnswer(await post("/api/recordings/compare", { a: first, b: second }))}>Compare</Action></p>
      {answer && (
        <section aria-label="Comparison" aria-live="polite">
          <p class="verdict"><Badge tone={answer.same ? "ok" : "warn"}>{answer.same ? "same" : "differs"}</Badge> {plural(answer.calls.length, "call")} compared</p>
          {answer.definitions.length > 0 && <><h2>Definitions</h2><Diff lines={answer.definitions} /></>}
          <ul class="check-list">{answer.calls.map((call, index) => <li key={index}><Badge tone={call.same ? "ok" : "bad"}>{call.same ? "same" : "differs"}</Badge> <Theirs text={call.name} />{!call.same && <Diff lines={call.difference} />}</li>)}</ul>
        </section>
      )}
    </>
  );
}

const EXPECTATIONS: [Expectation["what"], string][] = [["ok", "it succeeds"], ["error", "it fails"], ["text", "its text contains"], ["value", "a value equals"], ["schema", "it fits its schema"], ["faster", "it is faster than, ms"]];

function SavedCalls(): JSX.Element {
  const [saved, setSaved] = useState<Saved[] | undefined>(undefined);
  const [results, setResults] = useState<ReadonlyMap<string, RunResult>>(new Map());
  useEffect(() => void get<{ calls: Saved[] }>("/api/saved").then((answer) => setSaved(answer.calls), complain), [savedVersion.value]);
  const store = (list: Saved[]): void => {
    setSaved(list);
    request("PUT", "/api/saved", { calls: list }).catch(complain);
  };
  const run = async (ids?: string[]): Promise<void> => {
    const answer = await post<{ results: RunResult[] }>("/api/saved/run", ids ? { ids } : {});
    setResults(new Map([...results, ...answer.results.map((result) => [result.id, result] as const)]));
  };
  const importToml = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const { added } = await request<{ added: number }>("POST", "/api/saved/import", await file.text());
    say(added > 0 ? `${plural(added, "call")} added` : "All of them are saved already");
  };
  if (!saved) return <p class="note">Reading …</p>;
  return (
    <>
      <p class="row wrap">
        <Action kind="primary" disabled={saved.length === 0} run={() => run()}>Run all</Action>
        <Action disabled={saved.length === 0} run={async () => save("calls.toml", await getText("/api/saved/calls.toml"), "application/toml")}>Export calls.toml</Action>
        <label class="button ghost">Import<input class="visually-hidden" type="file" accept=".toml" onChange={(event) => void importToml(takeFile(event.currentTarget)).catch(complain)} /></label>
        <span class="note inline">In CI: <code>trimaran inspect --run calls.toml</code></span>
      </p>
      {saved.length === 0 && <Empty title="No saved call"><p>“Save call” beside a form keeps it here, with what it must answer.</p></Empty>}
      {saved.map((call, index) => <SavedCard key={call.id} call={call} result={results.get(call.id)} run={() => run([call.id])} change={(next) => store(saved.with(index, next))} remove={() => store(saved.filter((other) => other.id !== call.id))} />)}
    </>
  );
}

function SavedCard({ call, result, run, change, remove }: { call: Saved; result?: RunResult; run: () => Promise<void>; change: (call: Saved) => void; remove: () => void }): JSX.Element {
  const setExpect = (place: number, next: Expectation): void => change({ ...call, expect: call.expect.with(place, next) });
  return (
    <article class="card" aria-label={call.title}>
      <header class="row wrap"><input type="text" aria-label="Title" value={call.title} onChange={(event) => change({ ...call, title: event.currentTarget.value })} /><code><Theirs text={`${call.kind} ${call.name}`} /></code><span class="note inline"><Theirs text={serverName(call.server)} /></span><span class="grow" />
        {result && <Badge tone={result.passed ? "ok" : "bad"}>{result.passed ? "passed" : "failed"} · {duration(result.ms)}</Badge>}
        <Action kind="small" run={run}>Run</Action><button type="button" class="small ghost" aria-label={`Remove ${call.title}`} onClick={remove}>✕</button></header>
      {result && !result.passed && <ul class="violations">{result.failures.map((failure, index) => <li key={index}><Theirs text={failure} /></li>)}</ul>}
      <Disclosure title={`Arguments ${isObject(call.arguments) ? `(${Object.keys(call.arguments).length})` : ""}`}><JsonTree value={call.arguments} /></Disclosure>
      <ul class="expectations">
        {call.expect.map((expectation, place) => (
          <li key={place} class="row wrap">
            <select class="small" aria-label="Expectation" value={expectation.what} onChange={(event) => setExpect(place, fresh(event.currentTarget.value as Expectation["what"]))}>{EXPECTATIONS.map(([what, label]) => <option key={what} value={what}>{label}</option>)}</select>
            <ExpectationFields expectation={expectation} set={(next) => setExpect(place, next)} />
            <button type="button" class="small ghost" aria-label="Remove expectation" onClick={() => change({ ...call, expect: call.expect.filter((_, other) => other !== place) })}>✕</button>
          </li>
        ))}
      </ul>
      <button type="button" class="small ghost" onClick={() => change({ ...call, expect: [...call.expect, { what: "ok" }] })}>Add an expectation</button>
    </article>
  );
}

function fresh(what: Expectation["what"]): Expectation {
  switch (what) {
    case "text": return { what, contains: "" };
    case "value": return { what, path: "/structuredContent", equals: null };
    case "faster": return { what, ms: 1000 };
    default: return { what };
  }
}

function ExpectationFields({ expectation, set }: { expectation: Expectation; set: (next: Expectation) => void }): JSX.Element | null {
  if (expectation.what === "text") return <input type="text" aria-label="Text" value={expectation.contains ?? expectation.equals ?? ""} onChange={(event) => set({ what: "text", contains: event.currentTarget.value })} />;
  if (expectation.what === "faster") return <input type="text" inputMode="numeric" aria-label="Milliseconds" value={String(expectation.ms)} onChange={(event) => set({ what: "faster", ms: Number(event.currentTarget.value) || 0 })} />;
  if (expectation.what !== "value") return null;
  const read = (text: string): Json => {
    try {
      return JSON.parse(text) as Json;
    } catch {
      return text;
    }
  };
  return (
    <>
      <input type="text" class="code" aria-label="Path" value={expectation.path} onChange={(event) => set({ ...expectation, path: event.currentTarget.value })} />
      <input type="text" class="code" aria-label="Value" value={asText(expectation.equals) ?? pretty(expectation.equals)} onChange={(event) => set({ ...expectation, equals: read(event.currentTarget.value) })} />
    </>
  );
}


