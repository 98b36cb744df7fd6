// The JSON editor beside a form: CodeMirror, loaded when it is first opened.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Json } from "../api/types";
import type { EditorHandle } from "./codemirror";

export function JsonEditor({ text, onText, schema, label, readOnly = false }: { text: string; onText: (text: string) => void; schema?: Json; label: string; readOnly?: boolean }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorHandle>(undefined);
  const report = useRef(onText);
  report.current = onText;
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => {
    let gone = false;
    void import("./codemirror").then(({ openEditor }) => {
      if (!gone && box.current) editor.current = openEditor(box.current, latest.current, (changed) => report.current(changed), { schema, label, readOnly });
    });
    return () => {
      gone = true;
      editor.current?.close();
      editor.current = undefined;
    };
  }, [schema, label, readOnly]);
  useEffect(() => editor.current?.put(text), [text]);
  return <div class="editor" ref={box} />;
}
