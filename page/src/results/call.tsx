// One call: how it goes, who failed, what came back, what was asked on the way, and what it cost in time.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, getBlob, getText, post, send } from "../api/http";
import { asList, asObject, asText, isObject } from "../api/json";
import type { CallDetail, CallRow, Json, JsonObject, Violation } from "../api/types";
import { link } from "../state/route";
import { callDetails, callLogs, callProgress, calls, catalogOf, loadCall, questions, servers, type Lines, type LogEntry } from "../state/store";
import { bytes, count, duration, plural, time } from "../ui/format";
import { Action, Badge, CallBadge, complain, copy, Disclosure, Elapsed, Empty, FailureBox, isRunning, save, Tabs } from "../ui/parts";
import { TheirBlock, Theirs } from "../ui/text";
import { VirtualList } from "../ui/virtual";
import { AnsweredQuestion, QuestionCard } from "../views/question-card";
import { AppFrame } from "./app-frame";
import { ContentList, RawJson, ResourceContents, TextView } from "./content";
import { noteCuts } from "./cut";
import { asRows, Table } from "./table";
import { JsonTree } from "./tree";

/** The row and, once read, the details of a call. */
function useCall(id: string | undefined): { row: CallRow | undefined; detail: CallDetail | undefined } {
  const row = id === undefined ? undefined : calls.value.find((call) => call.id === id);
  const detail = id === undefined ? undefined : callDetails(id).value;
  useEffect(() => {
    if (id !== undefined && (callDetails(id).peek()?.endedAt === undefined)) loadCall(id).catch((error) => error instanceof ApiError && error.status === 404 ? undefined : complain(error));
  }, [id]);
  // The details may be read before the event that says that the call ended.
  return { row: detail?.endedAt !== undefined || !row ? detail ?? row : row, detail };
}

export function CallView({ id, reuse }: { id: string; reuse?: (args: Json) => void }): JSX.Element {
  const { row, detail } = useCall(id);
  const [tab, setTab] = useState("result");
  if (!row) return <Empty title="This call is not here any more"><p>The inspector keeps the calls of its own run. Run it again.</p></Empty>;
  const running = isRunning(row);
  // A legacy server does not say to which of several calls a question belongs: each of them shows it.
  const open = questions.value.filter((question) => question.call === id || (running && question.call === undefined && question.server === row.server));
  return (
    <article class="call" aria-label={`Call of ${row.name}`} data-state={row.state}>
      <CallHead row={row} detail={detail} reuse={reuse} />
      {running && <ProgressBar row={row} />}
      {open.map((question) => <QuestionCard key={question.id} question={question} inCall />)}
      {row.failure && <FailureBox failure={row.failure} />}
      {row.state === "tool-error" && !row.failure && <p class="failure-line" role="alert">The tool answered with an error (isError). The server and the connection worked.</p>}
      {detail && detail.violations.length > 0 && <Violations title="Sent anyway, although these arguments break the schema" items={detail.violations} />}
      <Tabs label="Parts of the call" current={tab} pick={setTab} items={[
        { key: "result", label: "Result" },
        { key: "logs", label: <>Logs <span class="tab-count">{count(Math.max(row.logs, callLogs(id).items.length))}</span></> },
        { key: "steps", label: "Steps" },
        { key: "raw", label: "Raw" },
      ]} />
      {tab === "result" && (detail ? <ResultView detail={detail} /> : <p class="note">Reading …</p>)}
      {tab === "logs" && <LogPanel lines={callLogs(id)} detail={detail} />}
      {tab === "steps" && <Steps row={row} detail={detail} />}
      {tab === "raw" && detail?.resultTruncated && <LargeResult detail={detail} />}
      {tab === "raw" && detail && !detail.resultTruncated && <RawJson value={{ arguments: detail.arguments, result: detail.result ?? null } as JsonObject} name={`call-${id}`} />}
    </article>
  );
}

function CallHead({ row, detail, reuse }: { row: CallRow; detail?: CallDetail; reuse?: (args: Json) => void }): JSX.Element {
  const running = isRunning(row);
  const split = [
    row.wireMs !== undefined ? `wire ${duration(row.wireMs)}` : "",
    row.ownMs !== undefined && row.ownMs >= 0 ? `inspector ${duration(row.ownMs)}` : "",
    row.waitMs ? `waiting for you ${duration(row.waitMs)}` : "",
  ].filter(Boolean).join(" · ");
  const copyAs = (kind: string): Promise<void> => getText(`/api/calls/${row.id}/copy?as=${kind}`).then((text) => copy(text, `Copied as ${kind}`));
  return (
    <header class="call-head">
      <div class="row wrap" aria-live="polite">
        <CallBadge call={row} />
        <strong class="num">{running ? <Elapsed since={row.at} /> : duration(row.ms)}</strong>
        {split && <span class="note inline" title="Time on the wire, our own time, and time spent waiting for a person">{split}</span>}
        {row.rounds > 1 && <Badge tone="accent" title="The server asked in between; each answer is a new request">{row.rounds} rounds</Badge>}
        {row.by !== "page" && <Badge title="Who made this call">by {row.by}</Badge>}
        {row.size !== undefined && <span class="note inline">{bytes(row.size)}</span>}
        {row.resultTokens !== undefined && <span class="note inline" title="What this result costs a model">{plural(row.resultTokens, "token")}</span>}
      </div>
      <div class="row wrap">
        {running && <Action kind="small" run={() => post(`/api/calls/${row.id}/cancel`)} disabled={row.state === "cancelling"}>Cancel</Action>}
        {reuse && detail && <button type="button" class="small ghost" onClick={() => reuse(detail.arguments)}>Use these arguments</button>}
        <label class="visually-hidden" for={`copy-${row.id}`}>Copy this call as</label>
        <select id={`copy-${row.id}`} class="small" value="" onChange={(event) => { const kind = event.currentTarget.value; event.currentTarget.value = ""; if (kind) void copyAs(kind).catch(complain); }}>
          <option value="">Copy as …</option>{servers.value.find((server) => server.id === row.server)?.transport !== "stdio" && <option value="curl">curl</option>}<option value="python">Python</option><option value="pytest">pytest test</option><option value="json">JSON</option>
        </select>
        <a class="button small ghost" href={link(["wire"], { call: row.id })}>On the wire</a>
        <button type="button" class="small ghost" onClick={() => void copy(`${location.origin}/${link(["calls", row.id])}`, "Link copied")}>Link</button>
      </div>
    </header>
  );
}

function ProgressBar({ row }: { row: CallRow }): JSX.Element {
  const lines = callProgress(row.id);
  void lines.version.value;
  const latest = lines.items.at(-1) ?? row.progress;
  const fraction = latest?.total ? Math.min(1, latest.progress / latest.total) : undefined;
  return (
    <div class="progress">
      <progress value={fraction} max={1} aria-label="Progress" />
      <p class="note">
        {latest ? <><span class="num">{latest.progress}{latest.total !== undefined ? ` of ${latest.total}` : ""}</span> <Theirs text={latest.message} /></> : row.state === "waiting" ? "The call waits for your answer; its clock stands still." : "No progress reported yet."}
      </p>
    </div>
  );
}

function Violations({ title, items }: { title: string; items: readonly Violation[] }): JSX.Element {
  return (
    <div class="violations">
      <p>{title}</p>
      <ul>{items.slice(0, 50).map((item, index) => <li key={index}><code><Theirs text={item.path || "/"} /></code> <Theirs text={item.message} /></li>)}</ul>
    </div>
  );
}

function ResultView({ detail }: { detail: CallDetail }): JSX.Element {
  const result = asObject(detail.result);
  const app = detail.kind === "tool" && detail.by !== "app" ? catalogOf(detail.server).value?.tools.find((tool) => tool.definition["name"] === detail.name)?.app : undefined;
  useMemo(() => noteCuts(detail), [detail]);
  if (detail.resultTruncated && detail.result === undefined) return <LargeResult detail={detail} />;
  if (detail.result === undefined) return isRunning(detail) ? <p class="note">The result appears here.</p> : <NoResult detail={detail} />;
  return (
    <>
      {detail.resultTruncated && <p class="note">Long texts of this result of {bytes(detail.size)} are cut here. <Action kind="small" run={() => saveResult(detail)}>Save all of it</Action></p>}
      {app && detail.state === "ok" && !detail.resultTruncated && <AppFrame server={detail.server} uri={app.uri} call={detail} />}
      <ResultBody detail={detail} result={result} />
      {isObject(result["_meta"]) && <Disclosure title="_meta"><JsonTree value={result["_meta"]} /></Disclosure>}
    </>
  );
}

function NoResult({ detail }: { detail: CallDetail }): JSX.Element {
  if (detail.failure?.kind !== "RemoteProtocolError") return <p class="note">No result came back.</p>;
  return <p class="note">What came back is no result. <a href={link(["wire"], { server: detail.server })}>The wire</a> shows it as it came.</p>;
}

const PREVIEW = 64 * 1024; // bytes of a large result that are read

const resultPath = (call: CallDetail): string => `/api/calls/${call.id}/result`;
const saveResult = async (call: CallDetail): Promise<void> => save(`result-${call.id}.json`, await getBlob(resultPath(call)));

function LargeResult({ detail }: { detail: CallDetail }): JSX.Element {
  const path = resultPath(detail);
  const [text, setText] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    readStart(path, stop).then(setText, (error) => stop.signal.aborted || complain(error));
    return () => stop.abort();
  }, [path]);
  return (
    <>
      <p class="note">This result of {bytes(detail.size)} is larger than a page should load. This is its beginning. <Action kind="small" run={() => saveResult(detail)}>Save all of it</Action></p>
      <TheirBlock text={text} />
    </>
  );
}

async function readStart(path: string, stop: AbortController): Promise<string> {
  const response = await send("GET", path, undefined, stop.signal);
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (text.length < PREVIEW) {
    const { value, done } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return text.slice(0, PREVIEW);
}

function ResultBody({ detail, result }: { detail: CallDetail; result: JsonObject }): JSX.Element {
  if (detail.kind === "resource") return <div class="contents">{asList(result["contents"]).map((contents, index) => <section class="content" key={index} aria-label={`Contents ${index}`}><ResourceContents contents={asObject(contents)} /></section>)}</div>;
  if (detail.kind === "prompt") return <PromptMessages result={result} server={detail.server} />;
  if (detail.kind === "request") return <JsonTree value={detail.result!} open={3} />;
  const structured = result["structuredContent"];
  const blocks = asList(result["content"]);
  if (structured === undefined) return <ContentList blocks={blocks} server={detail.server} />;
  const repeats = blocks.length === 1 && saysTheSame(asObject(blocks[0]), structured);
  const content = <ContentList blocks={blocks} server={detail.server} />;
  return (
    <>
      <Structured value={structured} detail={detail} />
      {blocks.length === 0 ? null : repeats ? <Disclosure title="The same again, as text">{content}</Disclosure> : content}
    </>
  );
}

/** Servers repeat structured output as text, for clients that know only text. */
function saysTheSame(block: JsonObject, structured: Json): boolean {
  const text = asText(block["text"]);
  if (block["type"] !== "text" || text === undefined || text.length > 500_000) return false;
  try {
    const parsed = JSON.stringify(JSON.parse(text));
    return parsed === JSON.stringify(structured) || (isObject(structured) && parsed === JSON.stringify(structured["result"]));
  } catch {
    return isObject(structured) && structured["result"] === text;
  }
}

function Structured({ value, detail }: { value: Json; detail: CallDetail }): JSX.Element {
  const check = detail.structuredCheck;
  const tables = [["", value] as const, ...Object.entries(isObject(value) ? value : {})].flatMap(([name, inner]) => {
    const rows = asRows(inner);
    return rows ? [{ name, rows }] : [];
  });
  return (
    <section class="content" aria-label="Structured output">
      <header class="content-head">
        <span class="content-kind">structured output</span>
        {check ? <Badge tone={check.ok ? "ok" : "bad"}>{check.ok ? "fits its output schema" : "breaks its output schema"}</Badge> : <Badge title="The tool declares no output schema">not checked</Badge>}
      </header>
      {check && !check.ok && <Violations title="The server's answer breaks the schema that the server declared. Your arguments are not the cause." items={check.violations} />}
      {tables.map(({ name, rows }) => <div key={name}>{name && <p class="note"><Theirs text={name} /></p>}<Table {...rows} /></div>)}
      <JsonTree value={value} open={tables.length > 0 ? 1 : 3} />
    </section>
  );
}

function PromptMessages({ result, server }: { result: JsonObject; server: string }): JSX.Element {
  return (
    <>
      {asText(result["description"]) && <p class="lead"><Theirs text={asText(result["description"])} /></p>}
      {asList(result["messages"]).map((message, index) => (
        <section class="message" key={index} aria-label={`Message ${index}`}>
          <p class="message-role"><Theirs text={asText(asObject(message)["role"])} /></p>
          {typeof asObject(message)["content"] === "string" ? <TextView text={asObject(message)["content"] as string} mime="" /> : <ContentList blocks={[asObject(message)["content"] ?? []].flat() as Json[]} server={server} />}
        </section>
      ))}
    </>
  );
}

function Steps({ row, detail }: { row: CallRow; detail?: CallDetail }): JSX.Element {
  const progress = callProgress(row.id);
  void progress.version.value;
  const steps: { at: number; text: JSX.Element | string }[] = [{ at: row.at, text: "sent" }];
  const reported = progress.items.length > 0 ? progress.items : detail?.progressLog ?? [];
  for (const item of reported.slice(-200)) steps.push({ at: item.at ?? row.at, text: <>progress {item.progress}{item.total !== undefined ? `/${item.total}` : ""} <Theirs text={item.message} /></> });
  for (const question of detail?.questions ?? []) {
    steps.push({ at: question.at, text: <>{question.round !== undefined ? `round ${question.round}: ` : ""}asked ({question.kind}) <Theirs text={question.message} /></> });
    if (question.answer) steps.push({ at: question.answer.at, text: `answered: ${question.answer.action}` });
  }
  if (row.endedAt !== undefined) steps.push({ at: row.endedAt, text: `ended: ${row.state}` });
  steps.sort((a, b) => a.at - b.at);
  return (
    <>
      <ol class="steps">
        {steps.map((step, index) => <li key={index}><span class="num">{time(step.at)}</span> <span class="num faint">+{duration(step.at - row.at)}</span> {step.text}</li>)}
      </ol>
      {detail?.questions.filter((question) => question.answer).map((question) => <AnsweredQuestion key={question.id} question={question} />)}
    </>
  );
}

const LOUD = new Set(["error", "critical", "alert", "emergency"]);

export function LogPanel({ lines, detail }: { lines: Lines<LogEntry>; detail?: CallDetail }): JSX.Element {
  void lines.version.value;
  const items: readonly LogEntry[] = lines.items.length > 0 ? lines.items : detail?.logLines ?? [];
  return (
    <div class="log-panel">
      <VirtualList
        id={`log-${detail?.id ?? "server"}`} label="Log messages" items={items} height={22} follow keyOf={(_, index) => index}
        empty={<Empty title="No log messages"><p>Log messages from the server appear here as they come.</p></Empty>}
        row={(item) => (
          <div class={`log-line ${LOUD.has(item.level) ? "bad" : item.level === "warning" ? "warn" : ""}`}>
            <span class="num faint">{item.at !== undefined ? time(item.at) : ""}</span>
            <span class="log-level">{item.level}</span>
            {item.logger && <span class="faint"><Theirs text={item.logger} /></span>}
            <span class="cut"><Theirs text={typeof item.data === "string" ? item.data : JSON.stringify(item.data)} /></span>
          </div>
        )}
      />
    </div>
  );
}
