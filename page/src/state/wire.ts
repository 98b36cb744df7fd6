// The messages of the wire, newest last. Rows are appended in batches and filtered once each, so that 100,000 of them cost
// the same per frame as a hundred. Bodies stay with the inspector and are read one at a time.
import { signal } from "@preact/signals";
import { get, query } from "../api/http";
import type { ExchangeRow, MessageRow } from "../api/types";

const PAGE = 2500; // rows in one request: parsing them takes less than half a frame
const EXCHANGES = 10_000; // as many as the inspector keeps
const SLICE_MS = 6; // of work in one frame; the rest of the frame is for drawing
const MOST = 120_000; // rows kept in the page; the inspector itself keeps 100,000

export interface WireFilter {
  text: string;
  server: string;
  direction: string;
  kind: string;
  method: string;
  call: string;
}
export const NO_FILTER: WireFilter = { text: "", server: "", direction: "", kind: "", method: "", call: "" };

export class WireRows {
  rows: MessageRow[] = [];
  /** Changes when rows do. Read it to be drawn again. */
  readonly version = signal(0);
  /** Changes when rows were dropped or inserted, so that filtered lists start anew. */
  epoch = 0;
  loading = false;

  add(batch: MessageRow[]): void {
    if (batch.length === 0) return;
    const last = this.rows.at(-1)?.seq ?? -1;
    const inOrder = batch.every((row, index) => row.seq > (index === 0 ? last : batch[index - 1]!.seq));
    if (inOrder) {
      for (const row of batch) this.rows.push(row);
    } else {
      this.insert(batch);
    }
    if (this.rows.length > MOST) {
      this.rows.splice(0, this.rows.length - MOST + PAGE);
      this.epoch++;
    }
    this.version.value++;
  }

  private insert(batch: MessageRow[]): void {
    this.epoch++;
    // A page of older rows, or a gap, fits in one piece between two rows that are here; sorting 100,000 would cost a frame.
    const place = this.placeOf(batch[0]!.seq);
    const next = this.rows[place]?.seq ?? Infinity;
    const ordered = batch.every((row, index) => index === 0 || row.seq > batch[index - 1]!.seq);
    if (ordered && batch.at(-1)!.seq < next) {
      this.rows.splice(place, 0, ...batch);
      return;
    }
    const newer = ordered ? batch : batch.toSorted((a, b) => a.seq - b.seq);
    this.merge(newer, this.rows.splice(this.placeOf(newer[0]!.seq)));
  }

  /** Append two lists that are in order, each number once. */
  private merge(newer: readonly MessageRow[], older: readonly MessageRow[]): void {
    for (let left = 0, right = 0; left < newer.length || right < older.length; ) {
      const next = (newer[left]?.seq ?? Infinity) <= (older[right]?.seq ?? Infinity) ? newer[left++]! : older[right++]!;
      if (next.seq !== this.rows.at(-1)?.seq) this.rows.push(next);
    }
  }

  /** The place of the first row with this number or a later one. */
  private placeOf(seq: number): number {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle]!.seq < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  clear(): void {
    this.rows = [];
    this.epoch++;
    this.version.value++;
  }

  /** Read what the inspector still has, newest first, a page at a time, until all of it is here. */
  async loadAll(): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    try {
      for (;;) {
        const before = this.rows[0]?.seq;
        const page = await get<{ messages: MessageRow[]; more: boolean }>(`/api/messages${query({ before, limit: PAGE })}`);
        this.add(page.messages);
        if (!page.more || page.messages.length === 0 || this.rows.length >= MOST - PAGE) return;
        await new Promise((resolve) => setTimeout(resolve, 0));
      }
    } finally {
      this.loading = false;
    }
  }

  /** Read a gap that the event stream left out. */
  async loadGap(first: number, last: number): Promise<void> {
    let after = first - 1;
    while (after < last) {
      const page = await get<{ messages: MessageRow[] }>(`/api/messages${query({ after, before: last + 1, limit: PAGE })}`);
      const newest = page.messages.at(-1)?.seq;
      if (newest === undefined || newest <= after) return;
      this.add(page.messages);
      after = newest;
    }
  }
}

/** Reads each row once, a slice in each frame. After rows were dropped or inserted it reads all of them anew. */
abstract class RowReader {
  private next = 0;
  private epoch = -1;
  private waits = false;

  constructor(protected readonly source: WireRows) {}

  protected abstract forget(): void;
  protected abstract read(row: MessageRow): void;

  protected startOver(): void {
    this.next = 0;
    this.epoch = this.source.epoch;
    this.forget();
  }

  /** Read on; true if all rows are read. If not, the source's version changes in the next frame. */
  protected advance(): boolean {
    const { rows } = this.source;
    if (this.epoch !== this.source.epoch || this.next > rows.length) this.startOver();
    const end = performance.now() + SLICE_MS;
    while (this.next < rows.length && (this.next % 256 !== 0 || performance.now() < end)) this.read(rows[this.next++]!);
    if (this.next < rows.length && this.next % 256 === 0) this.read(rows[this.next++]!); // some progress even in a slow frame
    if (this.next >= rows.length) return true;
    if (!this.waits) {
      this.waits = true;
      requestAnimationFrame(() => {
        this.waits = false;
        this.source.version.value++;
      });
    }
    return false;
  }
}

/** The rows that pass a filter. While they are read anew, the list from before stays in view. */
export class FilteredRows extends RowReader {
  private matches: MessageRow[] = [];
  private before: MessageRow[] = [];
  private filter: WireFilter = NO_FILTER;
  private needle = "";

  protected forget(): void {
    if (this.before.length === 0) this.before = this.matches;
    this.matches = [];
  }

  protected read(row: MessageRow): void {
    if (matches(row, this.filter, this.needle)) this.matches.push(row);
  }

  view(filter: WireFilter): MessageRow[] {
    if (filter === NO_FILTER || Object.values(filter).every((value) => value === "")) return this.source.rows;
    if ((Object.keys(filter) as (keyof WireFilter)[]).some((key) => filter[key] !== this.filter[key])) {
      this.filter = { ...filter };
      this.needle = filter.text.toLowerCase();
      this.startOver();
      this.before = [];
    }
    if (this.advance()) this.before = [];
    return this.before.length > this.matches.length ? this.before : this.matches;
  }
}

/** The rows of each server, and what the timeline marks in them. */
export class RowsByServer extends RowReader {
  private byServer = new Map<string, MessageRow[]>();
  private failures = new Map<string, MessageRow[]>();
  private rounds = new Map<string, number[]>();

  protected forget(): void {
    this.byServer = new Map();
    this.failures = new Map();
    this.rounds = new Map();
  }

  protected read(row: MessageRow): void {
    append(this.byServer, row.server, row);
    if (isBad(row)) append(this.failures, row.server, row);
    if (row.kind === "request" && row.direction === "out" && row.call !== undefined) append(this.rounds, row.call, row.at);
  }

  update(): this {
    this.advance();
    return this;
  }
  of = (server: string): readonly MessageRow[] => this.byServer.get(server) ?? [];
  failuresOf = (server: string): readonly MessageRow[] => this.failures.get(server) ?? [];
  roundsOf = (call: string): readonly number[] => this.rounds.get(call) ?? [];
}

export const isBad = (row: MessageRow): boolean => row.kind === "error" || row.kind === "invalid";

function append<T>(lists: Map<string, T[]>, key: string, item: T): void {
  const list = lists.get(key);
  if (list) list.push(item);
  else lists.set(key, [item]);
}

/** The first row at this time or later. */
export function placeAt(rows: readonly MessageRow[], at: number, low = 0): number {
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle]!.at < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

function matches(row: MessageRow, filter: WireFilter, needle: string): boolean {
  return (
    (filter.server === "" || row.server === filter.server) &&
    (filter.direction === "" || row.direction === filter.direction) &&
    (filter.kind === "" || row.kind === filter.kind) &&
    (filter.method === "" || row.method === filter.method) &&
    (filter.call === "" || row.call === filter.call) &&
    (needle === "" || row.summary.toLowerCase().includes(needle) || (row.method?.toLowerCase().includes(needle) ?? false))
  );
}

class Exchanges {
  readonly byId = new Map<string, ExchangeRow>();
  readonly version = signal(0);

  put(row: ExchangeRow): void {
    this.byId.set(row.id, row);
    if (this.byId.size > EXCHANGES) this.byId.delete(this.byId.keys().next().value!);
  }
}

export const wire = new WireRows();
export const exchanges = new Exchanges();
