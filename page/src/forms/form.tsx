// A form from a JSON Schema. The value is plain JSON and what a person types is never changed: a text that is no number stays
// that text, is marked, and can be sent anyway. A field that is not set is absent, which is not the same as empty.
import type { JSX } from "preact";
import { Component, createContext } from "preact";
import { useContext, useMemo, useRef, useState } from "preact/hooks";
import { asText, isObject, parseTyped, pretty, rawDigits } from "../api/json";
import type { Json, JsonObject, Violation } from "../api/types";
import { Combobox } from "../ui/combobox";
import { bytes } from "../ui/format";
import { Segments } from "../ui/parts";
import { Theirs } from "../ui/text";
import { useGrowing } from "../ui/virtual";
import { type Branch, type Choice, demands, MAX_DEPTH, type Schema, SchemaReader, same, shortJson, type Widget } from "./schema";

/** What a field may hold, where `others` are the values of all fields: one may depend on another. */
export type Suggest = (name: string, value: string, others: Json | undefined) => Promise<readonly string[]>;

interface FormContext {
  reader: SchemaReader;
  prefix: string;
  errors: ReadonlyMap<string, string>;
  suggest?: (name: string, value: string) => Promise<readonly string[]>;
}
const Context = createContext<FormContext>(undefined as unknown as FormContext);

/** A new value, or how it comes from the newest one: what was drawn may be older, if two events come before the next drawing. */
type Update = Json | undefined | ((newest: Json | undefined) => Json | undefined);
type SetValue = (update: Update) => void;

interface FieldProps {
  schema: Schema;
  value: Json | undefined;
  set: SetValue;
  path: string;
  name: string;
  depth: number;
}

const updated = (update: Update, newest: Json | undefined): Json | undefined => (typeof update === "function" ? update(newest) : update);
const listOf = (value: Json | undefined): readonly Json[] => (Array.isArray(value) ? value : []);
const pointer = (path: string, key: string | number): string => `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
const domId = (prefix: string, path: string): string => `${prefix}${path.replace(/[^\w-]/g, (character) => `_${character.codePointAt(0)!.toString(16)}`)}`;

export function SchemaForm({ schema, value, set, violations, id, suggest }: {
  schema: Schema;
  value: Json | undefined;
  set: (value: Json | undefined) => void;
  violations: readonly Violation[];
  id: string;
  suggest?: Suggest;
}): JSX.Element {
  const reader = useMemo(() => new SchemaReader(schema), [schema]);
  const errors = useMemo(() => collect(violations), [JSON.stringify(violations)]);
  const widget = useMemo(() => reader.widget(reader.resolve(schema), ""), [reader]);
  const newest = useRef(value);
  newest.current = value;
  const context = useMemo(
    () => ({ reader, prefix: id, errors, ...(suggest && { suggest: (name: string, typed: string) => suggest(name, typed, newest.current) }) }),
    [reader, id, errors, suggest],
  );
  const change: SetValue = (update) => {
    newest.current = updated(update, newest.current);
    set(newest.current);
  };
  return (
    <Context.Provider value={context}>
      <div class="schema-form">
        {errors.get("") && <p class="field-error" role="alert"><Theirs text={errors.get("")} /></p>}
        {widget.kind === "object" ? (
          <ObjectFields widget={widget} value={value} set={change} path="" depth={0} />
        ) : (
          <Field schema={schema} value={value} set={change} path="" name="value" depth={0} required title="Value" />
        )}
      </div>
    </Context.Provider>
  );
}

function collect(violations: readonly Violation[]): Map<string, string> {
  const errors = new Map<string, string>();
  for (const violation of violations) {
    const path = violation.path === "/" ? "" : violation.path;
    const known = errors.get(path);
    if (known !== violation.message) errors.set(path, known ? `${known}; ${violation.message}` : violation.message);
  }
  return errors;
}

/** The error of a place; of a field without fields of its own also one that lies deeper: it would be shown nowhere else. */
function errorAt(errors: ReadonlyMap<string, string>, path: string, widget: Widget): string | undefined {
  const own = errors.get(path);
  if (own !== undefined || widget.kind === "object" || widget.kind === "array" || widget.kind === "union") return own;
  for (const [place, message] of errors) if (place.startsWith(`${path}/`)) return `${place.slice(path.length)}: ${message}`;
  return undefined;
}

/** A field without a label of its own, in a list or a map. */
function LooseError({ schema, path, name, depth }: { schema: Schema; path: string; name: string; depth: number }): JSX.Element | null {
  const { reader, errors } = useContext(Context);
  const error = errorAt(errors, path, reader.widget(reader.splitNull(reader.resolve(schema)).schema, name, depth));
  return error === undefined ? null : <p class="field-error" role="alert"><Theirs text={error} /></p>;
}

function ObjectFields({ widget, value, set, path, depth }: { widget: Extract<Widget, { kind: "object" }>; value: Json | undefined; set: SetValue; path: string; depth: number }): JSX.Element {
  const current = isObject(value) ? value : {};
  const put = (key: string, update: Update): void =>
    set((newest) => {
      const next: JsonObject = isObject(newest) ? { ...newest } : {};
      const inner = updated(update, Object.hasOwn(next, key) ? next[key] : undefined);
      if (inner === undefined) delete next[key];
      else Object.defineProperty(next, key, { value: inner, enumerable: true, configurable: true, writable: true }); // a key may be __proto__
      return next;
    });
  const shown = useGrowing(widget.properties.length);
  const known = new Set(widget.properties.map(([key]) => key));
  const others = Object.keys(current).filter((key) => !known.has(key));
  return (
    <>
      {depth === 0 && widget.properties.length === 0 && others.length === 0 && <p class="note">{widget.extra ? "It names no arguments, and takes any." : "It takes no arguments."}</p>}
      {widget.properties.slice(0, shown).map(([key, schema]) => (
        <Field key={key} schema={schema} value={Object.hasOwn(current, key) ? current[key] : undefined} set={(update) => put(key, update)} path={pointer(path, key)} name={key} depth={depth + 1} required={widget.required.has(key)} />
      ))}
      {(widget.extra !== undefined || others.length > 0) && (
        <MapFields keys={others} current={current} schema={widget.extra ?? true} put={put} set={set} path={path} depth={depth} bare={widget.properties.length === 0} mayAdd={widget.extra !== undefined} />
      )}
    </>
  );
}

/** Keys that the schema does not name: a map, or more properties. */
function MapFields({ keys, current, schema, put, set, path, depth, bare, mayAdd }: { keys: string[]; current: JsonObject; schema: Schema; put: (key: string, update: Update) => void; set: SetValue; path: string; depth: number; bare: boolean; mayAdd: boolean }): JSX.Element {
  const { reader, prefix } = useContext(Context);
  const [name, setName] = useState("");
  const add = (): void => {
    if (name === "" || Object.hasOwn(current, name)) return;
    put(name, schema === true ? "" : reader.first(schema, name));
    setName("");
  };
  const rename = (from: string, to: string): void => {
    if (to === "" || (to !== from && Object.hasOwn(current, to))) return;
    set((newest) => (isObject(newest) ? Object.fromEntries(Object.entries(newest).map(([key, value]) => [key === from ? to : key, value])) : newest));
  };
  const id = domId(prefix, `${path}/+`);
  return (
    <div class="map-fields">
      {keys.map((key, index) => (
        <div class="map-row" key={index}>
          <input type="text" class="map-key" aria-label={`Key ${index + 1}`} value={key} onChange={(event) => rename(key, event.currentTarget.value)} />
          <div class="map-value"><Control schema={schema} value={current[key]} set={(update) => put(key, (newest) => updated(update, newest) ?? null)} path={pointer(path, key)} name={key} depth={depth + 1} label={`Value of ${key}`} /><LooseError schema={schema} path={pointer(path, key)} name={key} depth={depth + 1} /></div>
          <button type="button" class="ghost small" aria-label={`Remove ${key}`} onClick={() => put(key, undefined)}>✕</button>
        </div>
      ))}
      {mayAdd && (
        <div class="map-row">
          <input id={id} type="text" class="map-key" placeholder={bare ? "key" : "another property"} aria-label="New key" value={name} onInput={(event) => setName(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter" && !event.ctrlKey) { event.preventDefault(); add(); } }} />
          <button type="button" class="small" disabled={name === "" || Object.hasOwn(current, name)} onClick={add}>Add</button>
        </div>
      )}
    </div>
  );
}

type LabelledProps = FieldProps & { required: boolean; title?: string };

/** Drawn again when it differs: of 500 properties a person changes one. `set` is another function each time, and does the same. */
class Field extends Component<LabelledProps> {
  override shouldComponentUpdate(next: LabelledProps): boolean {
    const { schema, value, path, required, title } = this.props;
    return next.schema !== schema || next.value !== value || next.path !== path || next.required !== required || next.title !== title;
  }
  override render(): JSX.Element {
    return <FieldBody {...this.props} />;
  }
}

function FieldBody({ schema, value, set, path, name, depth, required, title: forced }: LabelledProps): JSX.Element {
  const { reader, prefix, errors } = useContext(Context);
  const resolved = reader.resolve(schema);
  const { schema: inner } = reader.splitNull(resolved);
  const widget = reader.widget(inner, name, depth);
  const title = forced ?? name;
  const id = domId(prefix, path);
  const error = errorAt(errors, path, widget);
  const description = asText(resolved["description"]);
  const nested = widget.kind === "object" || widget.kind === "array" || widget.kind === "union" || widget.kind === "choices" || widget.kind === "boolean";
  const label = (
    <>
      <Theirs text={title} class="field-name" />
      {asText(resolved["title"]) && asText(resolved["title"]) !== title && <Theirs text={asText(resolved["title"])} class="field-title" />}
      {required ? <span class="required" title="required">required</span> : null}
      {resolved["deprecated"] === true && <span class="required">deprecated</span>}
      <span class="field-demands"><Theirs text={demands(inner)} /></span>
    </>
  );
  const notes = (
    <>
      {description && <p class="field-help" id={`${id}-help`}><Theirs text={description} /></p>}
      <Control schema={schema} value={value} set={set} path={path} name={name} depth={depth} required={required} />
      {error && <p class="field-error" id={`${id}-error`} role="alert"><Theirs text={error} /></p>}
    </>
  );
  const clear = value !== undefined && !required && <button type="button" class="ghost small clear" aria-label={`Clear ${name}`} title="Not set: leave this argument out" onClick={() => set(undefined)}>✕</button>;
  if (nested) return <fieldset class={`field ${error ? "bad" : ""}`} data-path={path}><legend>{label}{clear}</legend>{notes}</fieldset>;
  return <div class={`field ${error ? "bad" : ""}`} data-path={path}><div class="field-head"><label for={id}>{label}</label>{clear}</div>{notes}</div>;
}

/** The input itself, without its label. */
function Control(props: FieldProps & { required?: boolean; label?: string }): JSX.Element {
  const { reader } = useContext(Context);
  const resolved = reader.resolve(props.schema);
  const { schema, nullable } = reader.splitNull(resolved);
  const widget = reader.widget(schema, props.name, props.depth);
  if (!nullable) return <WidgetControl {...props} widget={widget} resolved={schema} />;
  return (
    <div class="nullable">
      {props.value === null ? <span class="null-value">null</span> : <WidgetControl {...props} widget={widget} resolved={schema} />}
      <button type="button" class="small ghost toggle" aria-pressed={props.value === null} onClick={() => props.set(props.value === null ? undefined : null)}>null</button>
    </div>
  );
}

type ControlProps = FieldProps & { widget: Widget; resolved: JsonObject; required?: boolean; label?: string };

function WidgetControl(props: ControlProps): JSX.Element {
  const { widget } = props;
  switch (widget.kind) {
    case "const": return <ConstControl {...props} constant={widget.value} />;
    case "null": return <span class="null-value">null</span>;
    case "boolean": return <BooleanControl {...props} />;
    case "number": return <NumberControl {...props} integer={widget.integer} />;
    case "text": return <TextControl {...props} format={widget.format} secret={widget.secret} />;
    case "binary": return <BinaryControl {...props} />;
    case "choice": return <ChoiceControl {...props} choices={widget.choices} />;
    case "choices": return <ChoicesControl {...props} choices={widget.choices} />;
    case "array": return <ArrayControl {...props} items={widget.items} prefix={widget.prefix} />;
    case "object": return <ObjectControl {...props} object={widget} />;
    case "union": return <UnionControl {...props} branches={widget.branches} />;
    default: return <JsonControl {...props} />;
  }
}

function useField(props: FieldProps & { label?: string }): { id: string; attributes: Record<string, string | boolean | undefined> } {
  const { prefix, errors } = useContext(Context);
  const id = domId(prefix, props.path);
  const invalid = errors.has(props.path);
  return { id, attributes: { id, "aria-label": props.label, "aria-invalid": invalid, "aria-describedby": `${id}-help${invalid ? ` ${id}-error` : ""}` } };
}

function ConstControl({ constant, value, set, required }: ControlProps & { constant: Json }): JSX.Element {
  return (
    <div class="row">
      <code class="const"><Theirs text={shortJson(constant)} /></code>
      {!same(value, constant) && <button type="button" class="small" onClick={() => set(constant)}>{required ? "Set" : "Add"}</button>}
    </div>
  );
}

const unset = (props: ControlProps): string => (props.resolved["default"] !== undefined ? `default ${shortJson(props.resolved["default"])}` : "not set");

function BooleanControl(props: ControlProps): JSX.Element {
  const items: [string, string][] = [["true", "true"], ["false", "false"]];
  if (!props.required) items.push(["", unset(props)]);
  const current = typeof props.value === "boolean" ? String(props.value) : "";
  return <Segments label={props.label ?? props.name} items={items} current={current} pick={(key) => props.set(key === "" ? undefined : key === "true")} />;
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

function NumberControl(props: ControlProps & { integer: boolean }): JSX.Element {
  const { attributes } = useField(props);
  const text = props.value === undefined ? "" : rawDigits(props.value) ?? (typeof props.value === "string" ? props.value : JSON.stringify(props.value));
  // While a person types "1." or "-" the text is not yet a number; it stays what they typed.
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const shown = typed !== undefined && same(readNumber(typed), props.value) ? typed : text;
  return <input type="text" inputMode={props.integer ? "numeric" : "decimal"} autocomplete="off" {...attributes} value={shown} placeholder={unset(props)} onInput={(event) => { setTyped(event.currentTarget.value); props.set(readNumber(event.currentTarget.value)); }} />;
}

function readNumber(text: string): Json | undefined {
  if (text === "") return undefined;
  return NUMBER.test(text) ? parseTyped(text) : text;
}

/** The types of JSX want a literal; which input this is, is known only when it is drawn. */
const inputType = (type: string): object => ({ type });

const PICKERS: Record<string, string> = { date: "date", "date-time": "datetime-local", time: "time" };

function TextControl(props: ControlProps & { format: string; secret: boolean }): JSX.Element {
  const { suggest } = useContext(Context);
  const { id, attributes } = useField(props);
  const [shown, setShown] = useState(false);
  const text = props.value === undefined ? "" : typeof props.value === "string" ? props.value : JSON.stringify(props.value);
  const placeholder = unset(props);
  const onInput = (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }): void => props.set(event.currentTarget.value);
  const picker = PICKERS[props.format];
  if (suggest && props.depth === 1) return <Combobox id={id} value={text} onInput={props.set} suggest={(typed) => suggest(props.name, typed)} placeholder={placeholder} invalid={attributes["aria-invalid"] === true} />;
  if (props.secret)
    return (
      <div class="row">
        <input {...inputType(shown ? "text" : "password")} autocomplete="new-password" {...attributes} value={text} placeholder={placeholder} onInput={onInput} />
        <button type="button" class="small ghost" aria-pressed={shown} onClick={() => setShown(!shown)}>{shown ? "Hide" : "Show"}</button>
      </div>
    );
  if (picker)
    return (
      <div class="row">
        <input type="text" autocomplete="off" {...attributes} value={text} placeholder={placeholder} onInput={onInput} />
        <input {...inputType(picker)} class="picker" aria-label={`Pick ${props.name}`} step={1} onInput={(event) => event.currentTarget.value && props.set(asRfc3339(props.format, event.currentTarget.value))} />
      </div>
    );
  const examples = Array.isArray(props.resolved["examples"]) ? props.resolved["examples"].filter((example): example is string => typeof example === "string") : [];
  return (
    <>
      <textarea rows={1} dir="auto" spellcheck={false} {...attributes} value={text} placeholder={placeholder} onInput={onInput} />
      {props.value === "" && <span class="note inline">empty text</span>}
      {examples.length > 0 && <div class="examples">{examples.slice(0, 5).map((example) => <button type="button" class="chip" key={example} onClick={() => props.set(example)}><Theirs text={example} /></button>)}</div>}
    </>
  );
}

function asRfc3339(format: string, picked: string): string {
  if (format === "date") return picked;
  const withSeconds = /:\d\d:\d\d/.test(picked) ? picked : `${picked}:00`;
  const minutes = -new Date(format === "time" ? Date.now() : picked).getTimezoneOffset();
  const two = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  return `${withSeconds}${minutes === 0 ? "Z" : `${minutes < 0 ? "-" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`}`;
}

function BinaryControl(props: ControlProps): JSX.Element {
  const { attributes } = useField(props);
  const read = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const data = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let from = 0; from < data.length; from += 32_768) text += String.fromCharCode(...data.subarray(from, from + 32_768));
    props.set(btoa(text));
  };
  const length = typeof props.value === "string" ? props.value.length : 0;
  return (
    <div class="row">
      <input type="file" aria-label={`File for ${props.name}`} onChange={(event) => void read(event.currentTarget.files?.[0])} />
      <input type="text" {...attributes} value={typeof props.value === "string" ? props.value : ""} placeholder="base64" onInput={(event) => props.set(event.currentTarget.value)} />
      {length > 0 && <span class="note inline">{bytes(Math.floor((length * 3) / 4))}</span>}
    </div>
  );
}

function ChoiceControl(props: ControlProps & { choices: Choice[] }): JSX.Element {
  const { attributes } = useField(props);
  const index = props.value === undefined ? -1 : props.choices.findIndex((choice) => same(choice.value, props.value));
  const foreign = props.value !== undefined && index < 0;
  return (
    <select {...attributes} value={foreign ? "foreign" : String(index)} onChange={(event) => { const picked = Number(event.currentTarget.value); props.set(picked < 0 ? undefined : props.choices[picked]?.value); }}>
      <option value="-1">{props.required ? "choose …" : unset(props)}</option>
      {foreign && <option value="foreign">{shortJson(props.value!)} (not in the list)</option>}
      {props.choices.map((choice, place) => <option key={place} value={String(place)}>{choice.title}{choice.title !== shortJson(choice.value) ? ` (${shortJson(choice.value)})` : ""}</option>)}
    </select>
  );
}

function ChoicesControl(props: ControlProps & { choices: Choice[] }): JSX.Element {
  const values = listOf(props.value);
  const foreign = values.filter((value) => !props.choices.some((choice) => same(choice.value, value))).map((value) => ({ value, title: `${shortJson(value)} (not in the list)` }));
  const toggle = (choice: Choice, on: boolean): void => props.set((newest) => (on ? [...listOf(newest), choice.value] : listOf(newest).filter((value) => !same(value, choice.value))));
  return (
    <div class="checks">
      {[...props.choices, ...foreign].map((choice, index) => (
        <label key={index} class="check"><input type="checkbox" checked={values.some((value) => same(value, choice.value))} onChange={(event) => toggle(choice, event.currentTarget.checked)} /><Theirs text={choice.title} /></label>
      ))}
    </div>
  );
}

function ArrayControl(props: ControlProps & { items: Schema; prefix: Schema[] }): JSX.Element {
  const { reader } = useContext(Context);
  const values = listOf(props.value);
  // What a field of an item remembers, the branch of a union for one, moves and goes with the item.
  const keys = useRef<number[]>([]);
  const nextKey = useRef(0);
  while (keys.current.length < values.length) keys.current.push(nextKey.current++);
  keys.current.length = values.length;
  const schemaAt = (index: number): Schema => props.prefix[index] ?? props.items;
  const move = (index: number, step: number): void => {
    keys.current.splice(index + step, 0, ...keys.current.splice(index, 1));
    props.set((newest) => {
      const next = [...listOf(newest)];
      next.splice(index + step, 0, ...next.splice(index, 1));
      return next;
    });
  };
  const remove = (index: number): void => {
    keys.current.splice(index, 1);
    props.set((newest) => listOf(newest).filter((_, place) => place !== index));
  };
  const change = (index: number, update: Update): void =>
    props.set((newest) => listOf(newest).map((item, place) => (place === index ? (updated(update, item) ?? null) : item)));
  return (
    <div class="array">
      {values.map((value, index) => {
        const path = pointer(props.path, index);
        return (
          <div class="array-item" key={keys.current[index]}>
            <span class="num index">{index}</span>
            <div class="array-value">
              <Control schema={schemaAt(index)} value={value} set={(update) => change(index, update)} path={path} name={`${props.name} ${index}`} depth={props.depth + 1} label={`${props.name} ${index}`} required />
              <LooseError schema={schemaAt(index)} path={path} name={props.name} depth={props.depth + 1} />
            </div>
            <span class="array-buttons">
              <button type="button" class="ghost small" disabled={index === 0} aria-label={`Move ${props.name} ${index} up`} onClick={() => move(index, -1)}>↑</button>
              <button type="button" class="ghost small" disabled={index === values.length - 1} aria-label={`Move ${props.name} ${index} down`} onClick={() => move(index, 1)}>↓</button>
              <button type="button" class="ghost small" aria-label={`Remove ${props.name} ${index}`} onClick={() => remove(index)}>✕</button>
            </span>
          </div>
        );
      })}
      <button type="button" class="small" aria-label={`Add item to ${props.name}`} onClick={() => props.set((newest) => [...listOf(newest), reader.first(schemaAt(listOf(newest).length), props.name)])}>Add item</button>
      {values.length === 0 && <span class="note inline">{props.value === undefined ? unset(props) : "empty list"}</span>}
      {props.value === undefined && !props.required && <button type="button" class="ghost small" onClick={() => props.set([])}>Set an empty list</button>}
    </div>
  );
}

function ObjectControl(props: ControlProps & { object: Extract<Widget, { kind: "object" }> }): JSX.Element {
  const { reader } = useContext(Context);
  const isMap = props.object.properties.length === 0;
  if (props.value === undefined && !isMap && (!props.required || props.depth > 6))
    return <button type="button" class="small" aria-label={`Fill in … ${props.name}`} onClick={() => props.set(reader.first(props.schema, props.name))}>Fill in …</button>;
  if (props.depth > MAX_DEPTH) return <JsonControl {...props} />;
  return <div class="nested"><ObjectFields widget={props.object} value={props.value} set={props.set} path={props.path} depth={props.depth} /></div>;
}

function UnionControl(props: ControlProps & { branches: Branch[] }): JSX.Element {
  const { reader } = useContext(Context);
  const { id } = useField(props);
  const [picked, setPicked] = useState<number | undefined>(undefined);
  const values = useRef(new Map<number, Json | undefined>());
  const fitting = reader.branchOf(props.branches, props.value);
  const index = Math.min(picked ?? fitting, props.branches.length - 1);
  const branch = props.branches[index];
  if (!branch) return <JsonControl {...props} />;
  const choose = (next: number): void => {
    values.current.set(index, props.value); // coming back finds what was there
    setPicked(next);
    props.set(values.current.has(next) ? values.current.get(next) : reader.first(props.branches[next]!.schema, props.name));
  };
  return (
    <div class="union">
      <select aria-label={`Kind of ${props.name}`} value={String(index)} onChange={(event) => choose(Number(event.currentTarget.value))} id={`${id}-kind`}>
        {props.branches.map((other, place) => <option key={place} value={String(place)}>{other.title}</option>)}
      </select>
      <Control key={index} schema={branch.schema} value={props.value} set={props.set} path={props.path} name={props.name} depth={props.depth + 1} required={props.required} label={props.label ?? props.name} />
    </div>
  );
}

function JsonControl(props: ControlProps): JSX.Element {
  const { attributes } = useField(props);
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const read = (text: string): { value?: Json; problem?: string } => {
    try {
      return { value: parseTyped(text) };
    } catch (error) {
      return { problem: error instanceof Error ? error.message : String(error) };
    }
  };
  const attempt = typed === undefined ? undefined : read(typed);
  const shown = typed !== undefined && (attempt?.problem !== undefined || same(attempt?.value, props.value)) ? typed : props.value === undefined ? "" : pretty(props.value);
  return (
    <>
      <textarea rows={2} class="code" spellcheck={false} {...attributes} value={shown} placeholder={`JSON; ${unset(props)}`} onInput={(event) => {
        const text = event.currentTarget.value;
        setTyped(text);
        const next = read(text);
        if (text === "") props.set(undefined);
        else if (next.problem === undefined) props.set(next.value);
      }} />
      {typed && attempt?.problem && <p class="field-error">Not JSON yet: {attempt.problem}</p>}
    </>
  );
}
