// Long texts of a large result: the call comes with their beginnings, and the rest is asked for where it is shown.
import { part } from "../api/http";
import type { CallDetail, CutText, Json, JsonObject } from "../api/types";

export interface Cut {
  /** Where all of it is; with `&raw=1` base64 comes as bytes. */
  url: string;
  length: number;
}

// By the object that holds the text, so that nobody in between has to know where in the result it stands.
const cuts = new WeakMap<object, Map<string, Cut>>();

export function noteCuts(call: CallDetail): void {
  for (const cut of call.cut ?? []) {
    const [holder, key] = holderOf(call.result, cut);
    if (holder === undefined) continue;
    const known = cuts.get(holder) ?? new Map<string, Cut>();
    cuts.set(holder, known.set(key, { url: `/api/calls/${part(call.id)}/result?path=${part(cut.path)}`, length: cut.length }));
  }
}

function holderOf(result: Json | undefined, cut: CutText): [object | undefined, string] {
  const steps = cut.path.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  const key = steps.pop() ?? "";
  let holder: unknown = result;
  for (const step of steps) holder = (holder as Record<string, unknown> | null | undefined)?.[step];
  return [typeof holder === "object" && holder !== null ? holder : undefined, key];
}

export const cutOf = (holder: JsonObject, key: string): Cut | undefined => cuts.get(holder)?.get(key);
