// The inspector's page: the frame around every view, the keys, and which view an address opens.
import { effect, signal } from "@preact/signals";
import { render, type JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { post } from "./api/http";
import type { CatalogKind, Server } from "./api/types";
import { keepChoice, readChoice } from "./state/drafts";
import { go, link, route } from "./state/route";
import { activeRecording, calls, connection, currentServer, questions, ready, servers, start, version } from "./state/store";
import { Empty, isRunning, notices, StateBadge, StateDot } from "./ui/parts";
import { Theirs } from "./ui/text";
import { CatalogPage } from "./views/catalog";
import { ChecksPage } from "./views/checks";
import { Dock, toggleDock } from "./views/dock";
import { OAuthPage } from "./views/oauth";
import { KeySheet, Palette } from "./views/palette";
import { QuestionsPage } from "./views/questions";
import { RequestBench } from "./views/request-bench";
import { CallPage } from "./views/runner";
import { ServerPage, ServersPage } from "./views/servers";
import { SessionsPage } from "./views/sessions";
import { TimelinePage } from "./views/timeline";
import { TryPage } from "./views/try";
import { WirePage } from "./views/wire";
import "../../src/trimaran/apps/look.css";
import "./style.css";

const sheet = signal<"" | "palette" | "keys">("");
const theme = signal(readChoice("theme") ?? "");

effect(() => {
  const root = document.documentElement;
  if (theme.value === "dark" || theme.value === "light") root.dataset["theme"] = theme.value;
  else delete root.dataset["theme"];
});
const isDark = (): boolean => (theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
  keepChoice("theme", theme.value);
}

const KINDS: readonly CatalogKind[] = ["tools", "resources", "templates", "prompts", "skills", "tasks"];
const isKind = (word: string | undefined): word is CatalogKind => KINDS.includes(word as CatalogKind);

function View(): JSX.Element {
  const { path } = route.value;
  switch (path[0]) {
    case "wire": return <WirePage />;
    case "timeline": return <TimelinePage />;
    case "questions": return <QuestionsPage />;
    case "sessions": return <SessionsPage path={path.slice(1)} />;
    case "calls": return <CallPage id={path[1] ?? ""} />;
    case "s": {
      const server = currentServer.value;
      return server ? <ServerView server={server} path={path.slice(2)} /> : <div class="page"><Empty title="No such server"><p><a href={link(["servers"])}>All servers</a></p></Empty></div>;
    }
    default: return <ServersPage />;
  }
}

function ServerView({ server, path }: { server: Server; path: string[] }): JSX.Element {
  const [section, name] = path;
  const docked = isKind(section) || section === "requests";
  const body = isKind(section) ? <CatalogPage key={`${server.id} ${section}`} server={server} kind={section} picked={name} />
    : section === "try" ? <TryPage server={server} />
    : section === "auth" ? <OAuthPage server={server} />
    : section === "checks" ? <ChecksPage key={server.id} server={server} tab={name} />
    : section === "requests" ? <div class="page"><h1>Any request</h1><RequestBench key={server.id} server={server} method={name} /></div>
    : <ServerPage key={server.id} server={server} />;
  if (!docked) return body;
  return <div class="docked"><div class="above-dock">{body}</div><Dock key={server.id} server={server} /></div>;
}

function NavLink({ path, children, count, current }: { path: string[]; children: string; count?: number; current: boolean }): JSX.Element {
  return <a class="nav-link" href={link(path)} aria-current={current ? "page" : undefined}><span>{children}</span>{count !== undefined && <span class="nav-count num">{count}</span>}</a>;
}

function Nav(): JSX.Element {
  const { path } = route.value;
  const server = currentServer.value ?? (servers.value.length === 1 ? servers.value[0] : undefined);
  const section = path[0] === "s" ? path[2] ?? "about" : "";
  const bar = useRef<HTMLElement>(null);
  useEffect(() => bar.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" }), [path.join(" ")]);
  const here = (word: string): boolean => path[0] === word || (word === "servers" && path.length === 0);
  return (
    <nav class="nav" aria-label="Inspector" ref={bar}>
      <div class="nav-group">
        <NavLink path={["servers"]} current={here("servers")} count={servers.value.length}>Servers</NavLink>
        {servers.value.map((item) => (
          <a key={item.id} class={`nav-server ${server?.id === item.id ? "open" : ""}`} href={link(["s", item.id])} aria-current={path[0] === "s" && path[1] === item.id && path.length === 2 ? "page" : undefined}><StateDot state={item.state} /><span class="cut"><Theirs text={item.name} /></span></a>
        ))}
      </div>
      {server && (
        <div class="nav-group" role="group" aria-label={`Parts of ${server.name}`}>
          {KINDS.map((kind) => <NavLink key={kind} path={["s", server.id, kind]} current={section === kind} count={server.counts[kind] ?? 0}>{kind[0]!.toUpperCase() + kind.slice(1)}</NavLink>)}
          <NavLink path={["s", server.id, "requests"]} current={section === "requests"}>Any request</NavLink>
          <NavLink path={["s", server.id, "try"]} current={section === "try"}>Try differently</NavLink>
          <NavLink path={["s", server.id, "auth"]} current={section === "auth"}>Login</NavLink>
          <NavLink path={["s", server.id, "checks"]} current={section === "checks"}>Checks</NavLink>
        </div>
      )}
      <div class="nav-group">
        <NavLink path={["wire"]} current={here("wire")}>Wire</NavLink>
        <NavLink path={["timeline"]} current={here("timeline")}>Timeline</NavLink>
        <NavLink path={["questions"]} current={here("questions")} count={questions.value.length || undefined}>Questions</NavLink>
        <NavLink path={["sessions"]} current={here("sessions")}>Sessions</NavLink>
      </div>
    </nav>
  );
}

function TopBar(): JSX.Element {
  const server = currentServer.value;
  const waiting = questions.value.length;
  return (
    <header class="topbar">
      <a class="brand" href={link(["servers"])}>Trimaran <span>inspector</span></a>
      {server && <span class="topbar-server"><Theirs text={server.name} /> <StateBadge state={server.state} /> {server.era && <span class="era">{server.era} · {server.revision}</span>}</span>}
      <span class="grow" />
      {waiting > 0 && <a class="button small primary" href={link(["questions"])}>{waiting} {waiting === 1 ? "question waits" : "questions wait"}</a>}
      {activeRecording.value !== undefined && <a class="recording" href={link(["sessions"])}>recording</a>}
      <button type="button" class="small ghost wide-only" onClick={() => (sheet.value = "palette")}>Go to … <kbd>Ctrl K</kbd></button>
      <button type="button" class="small ghost" aria-label={isDark() ? "Light colours" : "Dark colours"} onClick={toggleTheme}>{isDark() ? "☀" : "☾"}</button>
      <button type="button" class="small ghost" aria-label="Keys" onClick={() => (sheet.value = "keys")}>?</button>
    </header>
  );
}

function Lost(): JSX.Element | null {
  if (connection.value === "lost") return <p class="lost" role="alert">The inspector does not answer; what you see is the last it said. Is <code>trimaran inspect</code> still running? This page reconnects by itself.</p>;
  return null;
}

function App(): JSX.Element {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => {
    const server = currentServer.value;
    const waiting = questions.value.length;
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${server ? `${server.name} · ` : ""}Inspector`;
  });
  if (connection.value === "refused")
    return <div class="page"><Empty title="This page has no key"><p>Open the link that <code>trimaran inspect</code> printed in its terminal. It works once per browser; start the command again for a new one.</p></Empty></div>;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <TopBar />
      <Nav />
      <main id="main" tabIndex={-1}>
        <Lost />
        {ready.value ? <View /> : <p class="booting">Opening …</p>}
      </main>
      <div class="notices" role="status" aria-live="polite">{notices.value.map((notice) => <p key={notice.id} class={notice.bad ? "bad" : ""}>{notice.text}</p>)}</div>
      {sheet.value === "palette" && <Palette close={() => (sheet.value = "")} />}
      {sheet.value === "keys" && <KeySheet close={() => (sheet.value = "")} />}
      <span class="visually-hidden">Trimaran {version.value}</span>
    </>
  );
}

let leader = 0;

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement | null;
  const typing = target?.closest("input, textarea, select, [contenteditable=true], .cm-editor") != null;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    sheet.value = sheet.value === "palette" ? "" : "palette";
    return;
  }
  if (event.key === "Escape" && sheet.value === "") return cancelNewest(typing);
  if (typing || sheet.value !== "" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (Date.now() - leader < 1200) {
    leader = 0;
    return goByKey(event);
  }
  const keys: Record<string, () => void> = {
    g: () => (leader = Date.now()), "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(), "?": () => (sheet.value = "keys"), d: toggleTheme, w: toggleDock,
  };
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function goByKey(event: KeyboardEvent): void {
  const server = currentServer.value ?? servers.value[0];
  const own = (section: string): string[] => (server ? ["s", server.id, section] : ["servers"]);
  const places: Record<string, string[]> = { s: ["servers"], t: own("tools"), r: own("resources"), p: own("prompts"), w: ["wire"], l: ["timeline"], q: ["questions"], c: own("checks"), e: ["sessions"] };
  const place = places[event.key];
  if (!place) return;
  event.preventDefault();
  go(place);
}

function cancelNewest(typing: boolean): void {
  const shown = route.value.params["call"];
  const running = calls.value.find((call) => call.id === shown && isRunning(call));
  if (running && !typing) void post(`/api/calls/${running.id}/cancel`).catch(() => undefined);
  else (document.activeElement as HTMLElement | null)?.blur();
}

// With one server, its tools are what a person came for.
function openFirst(): void {
  const [only, ...others] = servers.value;
  // The address itself: an event about its change may still be on its way.
  const isAtTheDoor = location.hash.replace(/^#\/?/, "") === "";
  if (isAtTheDoor && only && others.length === 0) go(["s", only.id, "tools"], {}, true);
}

const box = document.getElementById("app")!;
box.replaceChildren(); // the frame that index.html shows until now
render(<App />, box);
void start().then(openFirst);
