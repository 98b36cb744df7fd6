// Doctor, lint, cost and permissions of one server.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, post } from "../api/http";
import { parseExact } from "../api/json";
import type { Check, Cost, DoctorReport, Failure, Finding, PermissionAnswer, Server } from "../api/types";
import { go, link } from "../state/route";
import { catalogOf, doctorOf, loadCatalog } from "../state/store";
import { count, plural } from "../ui/format";
import { Action, Badge, Disclosure, Empty, FailureBox, Labelled, Tabs, toFailure } from "../ui/parts";
import { Theirs } from "../ui/text";
import { useGrowing } from "../ui/virtual";
import { emptyReason, Findings } from "./catalog";

const PARTS = [["doctor", "Doctor"], ["lint", "Lint"], ["cost", "Cost"], ["permissions", "Permissions"]] as const;

export function ChecksPage({ server, tab = "doctor" }: { server: Server; tab?: string }): JSX.Element {
  return (
    <div class="page">
      <h1>Checks</h1>
      <Tabs label="Checks" current={tab} pick={(key) => go(["s", server.id, "checks", key])} items={PARTS.map(([key, label]) => ({ key, label }))} />
      {tab === "doctor" ? <Doctor server={server} /> : tab === "lint" ? <Lint server={server} /> : tab === "cost" ? <CostView server={server} /> : <Permissions server={server} />}
    </div>
  );
}

function useRead<T>(path: string, deps: unknown[]): { value: T | undefined; failure: Failure | undefined; reload: () => Promise<void> } {
  const [value, setValue] = useState<T | undefined>(undefined);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  const reload = async (): Promise<void> => {
    try {
      setValue(await get<T>(path));
      setFailure(undefined);
    } catch (error) {
      setFailure(toFailure(error));
    }
  };
  useEffect(() => void reload(), deps);
  return { value, failure, reload };
}

const TONE = { ok: "ok", warn: "warn", fail: "bad", skipped: "quiet" } as const;

function Doctor({ server }: { server: Server }): JSX.Element {
  const report = doctorOf(server.id);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (report.peek() === undefined) get<DoctorReport>(`/api/servers/${server.id}/doctor`).then((answer) => (report.value ??= answer), () => undefined);
  }, [server.id]);
  const run = async (): Promise<void> => {
    const { run: id } = await post<{ run: string }>(`/api/servers/${server.id}/doctor`);
    if (report.value?.run !== id) report.value = { run: id, done: false, healthy: true, counts: {}, checks: [] };
  };
  const current = report.value;
  const sections = [...new Set(current?.checks.map((check) => check.section) ?? [])];
  return (
    <>
      <p class="row wrap"><Action kind="primary" disabled={busy} run={async () => { setBusy(true); try { await run(); } finally { setBusy(false); } }}>Examine</Action>
        {current && <Badge tone={current.done ? (current.healthy ? "ok" : "bad") : "busy"}>{current.done ? (current.healthy ? "healthy" : "not healthy") : "examining"}</Badge>}
        {current && <span class="note inline">{plural(current.checks.length, "check")}</span>}</p>
      {!current && <Empty title="Not examined yet"><p>The doctor connects in every way it knows and says what it saw, why it matters and how to mend it.</p></Empty>}
      {sections.map((section) => (
        <section class="card" key={section} aria-label={section}>
          <h2><Theirs text={section} /></h2>
          <ul class="check-list">{current!.checks.filter((check) => check.section === section).map((check) => <CheckLine key={check.key} check={check} />)}</ul>
        </section>
      ))}
    </>
  );
}

function CheckLine({ check }: { check: Check }): JSX.Element {
  return (
    <li>
      <Badge tone={TONE[check.status]}>{check.status}</Badge> <strong><Theirs text={check.title} /></strong> <Theirs text={check.seen} />
      {check.status !== "ok" && check.why && <p class="note"><Theirs text={check.why} /></p>}
      {check.status !== "ok" && check.fix && <p class="hint"><Theirs text={check.fix} /></p>}
      {check.details.length > 0 && <Disclosure title="Details"><ul>{check.details.map((detail, index) => <li key={index}><Theirs text={detail} /></li>)}</ul></Disclosure>}
    </li>
  );
}

function Lint({ server }: { server: Server }): JSX.Element {
  const { value, failure } = useRead<{ findings: Finding[] }>(`/api/servers/${server.id}/lint`, [server.id, server.state]);
  if (failure) return <FailureBox failure={failure} />;
  if (!value) return <p class="note">Reading the definitions …</p>;
  if (!server.counts.tools) return <NoTools server={server} />;
  if (value.findings.length === 0) return <Empty title="Nothing found"><p>Every schema is sound, no provider refuses a tool, and no text hides characters.</p></Empty>;
  return <Findings items={value.findings} />;
}

function CostView({ server }: { server: Server }): JSX.Element {
  const { value, failure } = useRead<Cost>(`/api/servers/${server.id}/cost`, [server.id, server.state]);
  if (failure) return <FailureBox failure={failure} />;
  if (!value) return <p class="note">Counting …</p>;
  return server.counts.tools ? <CostTable server={server} value={value} /> : <NoTools server={server} />;
}

/** What nobody has read is neither sound nor cheap. */
const NoTools = ({ server }: { server: Server }): JSX.Element => <Empty title="No tools to examine"><p>{emptyReason(server, "tools")}</p></Empty>;

function CostTable({ server, value }: { server: Server; value: Cost }): JSX.Element {
  const tools = useMemo(() => [...value.tools].sort((a, b) => b.tokens - a.tokens), [value]);
  const most = Math.max(1, tools[0]?.tokens ?? 0);
  const shown = useGrowing(tools.length);
  return (
    <>
      <p class="lead"><strong>{count(value.total)}</strong> tokens in every request to a model ({value.counter}). Instructions: {count(value.instructions)}.</p>
      <div class="table-box" tabIndex={0} role="region" aria-label="Cost of each tool">
        <table class="data named"><thead><tr><th scope="col">tool</th><th scope="col" class="num">tokens</th><th scope="col" class="num">description</th><th scope="col" class="num">schema</th><th scope="col">share</th></tr></thead>
          <tbody>{tools.slice(0, shown).map((tool) => (
            <tr key={tool.name}><td><a href={link(["s", server.id, "tools", tool.name])}><Theirs text={tool.name} /></a></td><td class="num">{count(tool.tokens)}</td><td class="num">{count(tool.description)}</td><td class="num">{count(tool.schema)}</td><td><span class="bar" style={{ width: `${(tool.tokens / most) * 120}px` }} /></td></tr>
          ))}</tbody>
        </table>
      </div>
    </>
  );
}

function Permissions({ server }: { server: Server }): JSX.Element {
  const catalog = catalogOf(server.id).value;
  useEffect(() => void loadCatalog(server.id).catch(() => undefined), [server.id]);
  const names = catalog?.tools.map((tool) => String(tool.definition["name"])) ?? [];
  const [tool, setTool] = useState("");
  const [args, setArgs] = useState("{}");
  const [allow, setAllow] = useState("");
  const [ask, setAsk] = useState("");
  const [deny, setDeny] = useState("");
  const [answer, setAnswer] = useState<PermissionAnswer | undefined>(undefined);
  const lines = (text: string): string[] => text.split("\n").map((line) => line.trim()).filter(Boolean);
  const picked = tool || names[0] || "";
  const explain = async (): Promise<void> => setAnswer(await post<PermissionAnswer>(`/api/servers/${server.id}/permissions`, { tool: picked, arguments: parseExact(args), rules: { allow: lines(allow), ask: lines(ask), deny: lines(deny) } }));
  const rules = (label: string, value: string, set: (text: string) => void): JSX.Element => <div class="field"><div class="field-head"><label for={`rules-${label}`}>{label}, one rule per line</label></div><textarea id={`rules-${label}`} class="code" rows={2} value={value} onInput={(event) => set(event.currentTarget.value)} /></div>;
  return (
    <>
      <p class="lead">Which rule decides about a call, and why. The rules of your mcp.toml hold; add others to see what they would change.</p>
      <div class="columns">
        <div class="fields">
          <Labelled id="perm-tool" label="Tool"><select id="perm-tool" value={picked} onChange={(event) => setTool(event.currentTarget.value)}>{names.map((name) => <option key={name} value={name}>{name}</option>)}</select></Labelled>
          <Labelled id="perm-args" label="Arguments"><textarea id="perm-args" class="code" rows={2} value={args} onInput={(event) => setArgs(event.currentTarget.value)} /></Labelled>
        </div>
        <div class="fields">{rules("allow", allow, setAllow)}{rules("ask", ask, setAsk)}{rules("deny", deny, setDeny)}</div>
      </div>
      <p><Action kind="primary" disabled={picked === ""} run={explain}>Explain</Action></p>
      {answer && (
        <section class="card" aria-label="Verdict" aria-live="polite">
          <p class="verdict"><Badge tone={answer.action === "allow" ? "ok" : answer.action === "ask" ? "warn" : "bad"}>{answer.action}</Badge> <code><Theirs text={answer.act} /></code></p>
          {answer.problems.map((problem, index) => <pre key={index} class="field-error" tabIndex={0}><Theirs text={problem} /></pre>)}
          <table class="plain"><thead><tr><th scope="col">rules of</th><th scope="col">say</th><th scope="col">by the rule</th><th scope="col">which matches</th><th scope="col">in</th></tr></thead><tbody>{answer.verdicts.map((verdict, index) => <tr key={index} class={verdict.decides ? "decides" : ""}><th scope="row"><Theirs text={verdict.tier} /></th><td><Badge>{verdict.action}</Badge></td><td><code><Theirs text={verdict.rule} /></code></td><td><Theirs text={verdict.match} /></td><td class="faint"><Theirs text={verdict.where} /></td></tr>)}</tbody></table>
        </section>
      )}
    </>
  );
}
