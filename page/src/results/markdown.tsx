// Markdown from a server. It is turned into HTML without raw HTML in it, then cleaned once more, and may load nothing.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { spellHidden, TheirBlock } from "../ui/text";

let render: ((text: string) => string) | undefined;

async function load(): Promise<(text: string) => string> {
  if (render) return render;
  const [{ default: MarkdownIt }, { default: purify }] = await Promise.all([import("markdown-it"), import("dompurify")]);
  const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false });
  markdown.disable("image"); // a picture would be fetched from wherever the server says
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName !== "A") return;
    const href = node.getAttribute("href") ?? "";
    if (!/^https?:\/\//i.test(href)) node.removeAttribute("href"); // no javascript:, and no link into this page
    else {
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer nofollow");
      node.setAttribute("title", href);
    }
  });
  render = (text) =>
    purify.sanitize(markdown.render(spellHidden(text)), {
      ALLOWED_TAGS: ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "em", "strong", "s", "code", "pre", "blockquote", "a", "table", "thead", "tbody", "tr", "th", "td"],
      ALLOWED_ATTR: ["href", "start"],
    });
  return render;
}

const MOST = 200_000; // characters; more is read as text

export function Markdown({ text }: { text: string }): JSX.Element {
  const [html, setHtml] = useState<string | undefined>(undefined);
  useEffect(() => {
    let gone = false;
    if (text.length <= MOST) void load().then((turn) => !gone && setHtml(turn(text)));
    return () => void (gone = true);
  }, [text]);
  if (html === undefined) return <TheirBlock text={text} />;
  return <div class="markdown theirs" dir="auto" dangerouslySetInnerHTML={{ __html: html }} />;
}

export const looksLikeMarkdown = (text: string): boolean => /^#{1,4} \S/m.test(text) || (/^[-*] \S/m.test(text) && /\*\*\S|`\S/.test(text)) || /^\|.+\|\s*\n\|[-:| ]+\|/m.test(text);
