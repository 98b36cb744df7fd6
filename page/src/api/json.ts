// JSON that keeps every number as it came. An integer beyond 2^53 would be rounded by JSON.parse, and a debugger must not
// change a value, so such numbers stay raw where the browser can do that (JSON.rawJSON).
import type { Json, JsonObject } from "./types";

interface RawJson {
  rawJSON: string;
}
interface ExactJson {
  rawJSON?: (text: string) => RawJson;
  isRawJSON?: (value: unknown) => value is RawJson;
  parse(text: string, reviver: (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
}
const exact = JSON as unknown as ExactJson;
const LONG_NUMBER = /\d{16}/;

export function parseExact(text: string): Json {
  if (!exact.rawJSON || !LONG_NUMBER.test(text)) return JSON.parse(text) as Json;
  return exact.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source && LONG_NUMBER.test(context.source)
      ? exact.rawJSON!(context.source)
      : value,
  ) as Json;
}

/** JSON that a person typed: every number keeps its digits, so that 1.50 and 1e400 are what is sent. */
export function parseTyped(text: string): Json {
  if (!exact.rawJSON) return JSON.parse(text) as Json;
  return exact.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? exact.rawJSON!(context.source) : value,
  ) as Json;
}

/** The digits of a number that JavaScript would write otherwise, or undefined for everything else. */
export function rawDigits(value: unknown): string | undefined {
  return value !== null && typeof value === "object" && exact.isRawJSON?.(value) ? value.rawJSON : undefined;
}

export const isObject = (value: unknown): value is JsonObject =>
  value !== null && typeof value === "object" && !Array.isArray(value) && rawDigits(value) === undefined;

export const asText = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
export const asList = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
export const asObject = (value: unknown): JsonObject => (isObject(value) ? value : {});

export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}
