// Reading a JSON Schema for a form: which widget a schema asks for, which branch of a union a value is on, and a first example.
// Pure. It checks nothing: the inspector's own schema layer does that (POST /api/check), with a regex engine that cannot hang.
import { asList, asObject, asText, isObject, rawDigits } from "../api/json";
import type { Json, JsonObject } from "../api/types";

export type Schema = JsonObject | boolean;
export const MAX_DEPTH = 12; // deeper than any form people fill in; beyond it the field takes JSON

export type Widget =
  | { kind: "any" }
  | { kind: "null" }
  | { kind: "const"; value: Json }
  | { kind: "boolean" }
  | { kind: "number"; integer: boolean }
  | { kind: "text"; format: string; secret: boolean }
  | { kind: "binary" }
  | { kind: "choice"; choices: Choice[] }
  | { kind: "choices"; choices: Choice[] }
  | { kind: "array"; items: Schema; prefix: Schema[] }
  | { kind: "object"; properties: [string, Schema][]; required: Set<string>; extra: Schema | undefined }
  | { kind: "union"; branches: Branch[] };
export interface Choice {
  value: Json;
  title: string;
}
export interface Branch {
  title: string;
  schema: Schema;
}

const SECRET = /(^|[_\-.])(pass(word|phrase|wd)?|secret|token|api[_-]?key|credential)s?$/i;

export class SchemaReader {
  constructor(private readonly root: Schema) {}

  /** Follow `$ref` inside this document and fold `allOf` in. A reference to elsewhere stays a field for any JSON. */
  resolve(schema: Schema, depth = 0): JsonObject {
    if (typeof schema === "boolean") return {};
    if (depth > MAX_DEPTH) return {};
    const ref = asText(schema["$ref"]);
    if (ref !== undefined) {
      const target = this.lookUp(ref);
      const { $ref: _, ...beside } = schema;
      if (target === undefined) return beside;
      return { ...this.resolve(target, depth + 1), ...beside };
    }
    const parts = asList(schema["allOf"]).filter(isObject);
    if (parts.length === 0) return schema;
    let merged: JsonObject = { ...schema };
    delete merged["allOf"];
    for (const part of parts) merged = merge(merged, this.resolve(part, depth + 1));
    return merged;
  }

  private lookUp(ref: string): Schema | undefined {
    if (!ref.startsWith("#")) return undefined;
    let place: Json | undefined = this.root as Json;
    for (const word of ref.slice(1).split("/").filter(Boolean)) {
      let key = word;
      try {
        key = decodeURIComponent(word);
      } catch {
        // as it stands
      }
      key = key.replaceAll("~1", "/").replaceAll("~0", "~");
      place = isObject(place) && Object.hasOwn(place, key) ? place[key] : Array.isArray(place) ? place[Number(key)] : undefined;
    }
    return isObject(place) || typeof place === "boolean" ? place : undefined;
  }

  /** The schema without its null branch, and whether null is allowed. */
  splitNull(schema: JsonObject): { schema: JsonObject; nullable: boolean } {
    const types = asList(schema["type"]);
    if (types.includes("null") && types.length > 1) {
      const rest = types.filter((type) => type !== "null");
      return { schema: { ...schema, type: rest.length === 1 ? rest[0]! : rest }, nullable: true };
    }
    if (schema["nullable"] === true) return { schema, nullable: true };
    for (const word of ["anyOf", "oneOf"]) {
      const branches = asList(schema[word]);
      const others = branches.filter((branch) => asObject(branch)["type"] !== "null");
      if (branches.length > others.length && others.length > 0) {
        const { [word]: _, ...outer } = schema;
        const rest: JsonObject = others.length === 1 ? { ...this.resolve(others[0] as Schema), ...outer } : { ...outer, [word]: others };
        return { schema: rest, nullable: true };
      }
    }
    return { schema, nullable: false };
  }

  widget(schema: JsonObject, name: string, depth = 0): Widget {
    if (depth > MAX_DEPTH) return { kind: "any" };
    if (schema["const"] !== undefined) return { kind: "const", value: schema["const"] };
    const choices = readChoices(schema);
    if (choices) return { kind: "choice", choices };
    const branches = asList(schema["oneOf"] ?? schema["anyOf"]);
    if (branches.length > 0 && !isObject(schema["properties"])) return this.union(schema, branches);
    const types = typeof schema["type"] === "string" ? [schema["type"]] : asList(schema["type"]);
    if (types.length > 1) return { kind: "union", branches: types.map((type) => ({ title: String(type), schema: { ...schema, type } })) };
    switch (types[0] ?? guessType(schema)) {
      case "string":
        if (schema["contentEncoding"] === "base64" || schema["format"] === "byte" || schema["format"] === "binary") return { kind: "binary" };
        return { kind: "text", format: asText(schema["format"]) ?? "", secret: schema["format"] === "password" || schema["writeOnly"] === true || SECRET.test(name) };
      case "integer":
        return { kind: "number", integer: true };
      case "number":
        return { kind: "number", integer: false };
      case "boolean":
        return { kind: "boolean" };
      case "null":
        return { kind: "null" };
      case "array": {
        const tuple = asList(schema["prefixItems"] ?? schema["items"]) as Schema[]; // drafts before 2020-12 wrote a tuple as a list of items
        const items = ((Array.isArray(schema["items"]) ? schema["additionalItems"] : schema["items"]) ?? true) as Schema;
        const itemChoices = isObject(items) ? readChoices(this.resolve(items)) : undefined;
        if (itemChoices && (schema["uniqueItems"] === true || itemChoices.length <= 12)) return { kind: "choices", choices: itemChoices };
        return { kind: "array", items, prefix: tuple };
      }
      case "object": {
        const properties = Object.entries(this.properties(schema)) as [string, Schema][];
        const required = new Set(asList(schema["required"]).filter((key): key is string => typeof key === "string"));
        return { kind: "object", properties, required, extra: readExtra(schema, properties.length) };
      }
      default:
        return { kind: "any" };
    }
  }

  /** Those that an object always has, and those that only some of its conditions bring: the check says which. */
  private properties(schema: JsonObject, depth = 0): JsonObject {
    const own = asObject(schema["properties"]);
    if (depth > 3) return own;
    const parts = [schema["then"], schema["else"], ...asList(schema["oneOf"]), ...asList(schema["anyOf"]), ...Object.values(asObject(schema["dependentSchemas"]))];
    const all = new Map(Object.entries(own));
    for (const part of parts.filter(isObject)) for (const [key, schema] of Object.entries(this.properties(this.resolve(part), depth + 1))) if (!all.has(key)) all.set(key, schema);
    return Object.fromEntries(all);
  }

  private union(schema: JsonObject, branches: Json[]): Widget {
    const { oneOf: _, anyOf: __, ...outer } = schema;
    const titled = branches.map((branch, index) => {
      const resolved = this.resolve(branch as Schema);
      return { title: branchTitle(resolved, branch, index), schema: merge(resolved, { ...outer, title: resolved["title"] ?? outer["title"] ?? "" }) };
    });
    return { kind: "union", branches: titled };
  }

  /** Which branch of a union fits a value best, by its type and constants. */
  branchOf(branches: Branch[], value: Json | undefined): number {
    if (value === undefined) return 0;
    let best = 0;
    let bestScore = -1;
    branches.forEach((branch, index) => {
      const score = this.fit(this.resolve(branch.schema), value, 0);
      if (score > bestScore) [best, bestScore] = [index, score];
    });
    return best;
  }

  private fit(schema: JsonObject, value: Json, depth: number): number {
    if (depth > 3) return 0;
    if (schema["const"] !== undefined) return same(schema["const"], value) ? 10 : -5;
    const choices = readChoices(schema);
    if (choices) return choices.some((choice) => same(choice.value, value)) ? 8 : -2;
    const types = typeof schema["type"] === "string" ? [schema["type"]] : asList(schema["type"]);
    const type = typeOf(value);
    const fits = types.length === 0 || types.includes(type) || (type === "integer" && types.includes("number"));
    if (!fits) return -5;
    let score = types.includes(type) ? 3 : 2;
    if (isObject(value)) {
      const properties = asObject(schema["properties"]);
      for (const [key, inner] of Object.entries(value)) {
        const property = properties[key];
        if (property !== undefined) score += 1 + Math.max(-6, Math.min(6, this.fit(this.resolve(property as Schema), inner, depth + 1)));
        else score -= 1;
      }
    }
    return score;
  }

  /** A first value for a field somebody adds: what the schema itself offers, else the emptiest of its type. */
  first(schema: Schema, name = "", depth = 0, example = false): Json {
    const resolved = this.resolve(schema);
    const offered = resolved["default"] ?? asList(resolved["examples"])[0] ?? resolved["example"];
    if (offered !== undefined) return offered;
    const widget = this.widget(this.splitNull(resolved).schema, name, depth);
    switch (widget.kind) {
      case "const": return widget.value;
      case "boolean": return false;
      case "number": return Math.max(numberOf(resolved["minimum"]) ?? 0, 0);
      case "text": return example ? exampleText(widget.format, name) : "";
      case "binary": return "";
      case "choice": return widget.choices[0]?.value ?? "";
      case "choices": return [];
      case "array": return example && depth < 4 && widget.prefix.length === 0 ? [this.first(widget.items, name, depth + 1, example)] : widget.prefix.map((item) => this.first(item, name, depth + 1, example));
      case "object": {
        const value: JsonObject = {};
        if (depth > 4) return value;
        for (const [key, property] of widget.properties) if (widget.required.has(key) || (example && depth < 2)) value[key] = this.first(property, key, depth + 1, example);
        return value;
      }
      case "union": return widget.branches[0] ? this.first(widget.branches[0].schema, name, depth + 1, example) : null;
      default: return null;
    }
  }
}

function merge(a: JsonObject, b: JsonObject): JsonObject {
  const merged: JsonObject = { ...a, ...b };
  if (isObject(a["properties"]) || isObject(b["properties"])) merged["properties"] = { ...asObject(a["properties"]), ...asObject(b["properties"]) };
  if (a["required"] || b["required"]) merged["required"] = [...new Set([...asList(a["required"]), ...asList(b["required"])])];
  return merged;
}

function readChoices(schema: JsonObject): Choice[] | undefined {
  const values = schema["enum"];
  if (Array.isArray(values)) {
    const titles = asList(schema["enumNames"]);
    return values.map((value, index) => ({ value, title: asText(titles[index]) ?? shortJson(value) }));
  }
  const branches = asList(schema["oneOf"] ?? schema["anyOf"]);
  if (branches.length > 0 && branches.every((branch) => asObject(branch)["const"] !== undefined))
    return branches.map((branch) => ({ value: asObject(branch)["const"]!, title: asText(asObject(branch)["title"]) ?? shortJson(asObject(branch)["const"]!) }));
  return undefined;
}

function readExtra(schema: JsonObject, properties: number): Schema | undefined {
  const patterns = Object.values(asObject(schema["patternProperties"]));
  const extra = schema["additionalProperties"];
  if (isObject(extra)) return extra;
  if (patterns.length > 0) return patterns[0] as Schema;
  if (extra === true || (extra === undefined && properties === 0)) return true;
  return undefined;
}

function guessType(schema: JsonObject): string | undefined {
  if (isObject(schema["properties"]) || schema["additionalProperties"] !== undefined) return "object";
  if (schema["items"] !== undefined || schema["prefixItems"] !== undefined) return "array";
  if (schema["pattern"] !== undefined || schema["minLength"] !== undefined || schema["maxLength"] !== undefined || schema["format"] !== undefined) return "string";
  if (schema["minimum"] !== undefined || schema["maximum"] !== undefined || schema["multipleOf"] !== undefined) return "number";
  return undefined;
}

function branchTitle(resolved: JsonObject, branch: Json, index: number): string {
  const title = asText(resolved["title"]);
  if (title) return title;
  for (const [key, property] of Object.entries(asObject(resolved["properties"]))) {
    const fixed = asObject(property)["const"];
    if (fixed !== undefined) return `${key}: ${shortJson(fixed)}`;
  }
  const ref = asText(asObject(branch)["$ref"]);
  if (ref) return ref.split("/").at(-1) ?? ref;
  const type = resolved["type"];
  return type === undefined ? `Option ${index + 1}` : [type].flat().join(" or ");
}

const numberOf = (value: Json | undefined): number | undefined => (typeof value === "number" ? value : undefined);
export const shortJson = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value));
export const same = (a: Json | undefined, b: Json | undefined): boolean => a === b || JSON.stringify(a) === JSON.stringify(b);

function typeOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  const digits = rawDigits(value);
  if (digits !== undefined) return /^-?\d+$/.test(digits) ? "integer" : "number";
  return typeof value;
}

const EXAMPLES: Record<string, string> = {
  date: "2026-01-31", "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z", email: "someone@example.com", uri: "https://example.com/",
  uuid: "123e4567-e89b-42d3-a456-426614174000", ipv4: "192.0.2.1", ipv6: "2001:db8::1", hostname: "example.com", duration: "PT5M",
};
const exampleText = (format: string, name: string): string => EXAMPLES[format] ?? (name ? `some ${name}` : "text");

/** What a schema demands of a value, in a few words. */
export function demands(schema: JsonObject): string {
  const words: string[] = [];
  const range = (low: string, high: string, unit: string): void => {
    const from = numberOf(schema[low]);
    const to = numberOf(schema[high]);
    if (from !== undefined && to !== undefined) words.push(`${from} to ${to}${unit}`);
    else if (from !== undefined) words.push(`at least ${from}${unit}`);
    else if (to !== undefined) words.push(`at most ${to}${unit}`);
  };
  range("minimum", "maximum", "");
  range("exclusiveMinimum", "exclusiveMaximum", " (exclusive)");
  range("minLength", "maxLength", " characters");
  range("minItems", "maxItems", " items");
  if (schema["multipleOf"] !== undefined) words.push(`a multiple of ${shortJson(schema["multipleOf"])}`);
  if (schema["pattern"] !== undefined) words.push(`matches ${shortJson(schema["pattern"])}`);
  if (schema["format"] !== undefined) words.push(shortJson(schema["format"]));
  if (schema["uniqueItems"] === true) words.push("no duplicates");
  return words.join(", ");
}
