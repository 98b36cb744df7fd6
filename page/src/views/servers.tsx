// All servers at once, how to add one, and everything about one of them: state, revision, capabilities, instructions, story.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, post, request } from "../api/http";
import { asObject, isObject } from "../api/json";
import type { CatalogKind, NewServer, Server, ServerOptions, Source } from "../api/types";
import { JsonTree } from "../results/tree";
import { go, link } from "../state/route";
import { activitiesOf, loadActivities, servers } from "../state/store";
import { duration, plural, time } from "../ui/format";
import { Action, ActivityBadge, Badge, complain, Disclosure, Elapsed, Empty, Facts, FailureBox, Labelled, OutsideLink, say, StateBadge } from "../ui/parts";
import { Theirs } from "../ui/text";
import { WORDS } from "./catalog";
import { Stderr } from "./dock";

export function ServersPage(): JSX.Element {
  return (
    <div class="page">
      <h1>Servers</h1>
      {servers.value.length === 0 ? (
        <Empty title="No server yet"><p>Type a URL or a command below, or pick one that another program on this machine has configured.</p></Empty>
      ) : (
        <div class="cards">{servers.value.map((server) => <ServerCard key={server.id} server={server} />)}</div>
      )}
      <AddServer />
      <Sources />
    </div>
  );
}

const MB = 1024 * 1024;
const KINDS: CatalogKind[] = ["tools", "resources", "templates", "prompts", "skills", "tasks"];

function ServerCard({ server }: { server: Server }): JSX.Element {
  return (
    <article class="card" aria-label={server.name}>
      <header class="row"><h2><a href={link(["s", server.id])}><Theirs text={server.name} /></a></h2><span class="grow" /><StateBadge state={server.state} /></header>
      {server.info && <p class="note">says it is <Theirs text={server.info.title ?? server.info.name} /> <Theirs text={server.info.version} /></p>}
      <p class="target"><code><Theirs text={server.target} /></code></p>
      <p class="row wrap">
        {server.era && <Badge tone="accent">{server.era} {server.revision}</Badge>}
        <Badge>{server.transport}</Badge>
        {server.connections > 1 && <Badge tone="warn">connected {server.connections} times</Badge>}
        {server.connectMs !== undefined && <span class="note inline">in {duration(server.connectMs)}</span>}
      </p>
      <Waiting server={server} />
      {server.failure && <FailureBox failure={server.failure} />}
      <p class="row wrap counts">{KINDS.filter((kind) => server.counts[kind]).map((kind) => <a key={kind} href={link(["s", server.id, kind])}>{plural(server.counts[kind] ?? 0, ...WORDS[kind])}</a>)}</p>
      <ServerButtons server={server} />
    </article>
  );
}

/** A server that hangs says nothing: the page does. */
function Waiting({ server }: { server: Server }): JSX.Element | null {
  if (server.connectingSince === undefined) return null;
  return <p class="note">No answer yet, for <Elapsed since={server.connectingSince} />. It has {duration(server.options.timeout)}.{server.stderrLines > 0 && <> It wrote {plural(server.stderrLines, "line")} to <a href={link(["s", server.id])}>stderr</a>.</>} <a href={link(["s", server.id, "checks"])}>Ask the doctor</a></p>;
}

function ServerButtons({ server }: { server: Server }): JSX.Element {
  const path = `/api/servers/${server.id}`;
  const wantsLogin = server.state === "needs-auth" || server.failure?.blame === "auth";
  const live = server.state === "ready" || server.state === "connecting" || server.state === "reconnecting";
  return (
    <p class="row wrap">
      {live ? <Action kind="small" run={() => post(`${path}/disconnect`)}>Disconnect</Action> : <Action kind={`small ${wantsLogin ? "" : "primary"}`} run={() => post(`${path}/connect`)}>Connect</Action>}
      {live && <Action kind="small" run={() => post(`${path}/restart`)}>Restart</Action>}
      {server.state === "ready" && <Action kind="small ghost" run={() => post<{ ms: number }>(`${path}/ping`).then((answer) => say(`Answered in ${duration(answer.ms)}`))}>Ping</Action>}
      {wantsLogin && <a class="button small primary" href={link(["s", server.id, "auth"])}>Log in, step by step</a>}
      {server.state === "failed" && <a class="button small" href={link(["s", server.id, "checks"])}>Ask the doctor</a>}
      <Action kind="small ghost" run={() => request("DELETE", path)}>Remove</Action>
    </p>
  );
}

function AddServer(): JSX.Element {
  const [target, setTarget] = useState("");
  const [bearer, setBearer] = useState("");
  const [headers, setHeaders] = useState("");
  const [env, setEnv] = useState("");
  const [era, setEra] = useState<ServerOptions["era"]>("auto");
  const add = async (): Promise<void> => {
    const body: NewServer = { target, ...(bearer ? { bearer } : {}), ...(headers ? { headers: pairs(headers, ":") } : {}), ...(env ? { env: pairs(env, "=") } : {}), ...(era !== "auto" ? { options: { era } } : {}) };
    const server = await post<Server>("/api/servers", body);
    setTarget("");
    go(["s", server.id]);
  };
  return (
    <form class="card" aria-label="Add a server" onSubmit={(event) => { event.preventDefault(); if (target) void add().catch(complain); }}>
      <h2>Add a server</h2>
      <div class="row">
        <label class="visually-hidden" for="target">URL or command</label>
        <input id="target" type="text" class="code grow" placeholder="http://localhost:9090/mcp, or: npx -y some-server, or: server.py" value={target} onInput={(event) => setTarget(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={target === ""}>Connect</button>
      </div>
      <Disclosure title="Headers, token, environment, era">
        <Labelled id="bearer" label="Bearer token"><input id="bearer" type="password" autocomplete="off" value={bearer} onInput={(event) => setBearer(event.currentTarget.value)} /></Labelled>
        <Labelled id="headers" label="Headers, one per line"><textarea id="headers" class="code" rows={2} placeholder="X-Api-Key: ..." value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} /></Labelled>
        <Labelled id="env" label="Environment, one per line"><textarea id="env" class="code" rows={2} placeholder="NAME=value" value={env} onInput={(event) => setEnv(event.currentTarget.value)} /></Labelled>
        <Labelled id="era" label="Era"><select id="era" value={era} onChange={(event) => setEra(event.currentTarget.value as ServerOptions["era"])}><option value="auto">negotiate</option><option value="modern">modern only</option><option value="legacy">legacy only</option></select></Labelled>
      </Disclosure>
    </form>
  );
}

function pairs(text: string, separator: string): Record<string, string> {
  return Object.fromEntries(text.split("\n").flatMap((line) => {
    const at = line.indexOf(separator);
    return at > 0 ? [[line.slice(0, at).trim(), line.slice(at + 1).trim()]] : [];
  }));
}

function Sources(): JSX.Element {
  const [sources, setSources] = useState<Source[] | undefined>(undefined);
  const load = (): Promise<void> => get<{ sources: Source[] }>("/api/sources").then((answer) => setSources(answer.sources));
  useEffect(() => void load().catch(complain), []);
  if (!sources || sources.length === 0) return <p class="note">{sources ? "No other program on this machine has servers configured." : "Looking for configured servers …"}</p>;
  return (
    <section class="card" aria-label="Configured servers">
      <header class="row"><h2>Configured on this machine</h2><span class="grow" /><Action kind="small ghost" run={load}>Look again</Action></header>
      <div class="table-box" tabIndex={0} role="region" aria-label="Configured servers">
        <table class="data"><thead><tr><th scope="col">name</th><th scope="col">program</th><th scope="col">target</th><th scope="col"><span class="visually-hidden">action</span></th></tr></thead>
          <tbody>{sources.map((source) => (
            <tr key={source.key}><td><Theirs text={source.name} /></td><td title={source.file}><Theirs text={source.program} /></td><td><code><Theirs text={source.target} /></code>{source.problem && <p class="field-error"><Theirs text={source.problem} /></p>}</td>
              <td>{source.used ? <a href={link(["s", source.used])}>open</a> : <Action kind="small" label={`Add ${source.name}`} disabled={source.problem !== undefined} run={() => post<Server>("/api/servers", { source: source.key }).then((server) => go(["s", server.id]))}>Add</Action>}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

export function ServerPage({ server }: { server: Server }): JSX.Element {
  const title = server.info?.title ?? server.info?.name;
  return (
    <div class="page">
      <header class="row wrap"><h1><Theirs text={server.name} /></h1><StateBadge state={server.state} /></header>
      <Waiting server={server} />
      {server.failure && <FailureBox failure={server.failure} />}
      <ServerButtons server={server} />
      <div class="columns">
        <section class="card" aria-label="About">
          <h2>About</h2>
          <Facts items={[
            ["says it is", title && <><Theirs text={title} /> <Theirs text={server.info?.version} class="faint" /></>],
            ["website", server.info?.websiteUrl && <OutsideLink url={server.info.websiteUrl} />],
            ["target", <code class="break"><Theirs text={server.target} /></code>],
            ["from", `${server.source.label || server.source.kind}`],
            ["transport", server.transport], ["era", server.era && <Badge tone="accent">{server.era}</Badge>], ["revision", server.revision],
            ["session", server.sessionId && <code>{server.sessionId}</code>], ["process", server.pid !== undefined ? String(server.pid) : undefined],
            ["connected", server.connectedAt !== undefined ? `${time(server.connectedAt)}, in ${duration(server.connectMs)}` : undefined],
            ["connections", server.connections > 1 ? `${server.connections} (restarted or reconnected ${plural(server.connections - 1, "time")})` : undefined],
            ["tokens", server.tokens !== undefined ? <a href={link(["s", server.id, "checks", "cost"])}>{plural(server.tokens, "token")} for all tools</a> : undefined],
          ]} />
        </section>
        <section class="card" aria-label="Capabilities">
          <h2>Capabilities</h2>
          {server.capabilities ? <Capabilities value={server.capabilities} /> : <p class="note">Known once it is connected.</p>}
          <Disclosure title="What we declare to it"><JsonTree value={server.clientCapabilities} /></Disclosure>
        </section>
      </div>
      {server.instructions && <section class="card" aria-label="Instructions"><h2>Instructions for the model</h2><p class="their-words instructions" tabIndex={0}><Theirs text={server.instructions} /></p></section>}
      <Options server={server} />
      <Story server={server} />
      {server.transport === "stdio" && <section class="card" aria-label="stderr"><h2>stderr</h2><Stderr server={server} /></section>}
    </div>
  );
}

function Capabilities({ value }: { value: Record<string, unknown> }): JSX.Element {
  const names = Object.keys(value);
  if (names.length === 0) return <p class="note">It declares none.</p>;
  return (
    <>
      <p class="row wrap">{names.map((name) => {
        const flags = Object.entries(asObject(value[name])).filter(([, on]) => on === true || isObject(on)).map(([flag]) => flag);
        return <Badge key={name} tone="accent"><Theirs text={name} />{flags.length > 0 && <span class="flags"> <Theirs text={flags.join(", ")} /></span>}</Badge>;
      })}</p>
      <Disclosure title="As it came"><JsonTree value={asObject(value)} /></Disclosure>
    </>
  );
}

function Options({ server }: { server: Server }): JSX.Element {
  const options = server.options;
  const change = (changes: Partial<ServerOptions>): Promise<unknown> => request("PATCH", `/api/servers/${server.id}`, { options: changes }).catch(complain);
  const toggle = (name: "elicitation" | "sampling" | "roots"): JSX.Element => <label class="check"><input type="checkbox" checked={options[name]} onChange={(event) => void change({ [name]: event.currentTarget.checked })} />{name}</label>;
  const [roots, setRoots] = useState(server.roots.map((root) => root.uri).join("\n"));
  return (
    <Disclosure title="Options of the connection">
      <div class="columns">
        <div>
          <Labelled id="opt-era" label="Era"><select id="opt-era" value={options.era} onChange={(event) => void change({ era: event.currentTarget.value as ServerOptions["era"] })}><option value="auto">negotiate</option><option value="modern">modern only</option><option value="legacy">legacy only</option></select></Labelled>
          <Labelled id="opt-timeout" label="Timeout, seconds"><input id="opt-timeout" type="text" inputMode="decimal" value={String(options.timeout / 1000)} onChange={(event) => { const seconds = Number(event.currentTarget.value); if (seconds > 0) void change({ timeout: seconds * 1000 }); }} /></Labelled>
          <Labelled id="opt-bytes" label="Largest message, MB (max_message_bytes), from the next connection on"><input id="opt-bytes" type="text" inputMode="decimal" value={String(options.maxMessageBytes / MB)} onChange={(event) => { const megabytes = Number(event.currentTarget.value); if (megabytes > 0) void change({ maxMessageBytes: Math.round(megabytes * MB) }); }} /></Labelled>
          <Labelled id="opt-log" label="Log level"><select id="opt-log" value={options.logLevel ?? ""} onChange={(event) => void change({ logLevel: event.currentTarget.value || null })}><option value="">the server's own</option>{["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"].map((level) => <option key={level} value={level}>{level}</option>)}</select></Labelled>
        </div>
        <div>
          <p class="note">Capabilities that we declare, from the next connection on:</p>
          <p class="row wrap">{toggle("elicitation")}{toggle("sampling")}{toggle("roots")}</p>
          <Labelled id="opt-roots" label="Roots, one URI per line"><textarea id="opt-roots" class="code" rows={2} value={roots} onInput={(event) => setRoots(event.currentTarget.value)} /></Labelled>
          <Action kind="small" run={() => request("PATCH", `/api/servers/${server.id}`, { roots: roots.split("\n").filter(Boolean).map((uri) => ({ uri: uri.trim() })) }).then(() => say("Roots changed"))}>Set roots</Action>
        </div>
      </div>
    </Disclosure>
  );
}

function Story({ server }: { server: Server }): JSX.Element {
  const lines = activitiesOf(server.id);
  void lines.version.value;
  useEffect(() => loadActivities(server.id), [server.id]);
  const items = lines.items;
  return (
    <section class="card" aria-label="Story of the connection">
      <h2>Story of the connection</h2>
      <ol class="steps">{items.slice(-100).map((item, index) => <li key={index}><span class="num">{time(item.at)}</span> <ActivityBadge activity={item} /> <Theirs text={item.text} /></li>)}</ol>
      {items.length === 0 && <p class="note">Nothing happened yet.</p>}
    </section>
  );
}
