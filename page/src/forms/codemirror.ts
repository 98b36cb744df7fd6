// CodeMirror for JSON: errors while typing, property names and enum values of a schema as completions.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import { bracketMatching, foldGutter, HighlightStyle, indentOnInput, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { linter } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { asList, asObject, asText } from "../api/json";
import type { Json } from "../api/types";
import { type Schema, SchemaReader, shortJson } from "./schema";

export interface EditorHandle {
  put(text: string): void;
  close(): void;
}

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--json-key)" },
  { tag: tags.string, color: "var(--json-string)" },
  { tag: tags.number, color: "var(--json-number)" },
  { tag: [tags.bool, tags.null], color: "var(--json-word)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "12px", backgroundColor: "var(--field)", color: "var(--text)", borderRadius: "var(--radius)", border: "1px solid var(--line-strong)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", padding: "6px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--faint)", border: "none" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)", color: "var(--text)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-scroller": { maxHeight: "420px", minHeight: "96px" },
});

export function openEditor(parent: HTMLElement, text: string, onText: (text: string) => void, options: { schema?: Json; label: string; readOnly: boolean }): EditorHandle {
  let quiet = false;
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), foldGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightSpecialChars(),
        json(), linter(jsonParseLinter()), syntaxHighlighting(colours), look,
        autocompletion({ override: [(context) => complete(context, options.schema)] }),
        // Tab leaves the editor, as it leaves every field: Enter indents.
        keymap.of([...closeBracketsKeymap, ...defaultKeymap.filter((binding) => binding.key !== "Mod-Enter"), ...historyKeymap, ...completionKeymap]),
        EditorView.contentAttributes.of({ "aria-label": options.label }),
        EditorState.readOnly.of(options.readOnly),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !quiet) onText(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    put(changed) {
      if (changed === view.state.doc.toString()) return;
      quiet = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: changed } });
      quiet = false;
    },
    close: () => view.destroy(),
  };
}

function complete(context: CompletionContext, root: Json | undefined): CompletionResult | null {
  if (root === undefined) return null;
  const node = syntaxTree(context.state).resolveInner(context.pos, -1);
  const path: string[] = [];
  let property: string | undefined;
  for (let at = node.node.parent; at; at = at.parent) {
    if (at.name !== "Property") continue;
    const key = at.getChild("PropertyName");
    if (!key) continue;
    const name = context.state.sliceDoc(key.from + 1, key.to - 1);
    if (property === undefined && node.from >= key.to) property = name;
    path.unshift(name);
  }
  const word = context.matchBefore(/"?[\w$-]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const reader = new SchemaReader(root as Schema);
  const inKey = node.name === "PropertyName" || node.name === "Object" || node.name === "{";
  if (node.name === "PropertyName") path.pop();
  let schema = reader.resolve(root as Schema);
  for (const name of path) schema = reader.resolve((asObject(schema["properties"])[name] ?? true) as Schema);
  const options: Completion[] = inKey
    ? Object.entries(asObject(schema["properties"])).map(([name, inner]) => ({ label: `"${name}"`, apply: `"${name}": `, detail: asText(asObject(inner)["type"]), info: asText(asObject(inner)["description"]) }))
    : asList(schema["enum"]).map((value) => ({ label: JSON.stringify(value), detail: shortJson(value) }));
  return options.length > 0 ? { from: word.from, options } : null;
}
