// Text that others wrote, shown as text. What cannot be seen is made visible: control characters, terminal codes, characters
// that turn the direction or have no width, and Unicode tags, which carry whole hidden sentences.
import type { ComponentChildren, JSX } from "preact";

const HIDDEN =

  /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\u{E0000}-\u{E0FFF}]+|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\u{1d173}-\u{1d17a}]/gu;
const JOINER = "\u200d"; // belongs to many emoji
const PICTURE = /\p{Extended_Pictographic}\ufe0f?$/u;

const NAMES: Record<number, string> = {
  0x00ad: "soft hyphen", 0x061c: "Arabic letter mark", 0x200b: "zero width space", 0x200c: "zero width non-joiner", 0x200d: "zero width joiner",
  0x200e: "left-to-right mark", 0x200f: "right-to-left mark", 0x2028: "line separator", 0x2029: "paragraph separator",
  0x202a: "left-to-right embedding", 0x202b: "right-to-left embedding", 0x202c: "pop directional formatting",
  0x202d: "left-to-right override", 0x202e: "right-to-left override", 0x2060: "word joiner", 0x2066: "left-to-right isolate",
  0x2067: "right-to-left isolate", 0x2068: "first strong isolate", 0x2069: "pop directional isolate", 0x3164: "Hangul filler",
  0xfeff: "zero width no-break space", 0x1b: "escape",
};

interface Mark {
  label: string;
  title: string;
}

function describe(run: string): Mark {
  const code = run.codePointAt(0)!;
  if (code >= 0xe0000 && code <= 0xe0fff) {
    const decoded = [...run].map((character) => String.fromCharCode(Math.max(0, character.codePointAt(0)! - 0xe0000))).filter((character) => character >= " " && character <= "~").join("");
    return { label: `hidden: ${decoded || `${[...run].length} tags`}`, title: `${[...run].length} Unicode tag characters that no person sees: ${decoded}` };
  }
  if (code === 0x1b) return { label: `ESC${run.slice(1).replace(/[\x00-\x1f]/g, "·")}`, title: "A code for terminals, shown and not obeyed" };
  const number = code.toString(16).toUpperCase().padStart(4, "0");
  return { label: `U+${number}`, title: `U+${number}${NAMES[code] ? `, ${NAMES[code]}` : ", a character that cannot be seen"}` };
}

export function hasHidden(text: string): boolean {
  HIDDEN.lastIndex = 0;
  for (let match = HIDDEN.exec(text); match; match = HIDDEN.exec(text)) if (!isEmojiJoiner(text, match)) return true;
  return false;
}

function isEmojiJoiner(text: string, match: RegExpExecArray): boolean {
  return match[0] === JOINER && PICTURE.test(text.slice(Math.max(0, match.index - 4), match.index));
}

/** Split a text into plain pieces and marks. */
function withMarks(text: string): ComponentChildren {
  HIDDEN.lastIndex = 0;
  if (!HIDDEN.test(text)) return text;
  HIDDEN.lastIndex = 0;
  const pieces: ComponentChildren[] = [];
  let from = 0;
  let marks = 0;
  for (let match = HIDDEN.exec(text); match; match = HIDDEN.exec(text)) {
    if (isEmojiJoiner(text, match)) continue;
    if (match.index > from) pieces.push(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (++marks > 2000) break; // more marks than anybody reads; the rest follows as it is, isolated
    const { label, title } = describe(match[0]);
    pieces.push(<span class="hidden-mark" title={title}>{label}</span>);
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** The same as a plain string, where marks cannot be elements. */
export const spellHidden = (text: string): string =>
  text.replace(HIDDEN, (run, offset: number) => (run === JOINER && PICTURE.test(text.slice(Math.max(0, offset - 4), offset)) ? run : `⟦${describe(run).label}⟧`));

/** A text from a server, isolated so that it cannot turn the words around it. */
export function Theirs({ text, class: name = "", title }: { text: string | undefined; class?: string; title?: string }): JSX.Element {
  return <bdi class={`theirs ${name}`} title={title}>{withMarks(text ?? "")}</bdi>;
}

const CUT = 50_000; // characters drawn at once: some screens full

/** A long text with its line breaks. */
export function TheirBlock({ text, wrap = true }: { text: string; wrap?: boolean }): JSX.Element {
  const shown = text.length > CUT ? text.slice(0, CUT) : text;
  return (
    <>
      <pre class={`block ${wrap ? "wrap" : ""}`} dir="auto" tabIndex={0}>{withMarks(shown)}</pre>
      {text.length > CUT && <p class="note">The first {CUT.toLocaleString("en")} of {text.length.toLocaleString("en")} characters. The copy has all of them.</p>}
    </>
  );
}
