// A question that a server asks in the middle of a call: a form, an address to open, or a turn of a model. Nobody answers
// for the person, and nothing runs out while they type.
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, post } from "../api/http";
import { asList, asObject, asText, isObject, parseTyped, pretty } from "../api/json";
import type { Json, JsonObject, Question, Violation } from "../api/types";
import { SchemaForm } from "../forms/form";
import { ContentList } from "../results/content";
import { JsonTree } from "../results/tree";
import { keepDraft, readDraft } from "../state/drafts";
import { link } from "../state/route";
import { calls, canSample, serverName } from "../state/store";
import { Action, Badge, Disclosure, Elapsed, Facts, FailureBox, Labelled, OutsideLink, safeUrl, toFailure } from "../ui/parts";
import { Theirs } from "../ui/text";
import type { Failure } from "../api/types";

const TITLES: Record<Question["kind"], string> = { elicit: "The server asks you", url: "The server asks you to open a page", sampling: "The server asks for a model's answer", roots: "The server asks for your roots", request: "The server sent a request" };

export function QuestionCard({ question, inCall = false }: { question: Question; inCall?: boolean }): JSX.Element {
  const call = calls.value.find((row) => row.id === question.call);
  return (
    <section class="question" aria-label={TITLES[question.kind]} data-question={question.id}>
      <header class="row wrap">
        <strong>{TITLES[question.kind]}</strong>
        {question.round !== undefined && <Badge tone="accent">round {question.round}</Badge>}
        <Badge title="How it came: a request of its own (legacy) or the end of a round (modern)">{question.era}</Badge>
        <span class="note inline">waiting <Elapsed since={question.at} /></span>
        {!inCall && <span class="note inline">from <Theirs text={serverName(question.server)} />{call && <> in <a href={link(["calls", call.id])}><Theirs text={call.name} /></a></>}</span>}
      </header>
      {question.message && <blockquote class="their-words"><Theirs text={question.message} /></blockquote>}
      <Body question={question} />
      <Disclosure title="As it came"><JsonTree value={question.raw} /></Disclosure>
    </section>
  );
}

function Body({ question }: { question: Question }): JSX.Element {
  switch (question.kind) {
    case "elicit": return <ElicitForm question={question} />;
    case "url": return <UrlCard question={question} />;
    case "sampling": return <SamplingCard question={question} />;
    default: return <RequestCard question={question} />;
  }
}

const answer = (question: Question, body: JsonObject): Promise<unknown> => post(`/api/questions/${question.id}`, body);

/** Where a half-typed answer is kept: a question is shown in its call and on a page of its own. Ids begin anew with the inspector. */
const draftOf = (question: Question): [string, string, string] => [question.server, "question", `${question.id} ${question.at}`];

function Buttons({ question, children }: { question: Question; children: ComponentChildren }): JSX.Element {
  return (
    <div class="row wrap buttons">
      {children}
      <Action run={() => answer(question, { action: "decline" })}>Decline</Action>
      {question.kind !== "sampling" && question.kind !== "request" && <Action kind="ghost" run={() => answer(question, { action: "cancel" })}>Cancel</Action>}
    </div>
  );
}

function defaults(schema: JsonObject): JsonObject {
  const values: JsonObject = {};
  for (const [name, property] of Object.entries(asObject(schema["properties"]))) {
    const value = asObject(property)["default"];
    if (value !== undefined) values[name] = value;
  }
  return values;
}

function ElicitForm({ question }: { question: Question }): JSX.Element {
  const schema = question.schema ?? { type: "object" };
  const [value, setValue] = useState<Json>(() => readDraft(...draftOf(question)) ?? defaults(schema));
  const [violations, setViolations] = useState<Violation[]>([]);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  const send = async (unchecked: boolean): Promise<void> => {
    setFailure(undefined);
    try {
      await answer(question, { action: "accept", content: value, ...(unchecked ? { unchecked: true } : {}) });
    } catch (error) {
      if (error instanceof ApiError && error.status === 422) setViolations(Object.entries(error.problems).map(([field, message]) => ({ path: field ? `/${field}` : "", message })));
      else setFailure(toFailure(error));
    }
  };
  return (
    <form onSubmit={(event) => { event.preventDefault(); void send(false); }} onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); event.stopPropagation(); void send(false); } }}>
      <SchemaForm schema={schema} value={value} set={(next) => { setValue(next ?? {}); keepDraft(...draftOf(question), next ?? {}); setViolations([]); }} violations={violations} id={`q-${question.id}`} />
      {failure && <FailureBox failure={failure} />}
      <Buttons question={question}>
        <Action kind="primary" run={() => send(false)}>Answer</Action>
        {violations.length > 0 && <Action run={() => send(true)}>Send anyway</Action>}
      </Buttons>
    </form>
  );
}

function UrlCard({ question }: { question: Question }): JSX.Element {
  const url = question.url ?? "";
  return (
    <>
      <p>The page is at <strong><Theirs text={question.host ?? ""} /></strong>:</p>
      <p class="break">{safeUrl(url) ? <OutsideLink url={url} /> : <code><Theirs text={url} /></code>}</p>
      <p class="note">Open it only if you know this host. What you enter there goes to it and not through this page.</p>
      <Buttons question={question}><Action kind="primary" run={() => answer(question, { action: "accept" })}>I agree</Action></Buttons>
    </>
  );
}

function SamplingCard({ question }: { question: Question }): JSX.Element {
  const params = question.sampling ?? {};
  const [text, setText] = useState(() => asText(readDraft(...draftOf(question))) ?? "");
  const id = `sample-${question.id}`;
  return (
    <>
      {asText(params["systemPrompt"]) && <div class="message"><p class="message-role">system</p><p class="their-words"><Theirs text={asText(params["systemPrompt"])} /></p></div>}
      {asList(params["messages"]).map((message, index) => (
        <div class="message" key={index}>
          <p class="message-role"><Theirs text={asText(asObject(message)["role"])} /></p>
          <ContentList blocks={[asObject(message)["content"] ?? []].flat() as Json[]} server={question.server} />
        </div>
      ))}
      <Facts items={[["max tokens", params["maxTokens"] !== undefined ? String(params["maxTokens"]) : undefined], ["temperature", params["temperature"] !== undefined ? String(params["temperature"]) : undefined], ["preferences", isObject(params["modelPreferences"]) ? <code><Theirs text={JSON.stringify(params["modelPreferences"])} /></code> : undefined], ["tools", asList(params["tools"]).length > 0 ? String(asList(params["tools"]).length) : undefined]]} />
      <Labelled id={id} label="The answer, in the model's place"><textarea id={id} rows={3} value={text} onInput={(event) => { setText(event.currentTarget.value); keepDraft(...draftOf(question), event.currentTarget.value); }} /></Labelled>
      <Buttons question={question}>
        <Action kind="primary" disabled={text === ""} run={() => answer(question, { action: "accept", text })}>Answer by hand</Action>
        {canSample.value && <Action run={() => answer(question, { action: "accept", by: "model" })}>Let the model answer</Action>}
      </Buttons>
    </>
  );
}

function RequestCard({ question }: { question: Question }): JSX.Element {
  const [text, setText] = useState(() => asText(readDraft(...draftOf(question))) ?? "{}");
  const id = `request-${question.id}`;
  return (
    <>
      <Labelled id={id} label="Result, as JSON"><textarea id={id} class="code" rows={4} value={text} onInput={(event) => { setText(event.currentTarget.value); keepDraft(...draftOf(question), event.currentTarget.value); }} /></Labelled>
      <Buttons question={question}><Action kind="primary" run={() => answer(question, { action: "accept", result: parseTyped(text) })}>Answer</Action></Buttons>
    </>
  );
}

export function AnsweredQuestion({ question }: { question: Question }): JSX.Element {
  return (
    <section class="question answered" aria-label="Answered question">
      <header class="row wrap"><Badge>{question.kind}</Badge>{question.round !== undefined && <Badge tone="accent">round {question.round}</Badge>}<Theirs text={question.message} /><span class="grow" /><Badge tone={question.answer?.action === "accept" ? "ok" : "quiet"}>{question.answer?.action ?? "open"}</Badge></header>
      {question.answer?.content !== undefined && <pre class="block wrap" tabIndex={0}><Theirs text={pretty(question.answer.content)} /></pre>}
    </section>
  );
}
