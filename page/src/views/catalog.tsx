// The tools, resources, templates, prompts, skills and tasks of a server: a list to search, and a workbench for the one picked.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, part, post, query, request } from "../api/http";
import { asList, asObject, asText, isObject } from "../api/json";
import type { Catalog, CatalogKind, Failure, Finding, Json, JsonObject, Server, Task, ToolEntry } from "../api/types";
import type { Suggest } from "../forms/form";
import { couldBe, expand, variables } from "../forms/uri-template";
import { Markdown } from "../results/markdown";
import { JsonTree } from "../results/tree";
import { go, link } from "../state/route";
import { catalogOf, loadCatalog, updatedResources } from "../state/store";
import { bytes, plural, shortTime } from "../ui/format";
import { Action, Badge, Disclosure, Empty, Facts, FailureBox, OutsideLink, toFailure } from "../ui/parts";
import { hasHidden, Theirs } from "../ui/text";
import { useGrowing, VirtualList } from "../ui/virtual";
import { Runner } from "./runner";
import { RequestBench } from "./request-bench";

interface Entry {
  key: string;
  title: string;
  text: string;
  badge?: JSX.Element;
  isRepeated?: boolean;
}

export const WORDS: Record<CatalogKind, [string, string]> = {
  tools: ["tool", "tools"], resources: ["resource", "resources"], templates: ["template", "templates"], prompts: ["prompt", "prompts"], skills: ["skill", "skills"], tasks: ["task", "tasks"],
};

export function CatalogPage({ server, kind, picked }: { server: Server; kind: CatalogKind; picked: string | undefined }): JSX.Element {
  const catalog = catalogOf(server.id).value;
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  useEffect(() => {
    if (server.state === "ready" || catalogOf(server.id).peek() === undefined) loadCatalog(server.id).then(() => setFailure(undefined), (error) => setFailure(toFailure(error)));
  }, [server.id, server.state]);
  const entries = useMemo(() => (catalog ? markRepeated(listEntries(catalog, kind)) : []), [catalog, kind]);
  if (!catalog && server.failure && server.state !== "ready") return <NothingPicked server={server} kind={kind} count={0} />;
  if (!catalog) return <div class="page">{failure ? <FailureBox failure={failure} /> : <p class="note">Reading the {WORDS[kind][1]} …</p>}</div>;
  return (
    <div class={`workbench ${picked === undefined ? "nothing-picked" : ""}`}>
      {picked === undefined && <h1 class="visually-hidden">{WORDS[kind][1]}</h1>}
      <EntryList server={server} kind={kind} entries={entries} picked={picked} catalog={catalog} />
      {picked === undefined ? <NothingPicked server={server} kind={kind} count={entries.length} failure={catalog.errors[kind]} /> : <Detail key={`${kind} ${picked}`} server={server} kind={kind} name={picked} catalog={catalog} />}
    </div>
  );
}

function listEntries(catalog: Catalog, kind: CatalogKind): Entry[] {
  switch (kind) {
    case "tools":
      return catalog.tools.map((tool) => ({ key: nameOf(tool.definition), title: nameOf(tool.definition), text: asText(tool.definition["description"]) ?? "", badge: <ToolBadges tool={tool} /> }));
    case "resources":
      return catalog.resources.map((item) => ({ key: asText(item["uri"]) ?? "", title: asText(item["title"]) ?? asText(item["name"]) ?? "", text: asText(item["uri"]) ?? "" }));
    case "templates":
      return catalog.templates.map((item) => ({ key: asText(item["uriTemplate"]) ?? "", title: asText(item["title"]) ?? asText(item["name"]) ?? "", text: asText(item["uriTemplate"]) ?? "" }));
    case "tasks":
      return catalog.tasks.map((task) => ({ key: task.id, title: task.id, text: task.statusMessage ?? task.status, badge: <Badge>{task.status}</Badge> }));
    case "skills":
      return catalog.skills.map((item) => ({ key: asText(item["uri"]) ?? "", title: nameOf(asObject(item["frontmatter"])), text: asText(asObject(item["frontmatter"])["description"]) ?? "" }));
    case "prompts":
      return catalog.prompts.map((item) => ({ key: nameOf(item), title: nameOf(item), text: asText(item["description"]) ?? "" }));
  }
}

function markRepeated(entries: Entry[]): Entry[] {
  const seen = new Set<string>();
  for (const entry of entries) {
    if (seen.has(entry.key)) entry.isRepeated = true;
    seen.add(entry.key);
  }
  return entries;
}

const nameOf = (item: JsonObject): string => asText(item["name"]) ?? "";
const worst = (findings: readonly Finding[]): Finding["severity"] | undefined => (["fail", "warn"] as const).find((severity) => findings.some((finding) => finding.severity === severity));

function ToolBadges({ tool }: { tool: ToolEntry }): JSX.Element {
  const severity = worst(tool.problems);
  return (
    <>
      {tool.app && <Badge tone="accent">app</Badge>}
      {severity && <span class={`dot ${severity === "fail" ? "bad" : "warn"}`} role="img" aria-label={plural(tool.problems.length, "finding")} title={tool.problems[0]?.problem} />}
      <span class="num faint" title="Tokens that this definition costs a model">{tool.tokens}</span>
    </>
  );
}

const ROW = 44;

function EntryList({ server, kind, entries, picked, catalog }: { server: Server; kind: CatalogKind; entries: Entry[]; picked?: string; catalog: Catalog }): JSX.Element {
  const [text, setText] = useState("");
  const box = useRef<HTMLInputElement>(null);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = useMemo(() => entries.filter((entry) => words.every((word) => `${entry.title} ${entry.text}`.toLowerCase().includes(word))), [entries, text]);
  const pick = (index: number): void => {
    const entry = shown[index];
    if (entry) go(["s", server.id, kind, entry.key]);
  };
  return (
    <section class="pane list-pane" aria-label={`List of ${WORDS[kind][1]}`}>
      <div class="list-tools">
        <input ref={box} type="search" class="search" data-search placeholder={`Search ${plural(entries.length, ...WORDS[kind])}  /`} aria-label={`Search ${WORDS[kind][1]}`} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter") pick(0); }} />
        <Action kind="small ghost" title="Read the list again from the server" label="Read again" run={() => post(`/api/servers/${server.id}/catalog`, { kinds: [kind] }).then(() => loadCatalog(server.id))}>↻</Action>
      </div>
      {catalog.errors[kind] && <div class={picked === undefined ? "narrow-only" : ""}><FailureBox failure={catalog.errors[kind]} /></div>}
      <VirtualList
        id={`list-${kind}`} label={WORDS[kind][1]} items={shown} height={ROW} keyOf={(_, index) => index} selected={shown.findIndex((entry) => entry.key === picked)} onSelect={pick}
        empty={<Empty title={entries.length > 0 ? "Nothing matches" : `No ${WORDS[kind][1]}`}><p class={entries.length > 0 ? "" : "narrow-only"}>{entries.length > 0 ? "Try fewer words." : catalog.errors[kind] ? "The list could not be read." : emptyReason(server, kind)}</p></Empty>}
        row={(entry) => (
          <div class="entry">
            <div class="entry-line">{entry.title === "" ? <span class="entry-title faint">(no name)</span> : <Theirs text={entry.title} class="entry-title" />}{entry.isRepeated && <Badge tone="bad" title="The server lists this name more than once; only the first can be called">again</Badge>}<span class="grow" />{entry.badge}</div>
            <div class="entry-text"><Theirs text={entry.text.slice(0, 160)} /></div>
          </div>
        )}
      />
      <CacheHint catalog={catalog} kind={kind} />
    </section>
  );
}

function CacheHint({ catalog, kind }: { catalog: Catalog; kind: CatalogKind }): JSX.Element | null {
  const at = catalog.readAt[kind];
  const hint = catalog.cacheHints[kind];
  if (at === undefined) return null;
  return <p class="list-foot">read {shortTime(at)}{hint?.ttlMs !== undefined ? ` · fresh for ${Math.round(hint.ttlMs / 1000)} s` : ""}{hint?.scope ? ` · ${hint.scope}` : ""}</p>;
}

export function emptyReason(server: Server, kind: CatalogKind): string {
  if (server.state === "connecting") return "The server has not answered yet.";
  if (server.state !== "ready") return "The server is not connected.";
  const capability = kind === "templates" ? "resources" : kind;
  const isDeclared = Object.hasOwn(server.capabilities ?? {}, capability) || Object.keys(asObject(server.capabilities?.["extensions"])).some((name) => name.endsWith(`/${capability}`));
  if (kind !== "skills" && !isDeclared) return `The server does not declare the capability "${capability}".`;
  return kind === "tasks" ? "No call of this inspector has become a task yet." : "The server lists none.";
}

function NothingPicked({ server, kind, count, failure }: { server: Server; kind: CatalogKind; count: number; failure?: Failure }): JSX.Element {
  if (server.failure && server.state !== "ready")
    return (
      <section class="pane wide-pane" aria-label="Nothing picked">
        <FailureBox failure={server.failure}>
          <p class="row wrap">
            <Action run={() => post(`/api/servers/${server.id}/connect`)}>Connect again</Action>
            {(server.state === "needs-auth" || server.failure.blame === "auth") && <a class="button primary" href={link(["s", server.id, "auth"])}>Log in, step by step</a>}
            <a class="button" href={link(["s", server.id, "checks"])}>Ask the doctor</a>
            <a class="button" href={link(["s", server.id])}>About this server</a>
          </p>
        </FailureBox>
      </section>
    );
  return (
    <section class="pane wide-pane" aria-label="Nothing picked">
      {failure ? <FailureBox failure={failure} /> : <Empty title={count > 0 ? `Pick one of ${plural(count, ...WORDS[kind])}` : `No ${WORDS[kind][1]}`}><p>{count > 0 ? "Arrow keys move in the list; / searches; Ctrl+K goes anywhere." : emptyReason(server, kind)}</p></Empty>}
    </section>
  );
}

function Detail({ server, kind, name, catalog }: { server: Server; kind: CatalogKind; name: string; catalog: Catalog }): JSX.Element {
  switch (kind) {
    case "tools": {
      const tool = catalog.tools.find((entry) => nameOf(entry.definition) === name);
      return tool ? <ToolBench server={server} tool={tool} /> : <Missing kind={kind} name={name} server={server} />;
    }
    case "prompts": {
      const prompt = catalog.prompts.find((item) => nameOf(item) === name);
      return prompt ? <PromptBench server={server} prompt={prompt} /> : <Missing kind={kind} name={name} server={server} />;
    }
    case "templates": {
      const template = catalog.templates.find((item) => item["uriTemplate"] === name);
      return template ? <TemplateBench server={server} template={template} /> : <Missing kind={kind} name={name} server={server} />;
    }
    case "skills": return <SkillPage server={server} uri={name} definition={catalog.skills.find((item) => item["uri"] === name)} />;
    case "tasks": return <TaskPage server={server} id={name} task={catalog.tasks.find((task) => task.id === name)} />;
    case "resources": return <ResourceBench server={server} uri={name} resource={catalog.resources.find((item) => item["uri"] === name)} />;
  }
}

function Missing({ server, kind, name }: { server: Server; kind: CatalogKind; name: string }): JSX.Element {
  return <section class="pane wide-pane"><Empty title={`No ${WORDS[kind][0]} of this name`}><p>The server does not list <code><Theirs text={name} /></code>. {kind === "tools" && "You can still call it."}</p>{kind === "tools" && <RequestBench server={server} method="tools/call" params={{ name, arguments: {} }} />}</Empty></section>;
}

function Head({ server, kind, title, name, description, children, back }: { server: Server; kind: CatalogKind; title?: string; name: string; description?: string; children?: ComponentChildren; back?: boolean }): JSX.Element {
  return (
    <header class="bench-head">
      {back !== false && <a class="back" href={link(["s", server.id, kind])}>← all {WORDS[kind][1]}</a>}
      <h1>{name === "" ? <span class="faint">(no name)</span> : <Theirs text={name} />}</h1>
      {title && title !== name && <p class="bench-title"><Theirs text={title} /></p>}
      {description && <p class="their-words description" tabIndex={description.length > 400 ? 0 : undefined}><Theirs text={description} /></p>}
      {(hasHidden(name) || hasHidden(description ?? "")) && <p><Badge tone="bad">This text hides characters; they are marked above</Badge></p>}
      {children}
    </header>
  );
}

const HINTS: [string, boolean, string][] = [
  ["readOnlyHint", true, "read only"], ["destructiveHint", true, "destructive"], ["idempotentHint", true, "idempotent"], ["openWorldHint", true, "open world"],
];

function ToolBench({ server, tool }: { server: Server; tool: ToolEntry }): JSX.Element {
  const definition = tool.definition;
  const annotations = asObject(definition["annotations"]);
  const name = nameOf(definition);
  const schema = isObject(definition["inputSchema"]) ? definition["inputSchema"] : {};
  return (
    <Runner
      server={server.id} kind="tool" name={name} schema={schema} checked mayBeTask={tool.longRunning} runLabel="Run tool"
      head={
        <Head server={server} kind="tools" name={name} title={asText(definition["title"]) ?? asText(annotations["title"])} description={asText(definition["description"])}>
          <p class="row wrap">
            {HINTS.filter(([key, value]) => annotations[key] === value).map(([key, , text]) => <Badge key={key} title={`annotations.${key}`}>{text}</Badge>)}
            {tool.app && <Badge tone="accent" title={tool.app.uri}>MCP App</Badge>}
            {tool.longRunning && <Badge>may run as a task</Badge>}
            {tool.hidden && <Badge tone="bad" title="Our client does not offer this tool to a model">withheld</Badge>}
            <Badge title="What this definition costs a model in every request">{plural(tool.tokens, "token")}</Badge>
          </p>
        </Head>
      }
      foot={
        <>
          {tool.problems.length > 0 && <Disclosure title={`${plural(tool.problems.length, "finding")} about this definition`} open={worst(tool.problems) === "fail"}><Findings items={tool.problems} /></Disclosure>}
          <Disclosure title="Definition"><JsonTree value={definition} open={2} /></Disclosure>
        </>
      }
    />
  );
}

const SEVERITIES: Record<Finding["severity"], ["bad" | "warn" | "quiet", number]> = { fail: ["bad", 0], warn: ["warn", 1], info: ["quiet", 2] };
const PROVIDERS: Record<string, string> = { anthropic: "Anthropic", openai: "OpenAI", gemini: "Gemini" };

/** The worst first; what is wrong in many places is said once. */
export function Findings({ items }: { items: readonly Finding[] }): JSX.Element {
  const groups = useMemo(() => {
    const alike = Map.groupBy(items, ({ severity, source, problem, remedy }) => JSON.stringify([severity, source, problem, remedy]));
    return [...alike.values()].sort(([a], [b]) => SEVERITIES[a!.severity][1] - SEVERITIES[b!.severity][1]);
  }, [items]);
  const shown = useGrowing(groups.length);
  const where = ({ tool, where }: Finding): JSX.Element => <code><Theirs text={[tool, where].filter(Boolean).join(" ")} /></code>;
  return (
    <ul class="findings">
      {groups.slice(0, shown).map((group) => {
        const [finding] = group as [Finding];
        return (
          <li key={`${finding.severity} ${finding.source} ${finding.problem} ${finding.remedy}`}>
            <Badge tone={SEVERITIES[finding.severity][0]}>{finding.severity}</Badge> {PROVIDERS[finding.source] && <Badge>{PROVIDERS[finding.source]}</Badge>} {group.length === 1 && where(finding)} <Theirs text={finding.problem} />
            {finding.remedy && <p class="hint"><Theirs text={finding.remedy} /></p>}
            {group.length > 1 && <Disclosure title={`in ${plural(group.length, "place")}`}><ul>{group.slice(0, MOST_PLACES).map((item, index) => <li key={index}>{where(item)}</li>)}</ul>{group.length > MOST_PLACES && <p class="note">The first {MOST_PLACES} are shown.</p>}</Disclosure>}
          </li>
        );
      })}
    </ul>
  );
}
const MOST_PLACES = 200;

const texts = (value: Json | undefined): Record<string, string> => Object.fromEntries(Object.entries(asObject(value)).map(([key, inner]) => [key, typeof inner === "string" ? inner : JSON.stringify(inner)]));

const completer = (server: Server, ref: JsonObject): Suggest => async (argument, value, others) => {
  if (!server.capabilities || !Object.hasOwn(server.capabilities, "completions")) return [];
  const { [argument]: _, ...context } = texts(others);
  const answer = await post<{ values: string[] }>(`/api/servers/${server.id}/complete`, { ref, argument, value, context });
  return answer.values;
};

function PromptBench({ server, prompt }: { server: Server; prompt: JsonObject }): JSX.Element {
  const name = nameOf(prompt);
  const schema = useMemo(() => {
    const list = asList(prompt["arguments"]).map(asObject);
    return {
      type: "object",
      properties: Object.fromEntries(list.map((argument) => [nameOf(argument), { type: "string", ...(asText(argument["description"]) ? { description: argument["description"]! } : {}), ...(asText(argument["title"]) ? { title: argument["title"]! } : {}) }])),
      required: list.filter((argument) => argument["required"] === true).map(nameOf),
      additionalProperties: false,
    } as JsonObject;
  }, [prompt]);
  return (
    <Runner
      server={server.id} kind="prompt" name={name} schema={schema} runLabel="Get prompt" suggest={completer(server, { type: "ref/prompt", name })}
      head={<Head server={server} kind="prompts" name={name} title={asText(prompt["title"])} description={asText(prompt["description"])} />}
      foot={<Disclosure title="Definition"><JsonTree value={prompt} /></Disclosure>}
    />
  );
}

function TemplateBench({ server, template }: { server: Server; template: JsonObject }): JSX.Element {
  const pattern = asText(template["uriTemplate"]) ?? "";
  const names = useMemo(() => variables(pattern), [pattern]);
  const schema = useMemo(() => ({ type: "object", properties: Object.fromEntries(names.map((name) => [name, { type: "string" }])), additionalProperties: false }) as JsonObject, [names]);
  return (
    <Runner
      server={server.id} kind="resource" name={pattern} schema={schema} runLabel="Read resource" suggest={completer(server, { type: "ref/resource", uri: pattern })}
      prepare={(value) => ({ name: expand(pattern, texts(value)), arguments: undefined })}
      matches={(call) => couldBe(pattern, call.name)}
      head={<Head server={server} kind="templates" name={pattern} title={asText(template["title"]) ?? asText(template["name"])} description={asText(template["description"])} />}
      foot={<Disclosure title="Definition"><JsonTree value={template} /></Disclosure>}
    />
  );
}

function ResourceBench({ server, uri, resource }: { server: Server; uri: string; resource?: JsonObject }): JSX.Element {
  const subscribed = server.subscriptions.includes(uri);
  const updated = updatedResources.value.get(`${server.id} ${uri}`);
  const mayWatch = asObject(server.capabilities?.["resources"])["subscribe"] === true || server.era === "modern";
  const toggle = (): Promise<unknown> => request("PUT", `/api/servers/${server.id}/subscriptions`, { uris: subscribed ? server.subscriptions.filter((other) => other !== uri) : [...server.subscriptions, uri] });
  return (
    <Runner
      server={server.id} kind="resource" name={uri} schema={{ type: "object", properties: {}, additionalProperties: false }} runLabel="Read resource" prepare={() => ({ arguments: undefined })}
      head={
        <Head server={server} kind="resources" name={asText(resource?.["name"]) ?? uri} title={asText(resource?.["title"])} description={asText(resource?.["description"])}>
          <p class="break"><OutsideLink url={uri} /></p>
          <p class="row wrap">
            {asText(resource?.["mimeType"]) && <Badge><Theirs text={asText(resource?.["mimeType"])} /></Badge>}
            {typeof resource?.["size"] === "number" && <Badge>{bytes(resource["size"])}</Badge>}
            {mayWatch && <Action kind="small" run={toggle}>{subscribed ? "Stop watching" : "Watch for changes"}</Action>}
            {updated !== undefined && <Badge tone="accent">changed {shortTime(updated)}</Badge>}
          </p>
        </Head>
      }
      foot={resource && <Disclosure title="Definition"><JsonTree value={resource} /></Disclosure>}
    />
  );
}

const FRONTMATTER = /^---\r?\n[^]*?\n---\r?\n/; // the definition has it

function SkillPage({ server, uri, definition }: { server: Server; uri: string; definition?: JsonObject }): JSX.Element {
  const [skill, setSkill] = useState<{ name: string; description: string; body: string; files: string[] } | undefined>(undefined);
  const [failure, setFailure] = useState<Failure | undefined>(undefined);
  useEffect(() => {
    get<NonNullable<typeof skill>>(`/api/servers/${server.id}/skills${query({ uri })}`).then(setSkill, (error) => setFailure(toFailure(error)));
  }, [server.id, uri]);
  return (
    <section class="pane wide-pane" aria-label="Skill">
      <Head server={server} kind="skills" name={skill?.name ?? uri} description={skill?.description}><p class="break"><code><Theirs text={uri} /></code></p></Head>
      {failure && <FailureBox failure={failure} />}
      {skill && <><Markdown text={skill.body.replace(FRONTMATTER, "")} />{skill.files.length > 0 && <><h2>Files</h2><ul>{skill.files.map((file) => <li key={file}><a href={link(["s", server.id, "resources", file])}><Theirs text={file} /></a></li>)}</ul></>}</>}
      {definition && <Disclosure title="Definition"><JsonTree value={definition} open={2} /></Disclosure>}
    </section>
  );
}

const ENDED = new Set(["completed", "failed", "cancelled"]);

function TaskPage({ server, id, task }: { server: Server; id: string; task?: Task }): JSX.Element {
  const [result, setResult] = useState<Json | undefined>(undefined);
  const path = `/api/servers/${server.id}/tasks/${part(id)}`;
  const status = task?.status ?? "unknown";
  return (
    <section class="pane wide-pane" aria-label="Task">
      <Head server={server} kind="tasks" name={id} />
      <Facts items={[["status", <Badge tone={status === "completed" ? "ok" : status === "failed" ? "bad" : ENDED.has(status) ? "quiet" : "busy"}>{status}</Badge>], ["message", task?.statusMessage && <Theirs text={task.statusMessage} />], ["created", task?.createdAt], ["kept for", task?.ttl !== undefined ? `${task.ttl} ms` : undefined], ["call", task?.call && <a href={link(["calls", task.call])}>{task.call}</a>]]} />
      <div class="row wrap">
        {!ENDED.has(status) && <Action run={() => post(`${path}/cancel`).then(() => loadCatalog(server.id))}>Cancel task</Action>}
        <Action run={() => loadCatalog(server.id)}>Refresh</Action>
        <Action run={() => get<Json>(`${path}/result`).then(setResult)}>Get result</Action>
      </div>
      {result !== undefined && <JsonTree value={result} open={3} />}
      {task && <Disclosure title="As it came"><JsonTree value={task.raw} /></Disclosure>}
    </section>
  );
}
