// Arguments a person typed but did not send, kept for a reload. In sessionStorage: they may hold secrets, and end with the tab.
import { parseTyped } from "../api/json";
import type { Json } from "../api/types";

const PREFIX = "trimaran.draft ";

export function readDraft(server: string, kind: string, name: string): Json | undefined {
  try {
    const text = sessionStorage.getItem(`${PREFIX}${server} ${kind} ${name}`);
    return text === null ? undefined : parseTyped(text);
  } catch {
    return undefined;
  }
}

export function keepDraft(server: string, kind: string, name: string, value: Json): void {
  try {
    sessionStorage.setItem(`${PREFIX}${server} ${kind} ${name}`, JSON.stringify(value));
  } catch {
    // storage is full or forbidden: the draft lives as long as the page
  }
}

/** A small choice of the person's that outlives the tab: the theme, the height of the dock. */
export function readChoice(name: string): string | null {
  try {
    return localStorage.getItem(`trimaran.${name}`);
  } catch {
    return null;
  }
}
export function keepChoice(name: string, value: string): void {
  try {
    localStorage.setItem(`trimaran.${name}`, value);
  } catch {
    // forbidden: then it holds until the reload
  }
}
