// Requests to the inspector's own origin. Every failure becomes an ApiError that says who failed.
import { parseExact } from "./json";
import { session } from "./session";
import type { Failure, Violation } from "./types";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly failure: Failure,
    readonly violations: Violation[] = [],
    readonly problems: Record<string, string> = {},
  ) {
    super(failure.message);
  }
}

const GONE: Failure = {
  blame: "transport",
  kind: "Unreachable",
  message: "The inspector does not answer.",
  hint: "Is `trimaran inspect` still running in its terminal? This page reconnects by itself when it is back.",
};

export async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  const headers = { authorization: `Bearer ${session()}` };
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? headers : { ...headers, "content-type": "application/json" },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, GONE);
  }
  if (response.ok) return response;
  let answer: { error?: Failure; violations?: Violation[]; problems?: Record<string, string> } = {};
  try {
    answer = (await response.json()) as typeof answer;
  } catch {
    // not JSON: the status says what there is to say
  }
  const failure = answer.error ?? { blame: "client", kind: "HTTP", message: `The inspector answered ${response.status}.` };
  throw new ApiError(response.status, failure, answer.violations ?? [], answer.problems ?? {});
}

export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await send(method, path, body);
  const text = await response.text();
  return (text === "" ? undefined : parseExact(text)) as T;
}
export const get = <T>(path: string): Promise<T> => request<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}): Promise<T> => request<T>("POST", path, body);
export const getText = async (path: string): Promise<string> => (await send("GET", path)).text();
export const getBlob = async (path: string): Promise<Blob> => (await send("GET", path)).blob();

const SILENCE_MS = 40_000; // the inspector says something every 15 s: after two of these, and some patience, it is gone

/** Server-sent events until the server ends them. An EventSource would do the same, and cannot send the session. */
export async function readEvents(path: string, signal: AbortSignal, opened: () => void, take: (id: number, data: string) => void): Promise<void> {
  const { body } = await send("GET", path, undefined, signal);
  opened();
  const reader = body!.pipeThrough(new TextDecoderStream()).getReader();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const watch = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => void reader.cancel().catch(() => undefined), SILENCE_MS);
  };
  let text = "";
  for (;;) {
    watch();
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const searched = Math.max(0, text.length - 1);
    text += value;
    let begin = 0;
    for (let end = text.indexOf("\n\n", searched); end >= 0; end = text.indexOf("\n\n", begin)) {
      const [, id, data] = /^id: (\d+)\ndata: (.*)$/s.exec(text.slice(begin, end)) ?? []; // the inspector writes each in one line
      if (data !== undefined) take(Number(id), data);
      begin = end + 2;
    }
    text = text.slice(begin);
  }
}

export function query(values: Record<string, string | number | undefined>): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value !== undefined && value !== "") words.set(key, String(value));
  const text = words.toString();
  return text ? `?${text}` : "";
}
export const part = encodeURIComponent;
