// Rows of like objects, or CSV, as a table.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { isObject } from "../api/json";
import type { Json, JsonObject } from "../api/types";
import { Theirs } from "../ui/text";

export interface Rows {
  columns: string[];
  rows: Json[][];
}
const PAGE = 200;
const MOST_COLUMNS = 40;

/** A list of objects that share most of their keys. */
export function asRows(value: Json): Rows | undefined {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isObject)) return undefined;
  const objects = value as JsonObject[];
  const counts = new Map<string, number>();
  for (const item of objects.slice(0, 1000)) for (const key of Object.keys(item)) counts.set(key, (counts.get(key) ?? 0) + 1);
  const columns = [...counts.keys()];
  const cells = [...counts.values()].reduce((sum, count) => sum + count, 0);
  if (columns.length === 0 || columns.length > MOST_COLUMNS || cells < columns.length * Math.min(objects.length, 1000) * 0.6) return undefined;
  return { columns, rows: objects.map((item) => columns.map((key) => item[key] ?? null)) };
}

export function csvRows(text: string, separator: string): Rows | undefined {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let index = 0; index < text.length && rows.length < 5000; index++) {
    const character = text[index]!;
    if (quoted) {
      if (character === '"' && text[index + 1] === '"') { cell += '"'; index++; }
      else if (character === '"') quoted = false;
      else cell += character;
    } else if (character === '"') quoted = true;
    else if (character === separator) { row.push(cell); cell = ""; }
    else if (character === "\n") { rows.push([...row, cell.replace(/\r$/, "")]); row = []; cell = ""; }
    else cell += character;
  }
  if (cell !== "" || row.length > 0) rows.push([...row, cell]);
  const [columns, ...body] = rows;
  return columns && columns.length > 1 && body.length > 0 ? { columns, rows: body } : undefined;
}

export function Table({ columns, rows }: Rows): JSX.Element {
  const [count, setCount] = useState(PAGE);
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label="Table">
      <table class="data">
        <thead><tr>{columns.map((column, place) => <th key={column} scope="col" class={typeof rows[0]?.[place] === "number" ? "num" : ""}><Theirs text={column} /></th>)}</tr></thead>
        <tbody>
          {rows.slice(0, count).map((row, index) => (
            <tr key={index}>{row.map((cell, place) => <td key={place} class={typeof cell === "number" ? "num" : ""}><Theirs text={cell === null ? "" : typeof cell === "object" ? JSON.stringify(cell) : String(cell)} /></td>)}</tr>
          ))}
        </tbody>
      </table>
      {rows.length > count && <button type="button" class="small ghost" onClick={() => setCount(count + PAGE * 5)}>{rows.length - count} more rows</button>}
    </div>
  );
}
