// What a server sent back, shown as what it is: text, markdown, JSON, tables, pictures, sound, links, embedded resources.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { getBlob, getText } from "../api/http";
import { asList, asObject, asText, isObject, parseExact } from "../api/json";
import type { Json, JsonObject } from "../api/types";
import { link } from "../state/route";
import { bytes } from "../ui/format";
import { Action, Badge, complain, CopyButton, Disclosure, OutsideLink, save } from "../ui/parts";
import { hasHidden, TheirBlock, Theirs } from "../ui/text";
import { type Cut, cutOf } from "./cut";
import { looksLikeMarkdown, Markdown } from "./markdown";
import { asRows, csvRows, Table } from "./table";
import { JsonTree } from "./tree";

type View = "text" | "markdown" | "json" | "table";

const PAGE = 100; // blocks drawn at once: thousands of pictures would hold the page for seconds

export function ContentList({ blocks, server }: { blocks: Json[]; server: string }): JSX.Element {
  const [shown, setShown] = useState(PAGE);
  if (blocks.length === 0) return <p class="note">The result has no content.</p>;
  return (
    <div class="contents">
      {blocks.slice(0, shown).map((block, index) => <Content key={index} block={asObject(block)} server={server} index={index} />)}
      {blocks.length > shown && <p><button type="button" class="small" onClick={() => setShown(shown + PAGE)}>Show {Math.min(PAGE, blocks.length - shown)} more of {blocks.length}</button></p>}
    </div>
  );
}

function Content({ block, server, index }: { block: JsonObject; server: string; index: number }): JSX.Element {
  const type = asText(block["type"]) ?? "unknown";
  const label = `Content ${index}: ${type}`;
  switch (type) {
    case "text": return <Framed label={label} kind="text" block={block}><TextView text={asText(block["text"]) ?? ""} mime="" cut={cutOf(block, "text")} /></Framed>;
    case "image": case "audio": case "video":
      return <Framed label={label} kind={type} block={block}><Media data={asText(block["data"]) ?? ""} mime={asText(block["mimeType"]) ?? ""} cut={cutOf(block, "data")} /></Framed>;
    case "resource": return <Framed label={label} kind="embedded resource" block={block}><ResourceContents contents={asObject(block["resource"])} /></Framed>;
    case "resource_link": return <Framed label={label} kind="link to a resource" block={block}><ResourceLink block={block} server={server} /></Framed>;
    default: return <Framed label={label} kind={type} block={block}><JsonTree value={block} /></Framed>;
  }
}

function Framed({ label, kind, block, children }: { label: string; kind: string; block: JsonObject; children: JSX.Element }): JSX.Element {
  const annotations = asObject(block["annotations"]);
  return (
    <section class="content" aria-label={label}>
      <header class="content-head">
        <span class="content-kind"><Theirs text={kind} /></span>
        {asText(block["mimeType"]) && <code><Theirs text={asText(block["mimeType"])} /></code>}
        {asList(annotations["audience"]).map((who) => <Badge key={String(who)} title="annotations.audience">for {String(who)}</Badge>)}
        {annotations["priority"] !== undefined && <Badge title="annotations.priority">priority {String(annotations["priority"])}</Badge>}
        {asText(annotations["lastModified"]) && <Badge title="annotations.lastModified">{asText(annotations["lastModified"])}</Badge>}
      </header>
      {children}
      {isObject(block["_meta"]) && <Disclosure title="_meta"><JsonTree value={block["_meta"]} /></Disclosure>}
    </section>
  );
}

export function TextView({ text, mime, cut }: { text: string; mime: string; cut?: Cut }): JSX.Element {
  const parsed = useMemo(() => tryJson(text, mime), [text, mime]);
  const rows = useMemo(() => (parsed !== undefined ? asRows(parsed) : mime.includes("csv") ? csvRows(text, ",") : mime.includes("tab-separated") ? csvRows(text, "\t") : undefined), [parsed, text, mime]);
  const first: View = rows ? "table" : parsed !== undefined ? "json" : mime.includes("markdown") || (mime === "" && looksLikeMarkdown(text)) ? "markdown" : "text";
  const [picked, pick] = useState<View | undefined>(undefined);
  const view = picked ?? first;
  const views: View[] = ["text", "markdown", ...(parsed !== undefined ? (["json"] as const) : []), ...(rows ? (["table"] as const) : [])];
  return (
    <>
      <div class="content-tools">
        {views.map((name) => <button type="button" key={name} class="chip" aria-pressed={name === view} onClick={() => pick(name)}>{name}</button>)}
        {hasHidden(text) && <Badge tone="warn" title="Characters that cannot be seen are shown as marks">hidden characters</Badge>}
        <span class="grow" />
        <span class="note inline">{cut ? `the first ${bytes(text.length)} of ${bytes(cut.length)}` : bytes(new Blob([text]).size)}</span>
        <CopyButton text={() => (cut ? getText(cut.url) : text)} />
      </div>
      {view === "markdown" ? <Markdown text={text} /> : view === "json" && parsed !== undefined ? <JsonTree value={parsed} /> : view === "table" && rows ? <Table {...rows} /> : <TheirBlock text={text} />}
    </>
  );
}

function tryJson(text: string, mime: string): Json | undefined {
  const start = text.trimStart()[0];
  if (text.length > 2_000_000 || (start !== "{" && start !== "[" && !mime.includes("json"))) return undefined;
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}

const MEDIA = /^(image|audio|video)\/[\w.+-]+$/;

const FETCHED = 32 * 1024 * 1024; // characters of base64: more than any screen shows, and little enough to load unasked

/** The address of bytes that came as base64, once it is known; of a cut one they are fetched, as long as they are shown. */
function useBytes(data: string, mime: string, cut: Cut | undefined): string | undefined {
  const [fetched, setFetched] = useState<string | undefined>(undefined);
  const isWanted = cut !== undefined && cut.length <= FETCHED;
  useEffect(() => {
    if (!isWanted) return;
    let url: string | undefined;
    let gone = false;
    getBlob(`${cut.url}&raw=1`).then((blob) => {
      if (!gone) setFetched((url = URL.createObjectURL(new Blob([blob], { type: mime }))));
    }, complain);
    return () => {
      gone = true;
      if (url !== undefined) URL.revokeObjectURL(url);
    };
  }, [cut?.url, isWanted, mime]);
  return cut ? fetched : `data:${mime};base64,${data}`;
}

function Media({ data, mime, cut }: { data: string; mime: string; cut?: Cut }): JSX.Element {
  const [size, setSize] = useState("");
  const length = Math.floor(((cut?.length ?? data.replace(/=+$/, "").length) * 3) / 4);
  const clean = MEDIA.test(mime) ? mime : undefined;
  const url = useBytes(data, clean ?? "application/octet-stream", cut);
  const name = `content.${(clean ?? "bin").split("/").at(-1)?.replace(/\+.*/, "")}`;
  const download = cut
    ? <Action kind="small ghost" run={async () => save(name, await getBlob(`${cut.url}&raw=1`))}>Save</Action>
    : <a class="button small ghost" href={url} download={name}>Save</a>;
  return (
    <>
      <div class="content-tools"><span class="note inline">{[bytes(length), size].filter(Boolean).join(" · ")}</span><span class="grow" />{download}</div>
      {url === undefined ? (
        <p class="note">{cut!.length > FETCHED ? "Too large to show here." : "Loading …"}</p>
      ) : clean?.startsWith("image/") ? (
        <img class="picture" src={url} alt={`A picture from the server, ${mime}`} onLoad={(event) => setSize(`${event.currentTarget.naturalWidth} × ${event.currentTarget.naturalHeight}`)} onError={() => setSize("the browser cannot show this picture")} />
      ) : clean?.startsWith("audio/") ? (
        <audio controls src={url} aria-label={`Sound from the server, ${mime}`} />
      ) : clean?.startsWith("video/") ? (
        <video controls src={url} aria-label={`A video from the server, ${mime}`} />
      ) : (
        <p class="note">Bytes of the type <Theirs text={mime || "unknown"} />, which the page does not show.</p>
      )}
    </>
  );
}

export function ResourceContents({ contents }: { contents: JsonObject }): JSX.Element {
  const mime = asText(contents["mimeType"]) ?? "";
  const text = asText(contents["text"]);
  const blob = asText(contents["blob"]);
  return (
    <>
      <p class="resource-head"><code><Theirs text={asText(contents["uri"])} /></code> {mime && <Badge><Theirs text={mime} /></Badge>}</p>
      {text !== undefined && <TextView text={text} mime={mime} cut={cutOf(contents, "text")} />}
      {blob !== undefined && <Media data={blob} mime={mime} cut={cutOf(contents, "blob")} />}
      {text === undefined && blob === undefined && <JsonTree value={contents} />}
    </>
  );
}

function ResourceLink({ block, server }: { block: JsonObject; server: string }): JSX.Element {
  const uri = asText(block["uri"]) ?? "";
  return (
    <div class="resource-link">
      <p><strong><Theirs text={asText(block["title"]) ?? asText(block["name"]) ?? uri} /></strong> {typeof block["size"] === "number" && <Badge>{bytes(block["size"])}</Badge>}</p>
      {asText(block["description"]) && <p><Theirs text={asText(block["description"])} /></p>}
      <p><OutsideLink url={uri} /></p>
      <a class="button small" href={link(["s", server, "resources", uri])}>Read it here</a>
    </div>
  );
}

export function RawJson({ value, name }: { value: Json; name: string }): JSX.Element {
  const text = (): string => JSON.stringify(value, null, 2);
  return (
    <>
      <div class="content-tools"><span class="grow" /><CopyButton text={text} /><button type="button" class="small ghost" onClick={() => save(`${name}.json`, text())}>Save</button></div>
      <JsonTree value={value} open={3} />
    </>
  );
}
