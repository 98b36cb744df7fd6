// The same call under other conditions, one click each, and what differs.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post } from "../api/http";
import type { Failure, JsonObject, Outcome, Server, TryResult } from "../api/types";
import { RawJson } from "../results/content";
import { calls, callDetails, loadCall } from "../state/store";
import { duration } from "../ui/format";
import { Badge, Diff, Disclosure, Empty, Facts, FailureBox, toFailure } from "../ui/parts";
import { Theirs } from "../ui/text";

interface Experiment {
  what: string;
  value?: string;
  title: string;
  text: string;
}
const REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

function experiments(server: Server): Experiment[] {
  const other = server.era === "modern" ? "legacy" : "modern";
  return [
    { what: other, title: "The other era", text: other === "legacy" ? "With a session, as before 2026" : "Stateless, as 2026-07-28 is" },
    ...REVISIONS.filter((revision) => revision !== server.revision).map((revision) => ({ what: "revision", value: revision, title: `Revision ${revision}`, text: "Ask for this one and see what is agreed" })),
    { what: "no-elicitation", title: "No elicitation", text: "A client that cannot be asked" },
    { what: "no-sampling", title: "No sampling", text: "A client without a model" },
    { what: "no-roots", title: "No roots", text: "A client without folders" },
    { what: "no-capabilities", title: "No capabilities", text: "The barest client there is" },
    ...(server.transport === "stdio" ? [] : [{ what: "no-token", title: "No token", text: "Is it guarded, and does it say so?" }]),
    { what: "slow", title: "A slow network", text: "Two seconds before each message" },
    { what: "cut", title: "A cut stream", text: "The answer breaks off in the middle" },
    { what: "restart", title: "A restarted server", text: "Between connecting and the call" },
  ];
}

export function TryPage({ server }: { server: Server }): JSX.Element {
  const [call, setCall] = useState("");
  const [busy, setBusy] = useState<string | undefined>(undefined);
  const [result, setResult] = useState<TryResult | undefined>(undefined);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  const past = calls.value.filter((row) => row.server === server.id && row.by === "page" && row.kind !== "request").slice(-20).reverse();
  const run = async (experiment: Experiment): Promise<void> => {
    setBusy(`${experiment.what} ${experiment.value ?? ""}`);
    setFailure(undefined);
    setResult(undefined);
    try {
      let replay: JsonObject | undefined;
      if (call !== "") {
        await loadCall(call);
        const detail = callDetails(call).value!;
        replay = { kind: detail.kind, name: detail.name, arguments: detail.arguments };
      }
      setResult(await post<TryResult>(`/api/servers/${server.id}/try`, { what: experiment.what, ...(experiment.value ? { value: experiment.value } : {}), ...(replay ? { call: replay } : {}) }));
    } catch (error) {
      setFailure(toFailure(error));
    } finally {
      setBusy(undefined);
    }
  };
  return (
    <div class="page">
      <h1>Try it differently</h1>
      <p class="lead">Connect to <Theirs text={server.name} /> once as now and once under another condition, and compare.</p>
      <div class="field inline-field"><label for="try-call">With the call</label>
        <select id="try-call" value={call} onChange={(event) => setCall(event.currentTarget.value)}>
          <option value="">none: connect and list the tools</option>
          {past.map((row) => <option key={row.id} value={row.id}>{row.name}</option>)}
        </select>
      </div>
      <div class="tiles">
        {experiments(server).map((experiment) => {
          const key = `${experiment.what} ${experiment.value ?? ""}`;
          return <button type="button" class="tile" key={key} disabled={busy !== undefined} aria-busy={busy === key} onClick={() => void run(experiment)}><strong>{experiment.title}</strong><span>{busy === key ? "Trying …" : experiment.text}</span></button>;
        })}
      </div>
      <div aria-live="polite">
        {failure && <FailureBox failure={failure} />}
        {result ? <TryView result={result} /> : !busy && !failure && <Empty title="Nothing tried yet"><p>Pick a condition. It takes a few seconds and leaves your own connection alone.</p></Empty>}
      </div>
    </div>
  );
}

function TryView({ result }: { result: TryResult }): JSX.Element {
  return (
    <section aria-label="Difference" class="try-result">
      <p class="verdict"><Badge tone={result.same ? "ok" : result.variant.ok ? "warn" : "bad"}>{result.same ? "same" : "differs"}</Badge> <Theirs text={result.verdict} /></p>
      <div class="columns"><OutcomeCard outcome={result.baseline} /><OutcomeCard outcome={result.variant} /></div>
      {result.difference.length > 0 && <><h2>Difference</h2><Diff lines={result.difference} /></>}
    </section>
  );
}

function OutcomeCard({ outcome }: { outcome: Outcome }): JSX.Element {
  return (
    <section class="card" aria-label={outcome.title}>
      <header class="row"><h2><Theirs text={outcome.title} /></h2><span class="grow" /><Badge tone={outcome.ok ? "ok" : "bad"}>{outcome.ok ? "works" : "fails"}</Badge></header>
      <Facts items={[["era", outcome.era], ["revision", outcome.revision], ["connected in", duration(outcome.connectMs)], ["called in", duration(outcome.callMs)], ["tools", outcome.tools ? String(outcome.tools.length) : undefined]]} />
      {outcome.failure && <FailureBox failure={outcome.failure} />}
      {outcome.events.length > 0 && <ol class="steps">{outcome.events.map((event, index) => <li key={index}><Theirs text={event} /></li>)}</ol>}
      {outcome.result !== undefined && <Disclosure title="Result"><RawJson value={outcome.result} name="outcome" /></Disclosure>}
    </section>
  );
}
