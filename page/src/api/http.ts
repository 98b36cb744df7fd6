// Requests to the inspector's own origin. Every failure becomes an ApiError that says who failed.
import { parseExact } from "./json";
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

async function send(method: string, path: string, body?: unknown): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "content-type": "application/json" },
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

export function query(values: Record<string, string | number | undefined>): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value !== undefined && value !== "") words.set(key, String(value));
  const text = words.toString();
  return text ? `?${text}` : "";
}
export const part = encodeURIComponent;
