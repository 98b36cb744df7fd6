// What the page knows: servers, calls, questions, logs. Filled by one GET of the state and then by the event stream.
// Events are queued as they arrive and applied once per frame, within a budget, so that a burst never blocks a frame.
import { batch, computed, signal, type Signal } from "@preact/signals";
import { ApiError, get, query, readEvents } from "../api/http";
import type {
  Activity, CallDetail, CallRow, Catalog, DoctorReport, Event, ExchangeRow, LogLine, MessageRow, OAuthFlow, Progress, Question,
  Recording, Server, State,
} from "../api/types";
import { currentServerId } from "./route";
import { exchanges, wire } from "./wire";

const FRAME_BUDGET_MS = 8; // half of a frame at 60 Hz: the other half is for drawing
const LINES_KEPT = 10_000; // log and progress lines per list; older ones are in the wire
const CALLS_KEPT = 2000;

export const version = signal("");
export const canSample = signal(false);
export const servers = signal<readonly Server[]>([]);
export const calls = signal<readonly CallRow[]>([]);
export const questions = signal<readonly Question[]>([]);
export const recordings = signal<readonly Recording[]>([]);
export const activeRecording = signal<string | undefined>(undefined);
export const flows = signal<readonly OAuthFlow[]>([]);
export const savedVersion = signal(0);
export const connection = signal<"opening" | "open" | "lost" | "refused">("opening");
export const ready = signal(false);

export const currentServer = computed(() => servers.value.find((server) => server.id === currentServerId.value));
export const serverName = (id: string): string => servers.value.find((server) => server.id === id)?.name ?? id;

/** An append-only list that is drawn again when its version changes. */
export class Lines<T> {
  items: T[] = [];
  readonly version = signal(0);
  dropped = 0;

  push(item: T): void {
    this.items.push(item);
    if (this.items.length > LINES_KEPT * 1.2) {
      this.dropped += this.items.length - LINES_KEPT;
      this.items.splice(0, this.items.length - LINES_KEPT);
    }
    touched.add(this.version);
  }
}

const touched = new Set<Signal<number>>();

function keyed<T>(make: () => T): (key: string) => T {
  const all = new Map<string, T>();
  return (key) => {
    let value = all.get(key);
    if (value === undefined) all.set(key, (value = make()));
    return value;
  };
}

export interface LogEntry extends LogLine {
  call?: string;
}
export const logsOf = keyed(() => new Lines<LogEntry>());
export const callLogs = keyed(() => new Lines<LogEntry>());
export const callProgress = keyed(() => new Lines<Progress & { at: number }>());
export const stderrOf = keyed(() => new Lines<{ at: number; text: string; seq: number }>());
export const activitiesOf = keyed(() => new Lines<Activity>());
const loadedActivities = new Set<string>();

/** The story of a connection from its beginning; later lines come as events. */
export function loadActivities(id: string): void {
  if (loadedActivities.has(id)) return;
  loadedActivities.add(id);
  get<Server & { activities: Activity[] }>(`/api/servers/${id}`).then(
    (answer) => {
      const lines = activitiesOf(id);
      const last = answer.activities.at(-1)?.at ?? 0;
      lines.items = [...answer.activities, ...lines.items.filter((item) => item.at > last)];
      lines.version.value++;
    },
    () => loadedActivities.delete(id),
  );
}

export const catalogOf = keyed(() => signal<Catalog | undefined>(undefined));
export const doctorOf = keyed(() => signal<DoctorReport | undefined>(undefined));
export const updatedResources = signal<ReadonlyMap<string, number>>(new Map());

const wantedCatalogs = new Set<string>();
const catalogTimers = new Map<string, ReturnType<typeof setTimeout>>();

/** Read a server's catalog now, and again whenever the inspector says that it changed. */
export async function loadCatalog(id: string): Promise<void> {
  wantedCatalogs.add(id);
  catalogOf(id).value = await get<Catalog>(`/api/servers/${id}/catalog`);
}

function catalogChanged(id: string): void {
  if (!wantedCatalogs.has(id) || catalogTimers.has(id)) return;
  catalogTimers.set(
    id,
    setTimeout(() => {
      catalogTimers.delete(id);
      loadCatalog(id).catch(() => undefined); // the next event tries again
    }, 100),
  );
}

/** The details of calls that were opened; running ones are read again when they end. */
export const callDetails = keyed(() => signal<CallDetail | undefined>(undefined));
const openDetails = new Set<string>();
export async function loadCall(id: string): Promise<void> {
  openDetails.add(id);
  callDetails(id).value = await get<CallDetail>(`/api/calls/${id}`);
}

function putById<T extends { id: string }>(list: Signal<readonly T[]>, item: T): void {
  const index = list.value.findIndex((other) => other.id === item.id);
  if (index < 0) list.value = [...list.value, item];
  else list.value = list.value.with(index, item);
}

interface Pending {
  rows: MessageRow[];
  calls: Map<string, CallRow>;
}

function apply(event: Event, pending: Pending): void {
  switch (event.type) {
    case "reset":
      void start();
      break;
    case "server":
      putById(servers, event.server);
      break;
    case "server-removed":
      servers.value = servers.value.filter((server) => server.id !== event.id);
      break;
    case "activity":
      if (event.activity.at > (activitiesOf(event.server).items.at(-1)?.at ?? 0)) activitiesOf(event.server).push(event.activity);
      break;
    case "stderr":
      // An event may come after the answer that had its lines already.
      if (event.seq > (stderrOf(event.server).items.at(-1)?.seq ?? 0)) for (const text of event.lines) stderrOf(event.server).push({ at: event.at, text, seq: event.seq });
      break;
    case "catalog":
      catalogChanged(event.server);
      break;
    case "resource-updated":
      updatedResources.value = new Map(updatedResources.value).set(`${event.server} ${event.uri}`, event.at);
      break;
    case "message":
      pending.rows.push(event.message);
      break;
    case "messages-skipped":
      void wire.loadGap(event.first, event.last).catch(() => undefined);
      break;
    case "exchange":
      exchanges.put(event.exchange);
      touched.add(exchanges.version);
      break;
    case "call":
      pending.calls.set(event.call.id, event.call);
      break;
    case "progress": {
      const { call, progress, total, message, at } = event;
      callProgress(call).push({ progress, total, message, at });
      break;
    }
    case "log": {
      const line = { at: event.at, level: event.level, logger: event.logger, data: event.data, call: event.call };
      logsOf(event.server).push(line);
      if (event.call !== undefined) callLogs(event.call).push(line);
      break;
    }
    case "question":
      putById(questions, event.question);
      break;
    case "question-closed":
      questions.value = questions.value.filter((question) => question.id !== event.id);
      break;
    case "task":
      catalogChanged(event.server);
      break;
    case "doctor":
      applyDoctor(event);
      break;
    case "oauth":
      putById(flows, event.flow);
      break;
    case "recording":
      putById(recordings, event.recording);
      if (event.recording.state === "recording") activeRecording.value = event.recording.id;
      else if (activeRecording.value === event.recording.id) activeRecording.value = undefined;
      break;
    case "recording-removed":
      recordings.value = recordings.value.filter((recording) => recording.id !== event.id);
      break;
    case "saved":
      savedVersion.value++;
      break;
  }
}

function applyDoctor(event: Extract<Event, { type: "doctor" }>): void {
  const report = doctorOf(event.server);
  let current = report.value;
  if (current === undefined || current.run !== event.run) current = { run: event.run, done: false, healthy: true, counts: {}, checks: [] };
  const checks = event.check ? [...current.checks, event.check] : current.checks;
  report.value = { ...current, checks, done: event.done ?? current.done, healthy: checks.every((check) => check.status !== "fail") };
}

function settle(pending: Pending): void {
  wire.add(pending.rows);
  if (pending.calls.size > 0) {
    const fresh = new Map(pending.calls);
    const list = calls.value.map((call) => {
      const newer = fresh.get(call.id);
      if (newer === undefined) return call;
      fresh.delete(call.id);
      return newer;
    });
    calls.value = [...list, ...fresh.values()].slice(-CALLS_KEPT);
    for (const call of pending.calls.values()) if (call.endedAt !== undefined && openDetails.has(call.id)) void loadCall(call.id).catch(() => undefined);
  }
  for (const one of touched) one.value++;
  touched.clear();
}

let queue: Event[] = [];
let position = 0;
let scheduled = false;

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  // A hidden page gets no frames, and must not let the queue grow meanwhile.
  if (document.hidden) setTimeout(flush, 100);
  else requestAnimationFrame(flush);
}

function flush(): void {
  scheduled = false;
  const end = performance.now() + FRAME_BUDGET_MS;
  const pending: Pending = { rows: [], calls: new Map() };
  batch(() => {
    while (position < queue.length && (position % 64 !== 0 || performance.now() < end)) {
      apply(queue[position++]!, pending);
    }
    settle(pending);
  });
  if (position >= queue.length) {
    queue = [];
    position = 0;
  } else {
    schedule();
  }
}

let stream: AbortController | undefined;
const AGAIN_MS = 1500; // after a lost stream

async function follow(after: number): Promise<void> {
  stream?.abort();
  const mine = (stream = new AbortController());
  let received = after;
  let isRefused = false;
  try {
    await readEvents(`/api/events${query({ after })}`, mine.signal, () => (connection.value = "open"), (id, data) => {
      received = id;
      for (const event of JSON.parse(data) as Event[]) queue.push(event);
      schedule();
    });
  } catch (error) {
    isRefused = error instanceof ApiError && error.status > 0;
  }
  if (mine !== stream) return;
  connection.value = "lost";
  setTimeout(() => {
    if (mine === stream) void (isRefused ? start() : follow(received));
  }, AGAIN_MS);
}

/** Read the whole state, then follow the events from there. */
export async function start(): Promise<void> {
  let state: State;
  try {
    state = await get<State>("/api/state");
  } catch (error) {
    const refused = error instanceof ApiError && (error.status === 401 || error.status === 403);
    connection.value = refused ? "refused" : "lost";
    if (!refused) setTimeout(() => void start(), 1500);
    return;
  }
  queue = [];
  position = 0;
  batch(() => {
    version.value = state.version;
    canSample.value = state.canSample;
    servers.value = state.servers;
    calls.value = state.calls;
    questions.value = state.questions;
    recordings.value = state.recordings;
    activeRecording.value = state.active;
    ready.value = true;
  });
  void follow(state.seq);
  for (const id of wantedCatalogs) catalogChanged(id);
  void wire.loadAll().catch(() => undefined);
  void get<{ exchanges: ExchangeRow[] }>("/api/exchanges?limit=5000")
    .then((answer) => {
      for (const row of answer.exchanges) exchanges.put(row);
      exchanges.version.value++;
    })
    .catch(() => undefined);
}
