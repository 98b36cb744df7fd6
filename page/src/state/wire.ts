// The messages of the wire, newest last. Rows are appended in batches and filtered once each, so that 100,000 of them cost
// the same per frame as a hundred. Bodies stay with the inspector and are read one at a time.
import { signal } from "@preact/signals";
import { get, query } from "../api/http";
import type { ExchangeRow, MessageRow } from "../api/types";

const PAGE = 5000; // the most that one request gives
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
    const bySeq = new Map(this.rows.map((row) => [row.seq, row]));
    for (const row of batch) bySeq.set(row.seq, row);
    this.rows = [...bySeq.values()].sort((a, b) => a.seq - b.seq);
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

/** The rows that pass a filter. Only rows that came since the last look are tested. */
export class FilteredRows {
  private matches: MessageRow[] = [];
  private tested = 0;
  private epoch = -1;
  private filter: WireFilter = NO_FILTER;

  constructor(private readonly source: WireRows) {}

  view(filter: WireFilter): MessageRow[] {
    if (filter === NO_FILTER || Object.values(filter).every((value) => value === "")) return this.source.rows;
    const changed = (Object.keys(filter) as (keyof WireFilter)[]).some((key) => filter[key] !== this.filter[key]);
    if (changed || this.epoch !== this.source.epoch || this.tested > this.source.rows.length) {
      this.filter = { ...filter };
      this.epoch = this.source.epoch;
      this.matches = [];
      this.tested = 0;
    }
    const needle = this.filter.text.toLowerCase();
    for (; this.tested < this.source.rows.length; this.tested++) {
      const row = this.source.rows[this.tested]!;
      if (matches(row, this.filter, needle)) this.matches.push(row);
    }
    return this.matches;
  }
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

export class Exchanges {
  readonly byId = new Map<string, ExchangeRow>();
  readonly version = signal(0);

  put(row: ExchangeRow): void {
    this.byId.set(row.id, row);
    if (this.byId.size > MOST) this.byId.delete(this.byId.keys().next().value!);
  }
}

export const wire = new WireRows();
export const exchanges = new Exchanges();
