// Go anywhere by typing: servers, tools, resources, prompts, calls, pages.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { asText } from "../api/json";
import { go } from "../state/route";
import { calls, catalogOf, loadCatalog, servers } from "../state/store";
import { Dialog } from "../ui/parts";
import { Theirs } from "../ui/text";

interface Place {
  title: string;
  kind: string;
  path: string[];
}

function places(): Place[] {
  const list: Place[] = [
    ["Servers", ["servers"]], ["Wire", ["wire"]], ["Timeline", ["timeline"]], ["Questions", ["questions"]], ["Recordings", ["sessions"]], ["Saved calls", ["sessions", "saved"]],
  ].map(([title, path]) => ({ title: title as string, kind: "page", path: path as string[] }));
  for (const server of servers.value) {
    list.push({ title: server.name, kind: "server", path: ["s", server.id] });
    for (const [title, path] of [["try", "try"], ["login", "auth"], ["checks", "checks"]] as const) list.push({ title: `${server.name}: ${title}`, kind: "page", path: ["s", server.id, path] });
    const catalog = catalogOf(server.id).value;
    for (const tool of catalog?.tools ?? []) list.push({ title: asText(tool.definition["name"]) ?? "", kind: `tool · ${server.name}`, path: ["s", server.id, "tools", asText(tool.definition["name"]) ?? ""] });
    for (const item of catalog?.resources ?? []) list.push({ title: `${asText(item["name"]) ?? ""} ${asText(item["uri"]) ?? ""}`, kind: `resource · ${server.name}`, path: ["s", server.id, "resources", asText(item["uri"]) ?? ""] });
    for (const item of catalog?.templates ?? []) list.push({ title: asText(item["uriTemplate"]) ?? "", kind: `template · ${server.name}`, path: ["s", server.id, "templates", asText(item["uriTemplate"]) ?? ""] });
    for (const item of catalog?.prompts ?? []) list.push({ title: asText(item["name"]) ?? "", kind: `prompt · ${server.name}`, path: ["s", server.id, "prompts", asText(item["name"]) ?? ""] });
  }
  for (const call of calls.value.slice(-50).reverse()) list.push({ title: call.name, kind: `call · ${call.state}`, path: ["calls", call.id] });
  return list;
}

export function Palette({ close }: { close: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  // A server may become ready while the palette is open.
  const ready = servers.value.filter((server) => server.state === "ready").map((server) => server.id);
  useEffect(() => {
    for (const id of ready) if (catalogOf(id).peek() === undefined) void loadCatalog(id).catch(() => undefined);
  }, [ready.join(" ")]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = places().filter((place) => words.every((word) => `${place.title} ${place.kind}`.toLowerCase().includes(word))).slice(0, 50);
  const open = (place: Place | undefined): void => {
    if (!place) return;
    close();
    go(place.path);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setActive((index) => (index + (event.key === "ArrowDown" ? 1 : -1) + shown.length) % Math.max(1, shown.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(shown[active]);
    }
  };
  return (
    <Dialog title="Go to" close={close}>
      <input ref={box} type="text" class="search" role="combobox" aria-expanded="true" aria-controls="palette" aria-activedescendant={shown.length > 0 ? `palette-${active}` : undefined} aria-label="Go to" placeholder="A tool, resource, prompt, server, call …" value={text} onInput={(event) => { setText(event.currentTarget.value); setActive(0); }} onKeyDown={onKey} />
      <ul id="palette" class="palette" role="listbox" aria-label="Places">
        {shown.map((place, index) => <li key={index} id={`palette-${index}`} role="option" aria-selected={index === active} onClick={() => open(place)}><Theirs text={place.title} /><span class="grow" /><span class="faint"><Theirs text={place.kind} /></span></li>)}
      </ul>
      {shown.length === 0 && <p class="note">Nothing matches.</p>}
    </Dialog>
  );
}

const KEYS: [string, string][] = [
  ["Ctrl K", "go anywhere"], ["/", "search the list on this page"], ["Ctrl Enter", "run, or answer a question"], ["Esc", "cancel the running call, or close"], ["g s", "servers"], ["g t", "tools"], ["g r", "resources"],
  ["g p", "prompts"], ["g w", "wire"], ["g l", "timeline"], ["g q", "questions"], ["g c", "checks"], ["g e", "sessions"], ["d", "dark or light"], ["w", "show or hide the wire below"], ["?", "this sheet"],
];

export function KeySheet({ close }: { close: () => void }): JSX.Element {
  return <Dialog title="Keys" close={close}><dl class="keys">{KEYS.map(([key, what]) => <div key={key}><dt>{key.split(" ").map((word) => <kbd key={word}>{word}</kbd>)}</dt><dd>{what}</dd></div>)}</dl></Dialog>;
}
