// A login, one request at a time: what is asked, what comes back, what is wrong with it and how to mend that.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, request } from "../api/http";
import type { OAuthFlow, OAuthStep, Server } from "../api/types";
import { JsonTree } from "../results/tree";
import { flows } from "../state/store";
import { duration } from "../ui/format";
import { Action, Badge, Disclosure, Empty, Facts, FailureBox, Labelled, safeUrl } from "../ui/parts";
import { TheirBlock, Theirs } from "../ui/text";
import { Headers } from "./wire";

const PHASES = ["challenge", "discovery", "registration", "authorization", "token", "call"];

function keep(flow: OAuthFlow): void {
  const rest = flows.value.filter((other) => other.id !== flow.id);
  flows.value = [...rest, flow];
}

export function OAuthPage({ server }: { server: Server }): JSX.Element {
  const [clientId, setClientId] = useState("");
  const [clientSecret, setClientSecret] = useState("");
  const [scope, setScope] = useState("");
  const [dpop, setDpop] = useState(false);
  const flow = flows.value.findLast((candidate) => candidate.server === server.id);
  const begin = async (what: string, auto: boolean): Promise<void> => {
    keep(await post<OAuthFlow>(`/api/servers/${server.id}/oauth`, { what, auto, ...(clientId ? { clientId } : {}), ...(clientSecret ? { clientSecret } : {}), ...(scope ? { scope } : {}), ...(dpop ? { dpop } : {}) }));
  };
  if (server.transport === "stdio") return <div class="page"><h1>Login, step by step</h1><Empty title="A local program needs no login"><p>OAuth belongs to servers on HTTP. This one is a program that the inspector started: it finds its credentials in its environment.</p></Empty></div>;
  return (
    <div class="page">
      <h1>Login, step by step</h1>
      <p class="lead">Discovery, registration, authorization, token: each request waits for you, and each answer is explained.</p>
      <section class="card" aria-label="Begin">
        <div class="row wrap">
          <Action kind="primary" run={() => begin("login", false)}>Log in step by step</Action>
          <Action run={() => begin("login", true)}>Log in at once</Action>
          <Action kind="ghost" run={() => begin("refresh", false)}>Refresh the token</Action>
          <Action kind="ghost" disabled={scope === ""} title="The scopes are typed below" run={() => begin("step-up", false)}>Ask for more scopes</Action>
        </div>
        <Disclosure title="Client and scopes">
          <div class="columns">
            <Labelled id="client-id" label="Client ID"><input id="client-id" type="text" placeholder="registers itself if empty" value={clientId} onInput={(event) => setClientId(event.currentTarget.value)} /></Labelled>
            <Labelled id="client-secret" label="Client secret"><input id="client-secret" type="password" autocomplete="off" value={clientSecret} onInput={(event) => setClientSecret(event.currentTarget.value)} /></Labelled>
            <Labelled id="scope" label="Scopes"><input id="scope" type="text" placeholder="what the server asks for" value={scope} onInput={(event) => setScope(event.currentTarget.value)} /></Labelled>
          </div>
          <label class="check"><input type="checkbox" checked={dpop} onChange={(event) => setDpop(event.currentTarget.checked)} />bind the token to a key (DPoP)</label>
        </Disclosure>
      </section>
      {flow ? <FlowView flow={flow} /> : <Empty title="No login yet"><p>{server.state === "needs-auth" ? "The server wants one: begin above." : "Begin one above. If the server needs none, the first step says so."}</p></Empty>}
    </div>
  );
}

function FlowView({ flow }: { flow: OAuthFlow }): JSX.Element {
  const reached = new Set(flow.steps.map((step) => step.phase));
  const url = safeUrl(flow.authorizationUrl);
  return (
    <section aria-label="The login">
      <ol class="phases" aria-label="Phases">{PHASES.map((phase) => <li key={phase} class={reached.has(phase) ? "reached" : ""}>{phase}</li>)}</ol>
      <div class="row wrap flow-head" aria-live="polite">
        <Badge tone={flow.state === "done" ? "ok" : flow.state === "failed" ? "bad" : flow.state === "paused" ? "accent" : "busy"}>{flow.state.replaceAll("-", " ")}</Badge>
        {flow.state === "paused" && <>
          <Action kind="primary" run={async () => keep(await post<OAuthFlow>(`/api/oauth/${flow.id}/next`))}>Next: {flow.next ?? "go on"}</Action>
          <Action run={async () => keep(await post<OAuthFlow>(`/api/oauth/${flow.id}/next`, { all: true }))}>All the rest</Action>
        </>}
        {flow.state === "waiting-for-browser" && url && <a class="button primary" href={url} target="_blank" rel="noopener noreferrer">Open the login page ↗</a>}
        {flow.state !== "done" && flow.state !== "failed" && <Action kind="ghost" run={() => request("DELETE", `/api/oauth/${flow.id}`)}>Give up</Action>}
      </div>
      {flow.state === "waiting-for-browser" && <p class="break note"><Theirs text={flow.authorizationUrl} /></p>}
      {flow.failure && <FailureBox failure={flow.failure} />}
      {flow.result && <section class="card" aria-label="Token"><h2>Token</h2><Facts items={[["type", flow.result.tokenType], ["scope", flow.result.scope], ["expires in", flow.result.expiresIn !== undefined ? `${flow.result.expiresIn} s` : undefined], ["refresh token", flow.result.hasRefreshToken ? "yes" : "no"]]} />{flow.result.claims !== undefined && <Disclosure title="Claims"><JsonTree value={flow.result.claims} /></Disclosure>}</section>}
      <ol class="oauth-steps">{flow.steps.map((step) => <Step key={step.n} step={step} />)}</ol>
    </section>
  );
}

function Step({ step }: { step: OAuthStep }): JSX.Element {
  const tone = step.ok === false ? "bad" : step.problem ? "warn" : step.ok ? "ok" : "quiet";
  return (
    <li class="card">
      <header class="row wrap"><span class="num step-number">{step.n}</span><Badge>{step.phase}</Badge><strong><Theirs text={step.title} /></strong><span class="grow" /><span class="note inline">{duration(step.ms)}</span>{step.response && <Badge tone={tone}>{step.response.status}</Badge>}</header>
      {step.notes.map((note, index) => <p class="note" key={index}><Theirs text={note} /></p>)}
      {step.problem && <p class="failure-line"><Theirs text={step.problem} /></p>}
      {step.remedy && <p class="hint"><Theirs text={step.remedy} /></p>}
      {step.request && <Disclosure title={<>Request <code><Theirs text={`${step.request.method} ${step.request.url}`} /></code></>}><Headers title="Headers" items={step.request.headers} />{step.request.body && <TheirBlock text={step.request.body} />}</Disclosure>}
      {step.response && <Disclosure title={<>Answer {step.response.status}</>}><Headers title="Headers" items={step.response.headers} />{step.response.body && <Body text={step.response.body} />}</Disclosure>}
    </li>
  );
}

function Body({ text }: { text: string }): JSX.Element {
  try {
    return <JsonTree value={JSON.parse(text)} open={3} />;
  } catch {
    return <TheirBlock text={text} />;
  }
}
