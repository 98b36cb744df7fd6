// JSON as a tree: closed branches cost nothing, long lists open a page at a time, and every text is shown as text.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { isObject, rawDigits } from "../api/json";
import type { Json } from "../api/types";
import { plural } from "../ui/format";
import { Theirs } from "../ui/text";

const PAGE = 100; // entries drawn at once in one branch
const LONG = 600; // characters of a text before it is cut

/** `find`: branches that hold this text are open, however deep. */
export function JsonTree({ value, open = 2, find = "" }: { value: Json; open?: number; find?: string }): JSX.Element {
  return <div class="tree" role="group" aria-label="JSON"><Node value={value} open={open} find={find.toLowerCase()} /></div>;
}

function Node({ name, value, open, find, last = true }: { name?: string | number; value: Json; open: number; find: string; last?: boolean }): JSX.Element {
  const entries = Array.isArray(value) ? value.map((item, index) => [index, item] as const) : isObject(value) ? Object.entries(value) : undefined;
  const [isOpen, setOpen] = useState(() => (open > 0 && (entries?.length ?? 0) <= PAGE) || (find !== "" && entries !== undefined && JSON.stringify(value).toLowerCase().includes(find)));
  const [count, setCount] = useState(PAGE);
  const key = name === undefined ? null : <span class={typeof name === "number" ? "tree-index" : "tree-key"}><Theirs text={String(name)} />: </span>;
  if (!entries) return <div class="tree-line">{key}<Leaf value={value} />{!last && ","}</div>;
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return <div class="tree-line">{key}{left}{right}{!last && ","}</div>;
  return (
    <div>
      <button type="button" class="tree-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="caret" aria-hidden="true">{isOpen ? "▾" : "▸"}</span>{key}{left}
        {!isOpen && <span class="tree-size"> {plural(entries.length, Array.isArray(value) ? "item" : "key")} {right}</span>}
      </button>
      {isOpen && (
        <div class="tree-inner">
          {entries.slice(0, count).map(([inner, item], index) => <Node key={inner} name={inner} value={item} open={open - 1} find={find} last={index === entries.length - 1} />)}
          {entries.length > count && <button type="button" class="small ghost" onClick={() => setCount(count + PAGE * 5)}>{entries.length - count} more</button>}
        </div>
      )}
      {isOpen && <div class="tree-line">{right}{!last && ","}</div>}
    </div>
  );
}

function Leaf({ value }: { value: Json }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const digits = rawDigits(value);
  if (digits !== undefined) return <span class="tree-number" title="Larger than JavaScript holds exactly; shown as it came">{digits}</span>;
  if (typeof value !== "string") return <span class={typeof value === "number" ? "tree-number" : "tree-word"}>{JSON.stringify(value)}</span>;
  const cut = value.length > LONG && !whole;
  return (
    <span class="tree-string">
      "<Theirs text={cut ? value.slice(0, LONG) : value} />"
      {cut && <button type="button" class="small ghost" onClick={() => setWhole(true)}>… {value.length - LONG} more characters</button>}
    </span>
  );
}
