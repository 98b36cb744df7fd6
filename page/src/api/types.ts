// The shapes of the inspector's interface (docs/reference/inspector.md). Times are milliseconds since 1970.
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** Who failed: the server, the way there, our own check of its answer, credentials, our side, or a person who declined. */
export type Blame = "server" | "transport" | "check" | "auth" | "client" | "person";
export interface Failure {
  blame: Blame;
  kind: string;
  message: string;
  code?: number;
  status?: number;
  data?: Json;
  hint?: string;
}

export type CatalogKind = "tools" | "resources" | "templates" | "prompts" | "skills" | "tasks";
export type ServerState = "idle" | "connecting" | "ready" | "reconnecting" | "needs-auth" | "failed" | "closed";

export interface ServerOptions {
  era: "auto" | "modern" | "legacy";
  revision?: string;
  /** Milliseconds. */
  timeout: number;
  maxMessageBytes: number;
  elicitation: boolean;
  sampling: boolean;
  roots: boolean;
  logLevel?: string | null;
  headers: string[];
}
export interface Icon {
  src: string;
  mimeType?: string;
  sizes?: string[];
}
export interface Server {
  id: string;
  name: string;
  target: string;
  transport: "stdio" | "http" | "sse" | "memory" | "recording";
  source: { kind: string; label: string };
  state: ServerState;
  failure?: Failure;
  era?: "modern" | "legacy";
  revision?: string;
  info?: { name: string; version: string; title?: string; websiteUrl?: string; icons?: Icon[] };
  capabilities?: JsonObject;
  clientCapabilities: JsonObject;
  instructions?: string;
  sessionId?: string;
  pid?: number;
  connectedAt?: number;
  connectingSince?: number;
  connectMs?: number;
  connections: number;
  stderrLines: number;
  counts: Partial<Record<CatalogKind, number>>;
  tokens?: number;
  options: ServerOptions;
  subscriptions: string[];
  roots: { uri: string; name?: string }[];
}
export interface Activity {
  at: number;
  what: string;
  text: string;
  failure?: Failure;
}
export interface Source {
  key: string;
  name: string;
  program: string;
  file: string;
  target: string;
  transport: string;
  problem?: string;
  used?: string;
}
export interface NewServer {
  target?: string;
  source?: string;
  name?: string;
  connect?: boolean;
  headers?: Record<string, string>;
  bearer?: string;
  env?: Record<string, string>;
  cwd?: string;
  options?: Partial<ServerOptions>;
}

export interface Finding {
  severity: "info" | "warn" | "fail";
  where: string;
  problem: string;
  remedy?: string;
  source: string;
  tool?: string;
}
export interface ToolEntry {
  definition: JsonObject;
  tokens: number;
  hidden: boolean;
  app?: { uri: string };
  longRunning?: boolean;
  problems: Finding[];
}
export interface Task {
  id: string;
  status: string;
  statusMessage?: string;
  createdAt?: string;
  ttl?: number;
  call?: string;
  raw: Json;
}
export interface Catalog {
  tools: ToolEntry[];
  resources: JsonObject[];
  templates: JsonObject[];
  prompts: JsonObject[];
  skills: JsonObject[];
  tasks: Task[];
  errors: Partial<Record<CatalogKind, Failure>>;
  readAt: Partial<Record<CatalogKind, number>>;
  cacheHints: Partial<Record<CatalogKind, { ttlMs?: number; scope?: string }>>;
}

export type CallKind = "tool" | "resource" | "prompt" | "request";
export type CallState = "running" | "waiting" | "cancelling" | "ok" | "tool-error" | "invalid" | "failed" | "cancelled";
export interface NewCall {
  server: string;
  kind: CallKind;
  name: string;
  arguments?: Json;
  sendAnyway?: boolean;
  asTask?: boolean;
  timeoutMs?: number | null;
  meta?: Json;
  by?: "page" | "app" | "run" | "try";
  fresh?: boolean;
}
export interface Progress {
  progress: number;
  total?: number;
  message?: string;
}
export interface CallRow {
  id: string;
  server: string;
  kind: CallKind;
  name: string;
  by: string;
  at: number;
  endedAt?: number;
  state: CallState;
  failure?: Failure;
  ms?: number;
  wireMs?: number;
  ownMs?: number;
  waitMs?: number;
  rounds: number;
  requestIds: (string | number)[];
  messages: number[];
  progress?: Progress;
  logs: number;
  size?: number;
  task?: string;
  resultTokens?: number;
}
export interface Violation {
  path: string;
  message: string;
  keyword?: string;
}
export interface LogLine {
  at?: number;
  level: string;
  logger?: string;
  data: Json;
}
/** A text of the result that is longer than what came with the call. */
export interface CutText {
  path: string;
  length: number;
}

export interface CallDetail extends CallRow {
  arguments: Json;
  result?: Json;
  resultTruncated?: boolean;
  cut?: CutText[];
  structuredCheck?: { ok: boolean; violations: Violation[] };
  progressLog: (Progress & { at?: number })[];
  logLines: LogLine[];
  questions: Question[];
  violations: Violation[];
}

export interface Field {
  name: string;
  title: string;
  description: string;
  hint: string;
  kind: "text" | "number" | "integer" | "boolean" | "choice" | "choices";
  required: boolean;
  default?: Json;
  choices: { value: Json; title: string }[];
  schema: Json;
}
export interface Question {
  id: string;
  server: string;
  call?: string;
  at: number;
  era: "modern" | "legacy";
  round?: number;
  kind: "elicit" | "url" | "sampling" | "roots" | "request";
  message: string;
  schema?: JsonObject;
  fields?: Field[];
  url?: string;
  host?: string;
  elicitationId?: string;
  sampling?: JsonObject;
  raw: Json;
  answer?: { action: string; content?: Json; at: number };
}

export interface MessageRow {
  seq: number;
  at: number;
  server: string;
  direction: "out" | "in";
  kind: "request" | "response" | "error" | "notification" | "invalid";
  method?: string;
  id?: string | number;
  pair?: number;
  ms?: number;
  size: number;
  call?: string;
  exchange?: string;
  summary: string;
  era?: string;
  revision?: string;
  connection: number;
}
export interface ExchangeRow {
  id: string;
  at: number;
  server: string;
  verb: string;
  url: string;
  status?: number;
  stream: boolean;
  events: number;
  headMs?: number;
  endMs?: number;
  sent: number;
  received: number;
  messages: number[];
  call?: string;
  failure?: string;
}
export interface Exchange extends ExchangeRow {
  requestHeaders: [string, string][];
  responseHeaders: [string, string][];
  decoded: { header: string; value: string; meaning: string }[];
  errorBody?: string;
}
export interface MessageDetail extends Omit<MessageRow, "exchange"> {
  body?: Json;
  text?: string;
  truncated?: boolean;
  exchange?: Exchange;
}

export interface DiffLine {
  mark: " " | "-" | "+";
  text: string;
}
export interface Outcome {
  title: string;
  ok: boolean;
  era?: string;
  revision?: string;
  connectMs?: number;
  callMs?: number;
  failure?: Failure;
  result?: Json;
  tools?: string[];
  events: string[];
  messages: number[];
}
export interface TryResult {
  what: string;
  value?: Json;
  baseline: Outcome;
  variant: Outcome;
  same: boolean;
  difference: DiffLine[];
  verdict: string;
}

export interface OAuthStep {
  n: number;
  phase: string;
  title: string;
  at: number;
  ms?: number;
  request?: { method: string; url: string; headers: [string, string][]; body?: string };
  response?: { status: number; headers: [string, string][]; body?: string };
  ok?: boolean;
  problem?: string;
  remedy?: string;
  notes: string[];
}
export interface OAuthFlow {
  id: string;
  server: string;
  state: "paused" | "running" | "waiting-for-browser" | "done" | "failed";
  authorizationUrl?: string;
  steps: OAuthStep[];
  next?: string;
  result?: { scope?: string; expiresIn?: number; tokenType?: string; hasRefreshToken: boolean; claims?: Json };
  failure?: Failure;
}

export interface Check {
  section: string;
  key: string;
  title: string;
  status: "ok" | "warn" | "fail" | "skipped";
  seen: string;
  why: string;
  fix: string;
  details: string[];
}
export interface DoctorReport {
  run: string;
  done: boolean;
  healthy: boolean;
  counts: Record<string, number>;
  checks: Check[];
}
export interface Cost {
  counter: string;
  total: number;
  tools: { name: string; tokens: number; description: number; schema: number }[];
  instructions: number;
}
export interface PermissionAnswer {
  problems: string[];
  act: string;
  action: "allow" | "ask" | "deny";
  text: string;
  verdicts: { tier: string; action: string; rule?: string; where?: string; match: string; decides: boolean }[];
}

export interface Recording {
  id: string;
  name: string;
  at: number;
  endedAt?: number;
  servers: string[];
  messages: number;
  calls: number;
  bytes: number;
  state: "recording" | "done" | "imported";
}
export type Expectation =
  | { what: "ok" }
  | { what: "error" }
  | { what: "text"; contains?: string; equals?: string; matches?: string }
  | { what: "value"; path: string; equals: Json }
  | { what: "schema" }
  | { what: "faster"; ms: number };
export interface Saved {
  id: string;
  title: string;
  server: string;
  kind: string;
  name: string;
  arguments: Json;
  expect: Expectation[];
}
export interface RunResult {
  id: string;
  title: string;
  passed: boolean;
  ms: number;
  failures: string[];
  call: string;
}

export interface State {
  version: string;
  seq: number;
  now: number;
  servers: Server[];
  calls: CallRow[];
  questions: Question[];
  recordings: Recording[];
  active?: string;
  messages: { first: number; last: number; count: number; dropped: number; bytes: number };
  limits: { messages: number; bytes: number; inline: number; batchMs: number };
  canSample: boolean;
}

export type Event = { seq: number; at: number } & (
  | { type: "reset" }
  | { type: "server"; server: Server }
  | { type: "server-removed"; id: string }
  | { type: "activity"; server: string; activity: Activity }
  | { type: "stderr"; server: string; lines: string[]; dropped?: number }
  | { type: "catalog"; server: string; kind: CatalogKind; count: number; error?: Failure }
  | { type: "resource-updated"; server: string; uri: string }
  | { type: "message"; message: MessageRow }
  | { type: "messages-skipped"; first: number; last: number; count: number }
  | { type: "exchange"; exchange: ExchangeRow }
  | { type: "call"; call: CallRow }
  | ({ type: "progress"; call: string } & Progress)
  | { type: "log"; server: string; call?: string; level: string; logger?: string; data: Json }
  | { type: "question"; question: Question }
  | { type: "question-closed"; id: string; answer: string }
  | { type: "task"; server: string; task: Task }
  | { type: "doctor"; server: string; run: string; check?: Check; done?: boolean }
  | { type: "oauth"; flow: OAuthFlow }
  | { type: "recording"; recording: Recording }
  | { type: "recording-removed"; id: string }
  | { type: "saved" }
);
