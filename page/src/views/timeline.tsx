// The session on a line of time: connections, calls with their rounds, HTTP exchanges and streams, and a tick for every
// message. Drawn on a canvas, since there may be 100,000 of them; the same calls stand in a table below for every reader.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { CallRow, MessageRow, Server } from "../api/types";
import { go, link, route, setParams } from "../state/route";
import { activitiesOf, calls, loadActivities, servers } from "../state/store";
import { exchanges, isBad, placeAt, RowsByServer, wire } from "../state/wire";
import { duration, time } from "../ui/format";
import { activityTone, CallBadge, Empty, outcome } from "../ui/parts";
import { Theirs } from "../ui/text";
import { Pick } from "./wire";

interface Bar {
  from: number;
  to: number;
  lane: number;
  tone: string;
  label: string;
  target: readonly string[];
  params: Record<string, string | number>;
  stream: boolean;
  marks: readonly number[];
}
interface Group {
  title: string;
  lanes: number;
  bars: Bar[];
  ticks: readonly MessageRow[];
  /** Those of the ticks that are drawn even where many share a pixel. */
  failures: readonly MessageRow[];
}
const toneOf = (row: MessageRow): string => (isBad(row) ? "bad" : row.direction === "out" ? "accent" : "quiet");
const LANE = 18;
const HEAD = 22; // the axis
const TITLE = 20;
const NAMES = 0;
const MOST_LANES = 12;

interface Span {
  from: number;
  to: number;
}

function buildGroups(list: readonly Server[], only: string, rows: RowsByServer): { groups: Group[]; span: Span } {
  const groups: Group[] = [];
  let first = Infinity;
  let last = 0;
  const now = Date.now();
  const seen = (at: number): void => {
    first = Math.min(first, at);
    last = Math.max(last, at);
  };
  for (const server of list) {
    if (only !== "" && server.id !== only) continue;
    const callBars = calls.value.filter((call) => call.server === server.id).map((call): Bar => {
      seen(call.at);
      seen(call.endedAt ?? now);
      return { from: call.at, to: call.endedAt ?? now, lane: 0, tone: outcome(call)[0], label: call.name, target: ["calls", call.id], params: {}, stream: false, marks: rows.roundsOf(call.id) }; // each round is a request
    });
    const ticks = rows.of(server.id);
    for (const row of [ticks[0], ticks.at(-1)]) if (row) seen(row.at);
    const httpBars: Bar[] = [];
    for (const row of exchanges.byId.values()) {
      if (row.server !== server.id) continue;
      const to = row.endMs !== undefined ? row.at + row.endMs : row.status === undefined || row.stream ? now : row.at + (row.headMs ?? 0);
      seen(row.at);
      httpBars.push({ from: row.at, to, lane: 0, tone: row.failure || (row.status ?? 200) >= 400 ? "bad" : "quiet", label: `${row.verb} ${row.status ?? "…"}${row.stream ? `, stream of ${row.events}` : ""}`, target: ["wire"], params: row.messages[0] !== undefined ? { seq: row.messages[0], server: server.id } : { server: server.id }, stream: row.stream, marks: [] });
    }
    const activity = activitiesOf(server.id);
    const connection = activity.items.map((item): Bar => {
      seen(item.at);
      return { from: item.at, to: item.at, lane: 0, tone: activityTone(item), label: item.text, target: ["s", server.id], params: {}, stream: false, marks: [] };
    });
    if (connection.length > 0) groups.push({ title: `${server.name} · connection`, lanes: 1, bars: connection, ticks: [], failures: [] });
    if (callBars.length > 0) groups.push({ title: `${server.name} · calls`, lanes: pack(callBars), bars: callBars, ticks: [], failures: [] });
    if (httpBars.length > 0) groups.push({ title: `${server.name} · HTTP`, lanes: pack(httpBars), bars: httpBars, ticks: [], failures: [] });
    if (ticks.length > 0) groups.push({ title: `${server.name} · messages`, lanes: 1, bars: [], ticks, failures: rows.failuresOf(server.id) });
  }
  if (first === Infinity) [first, last] = [now - 1000, now];
  const margin = Math.max(10, (last - first) * 0.02);
  return { groups, span: { from: first - margin, to: last + margin } };
}

/** Put bars that overlap into lanes of their own. */
function pack(bars: Bar[]): number {
  bars.sort((a, b) => a.from - b.from);
  const ends: number[] = [];
  for (const bar of bars) {
    let lane = ends.findIndex((end) => end <= bar.from);
    if (lane < 0) lane = ends.length < MOST_LANES ? ends.length : bar.from % MOST_LANES | 0;
    ends[lane] = bar.to;
    bar.lane = lane;
  }
  return Math.max(1, ends.length);
}

interface Hit {
  bar?: Bar;
  tick?: Group["ticks"][number];
}

class Drawing {
  constructor(private readonly canvas: HTMLCanvasElement, private readonly groups: Group[], private readonly view: Span) {}

  private x = (at: number): number => ((at - this.view.from) / (this.view.to - this.view.from)) * this.canvas.clientWidth;

  draw(): void {
    const { canvas } = this;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = totalHeight(this.groups);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d")!;
    context.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
    const tones: Record<string, string> = { ok: colour("ok"), bad: colour("bad"), warn: colour("warn"), busy: colour("accent"), quiet: colour("faint"), accent: colour("accent") };
    context.font = `11px ${style.fontFamily}`;
    context.textBaseline = "middle";
    this.axis(context, width, height, colour("line"), colour("faint"));
    let top = HEAD;
    for (const group of this.groups) {
      context.fillStyle = colour("faint");
      context.fillText(group.title, 8 + NAMES, top + TITLE / 2, width - 16);
      top += TITLE;
      group.bars.forEach((bar, index) => {
        const next = bar.from === bar.to ? group.bars[index + 1] : undefined; // a label of a moment ends at the next moment
        this.bar(context, bar, top + bar.lane * LANE, tones[bar.tone] ?? tones["quiet"]!, colour("text"), colour("ground"), width, next ? this.x(next.from) - this.x(bar.from) : Infinity);
      });
      this.ticks(context, group, top, tones, width);
      top += group.lanes * LANE + 4;
    }
  }

  private axis(context: CanvasRenderingContext2D, width: number, height: number, line: string, text: string): void {
    const range = this.view.to - this.view.from;
    const rough = range / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough)!;
    context.strokeStyle = line;
    context.fillStyle = text;
    for (let at = Math.ceil(this.view.from / step) * step; at < this.view.to; at += step) {
      const place = Math.round(this.x(at)) + 0.5;
      context.beginPath();
      context.moveTo(place, HEAD - 4);
      context.lineTo(place, height);
      context.stroke();
      context.fillText(step >= 1000 ? time(at).slice(0, 8) : time(at).slice(3), place + 3, HEAD / 2);
    }
  }

  private bar(context: CanvasRenderingContext2D, bar: Bar, top: number, tone: string, text: string, ground: string, width: number, most: number): void {
    const from = this.x(bar.from);
    const to = Math.max(from + 3, this.x(bar.to));
    if (to < 0 || from > width) return;
    context.fillStyle = tone;
    context.globalAlpha = bar.stream ? 0.25 : 0.35;
    context.fillRect(from, top + 2, to - from, LANE - 4);
    context.globalAlpha = 1;
    context.fillRect(from, top + 2, 2, LANE - 4);
    context.fillStyle = ground;
    for (const mark of bar.marks.slice(1)) context.fillRect(this.x(mark) - 1, top + 2, 2, LANE - 4);
    const room = Math.min(most, Math.max(to - from, bar.from === bar.to ? 260 : 0));
    if (room > 34) {
      context.save();
      context.beginPath();
      context.rect(from + 4, top, room - 6, LANE);
      context.clip();
      context.fillStyle = text;
      context.fillText(bar.label.slice(0, 60), Math.max(from, 0) + 6, top + LANE / 2);
      context.restore();
    }
  }

  private ticks(context: CanvasRenderingContext2D, group: Group, top: number, tones: Record<string, string>, width: number): void {
    // One line per pixel is all that can be seen: look at the first row of each, and jump to the next pixel.
    const perPixel = (this.view.to - this.view.from) / width;
    const line = (row: MessageRow): number => {
      const pixel = Math.floor(this.x(row.at));
      context.fillStyle = tones[toneOf(row)]!;
      context.fillRect(pixel, top + 3, 1, LANE - 6);
      return pixel;
    };
    for (const rows of [group.ticks, group.failures]) {
      for (let place = placeAt(rows, this.view.from); place < rows.length && rows[place]!.at <= this.view.to; ) {
        const pixel = line(rows[place]!);
        place = placeAt(rows, this.view.from + (pixel + 1) * perPixel, place + 1);
      }
    }
  }

  hit(x: number, y: number): Hit {
    let top = HEAD;
    for (const group of this.groups) {
      top += TITLE;
      const bottom = top + group.lanes * LANE;
      if (y >= top && y < bottom) {
        const lane = Math.floor((y - top) / LANE);
        const bar = group.bars.findLast((candidate) => candidate.lane === lane && x >= this.x(candidate.from) - 3 && x <= Math.max(this.x(candidate.to), this.x(candidate.from) + 6));
        if (bar) return { bar };
        const at = this.view.from + (x / this.canvas.clientWidth) * (this.view.to - this.view.from);
        const place = placeAt(group.ticks, at);
        let best: MessageRow | undefined;
        let distance = 6;
        for (const tick of group.ticks.slice(Math.max(0, place - 1), place + 1)) {
          const away = Math.abs(this.x(tick.at) - x);
          if (away < distance) [best, distance] = [tick, away];
        }
        return { tick: best };
      }
      top = bottom + 4;
    }
    return {};
  }
}

const totalHeight = (groups: Group[]): number => HEAD + groups.reduce((sum, group) => sum + TITLE + group.lanes * LANE + 4, 0) + 6;

export function TimelinePage(): JSX.Element {
  const only = route.value.params["server"] ?? "";
  const canvas = useRef<HTMLCanvasElement>(null);
  const [view, setView] = useState<Span | undefined>(undefined);
  const [tip, setTip] = useState<{ x: number; y: number; text: string } | undefined>(undefined);
  const [width, setWidth] = useState(0);
  const stories = servers.value.reduce((sum, server) => sum + activitiesOf(server.id).version.value, 0);
  const wireVersion = useThrottled(wire.version.value + exchanges.version.value + stories);
  const rows = useMemo(() => new RowsByServer(wire), []);
  rows.update();
  const { groups, span } = useMemo(() => buildGroups(servers.value, only, rows), [only, wireVersion, calls.value, servers.value]);
  const shown = view ?? span;
  const drawing = useRef<Drawing>(undefined);
  useEffect(() => {
    for (const server of servers.value) loadActivities(server.id);
  }, [servers.value.length]);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(canvas.current?.clientWidth ?? 0));
    if (canvas.current) watch.observe(canvas.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!canvas.current) return;
    drawing.current = new Drawing(canvas.current, groups, shown);
    drawing.current.draw();
  }, [groups, shown.from, shown.to, width, document.documentElement.dataset["theme"]]);

  const zoom = (factor: number, around = (shown.from + shown.to) / 2): void => {
    const from = around - (around - shown.from) * factor;
    const to = around + (shown.to - around) * factor;
    if (to - from > 0.5 && to - from < 1e9) setView({ from, to });
  };
  const pan = (fraction: number): void => {
    const step = (shown.to - shown.from) * fraction;
    setView({ from: shown.from + step, to: shown.to + step });
  };
  const onWheel = (event: WheelEvent): void => {
    event.preventDefault();
    const box = canvas.current!.getBoundingClientRect();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / box.width);
    else zoom(Math.exp(event.deltaY / 400), shown.from + ((event.clientX - box.left) / box.width) * (shown.to - shown.from));
  };
  useEffect(() => {
    const element = canvas.current;
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  });
  const at = (event: MouseEvent): Hit => {
    const box = canvas.current!.getBoundingClientRect();
    return drawing.current?.hit(event.clientX - box.left, event.clientY - box.top) ?? {};
  };
  const dragged = useRef(false);
  const drag = (event: PointerEvent): void => {
    const start = { x: event.clientX, ...shown };
    dragged.current = false;
    const move = (moved: PointerEvent): void => {
      if (Math.abs(moved.clientX - start.x) < 4) return;
      dragged.current = true;
      const shift = ((start.x - moved.clientX) / canvas.current!.clientWidth) * (start.to - start.from);
      setView({ from: start.from + shift, to: start.to + shift });
    };
    const stop = (): void => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  };
  const open = (event: MouseEvent): void => {
    if (dragged.current) return;
    const { bar, tick } = at(event);
    if (bar) go(bar.target, bar.params);
    else if (tick) go(["wire"], { seq: tick.seq });
  };
  const hover = (event: MouseEvent): void => {
    const { bar, tick } = at(event);
    const text = bar ? `${bar.label}${bar.to > bar.from ? ` · ${duration(bar.to - bar.from)}` : ""}` : tick?.summary;
    setTip(text === undefined ? undefined : { x: event.clientX, y: event.clientY, text });
  };
  const onKey = (event: KeyboardEvent): void => {
    const keys: Record<string, () => void> = { "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), Home: () => setView(undefined), "0": () => setView(undefined) };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  const visible = calls.value.filter((call) => (only === "" || call.server === only) && call.at <= shown.to && (call.endedAt ?? Date.now()) >= shown.from);
  return (
    <div class="page timeline-page">
      <h1 class="visually-hidden">Timeline</h1>
      <div class="wire-tools">
        <Pick label="Server" value={only} set={(server) => setParams({ server })} options={servers.value.map((server) => [server.id, server.name])} />
        <button type="button" class="small" aria-label="Zoom in" onClick={() => zoom(0.6)}>+</button>
        <button type="button" class="small" aria-label="Zoom out" onClick={() => zoom(1.7)}>−</button>
        <button type="button" class="small" onClick={() => setView(undefined)}>Fit</button>
        <span class="note inline">{duration(shown.to - shown.from)} in view. Wheel zooms, drag moves; + − ← → with the keyboard.</span>
        <span class="grow" />
        <a class="button small ghost" href={link(["wire"], { server: only })}>Messages</a>
      </div>
      <canvas ref={canvas} class="timeline" tabIndex={0} role="img" aria-label="Timeline of calls, exchanges and messages; the table below has the calls" style={{ height: `${totalHeight(groups)}px` }} onPointerDown={drag} onClick={open} onMouseMove={hover} onMouseLeave={() => setTip(undefined)} onKeyDown={onKey} />
      {tip && <div class="tip" style={{ left: `${tip.x + 12}px`, top: `${tip.y + 14}px` }}><Theirs text={tip.text} /></div>}
      <CallTable items={visible} />
    </div>
  );
}

/** At most a few times a second: placing the bars of 10,000 exchanges is not for every frame. */
function useThrottled(value: number): number {
  const [slow, setSlow] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const latest = useRef(value);
  latest.current = value;
  useEffect(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      setSlow(latest.current);
    }, 400);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return slow;
}

function CallTable({ items }: { items: readonly CallRow[] }): JSX.Element {
  if (items.length === 0) return <Empty title="No call in view"><p>Calls appear here and above as they are made.</p></Empty>;
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label="Calls in view">
      <table class="data calls">
        <thead><tr><th scope="col">began</th><th scope="col">call</th><th scope="col">outcome</th><th scope="col" class="num">took</th><th scope="col" class="num">wire</th><th scope="col" class="num">rounds</th></tr></thead>
        <tbody>
          {items.slice(-200).reverse().map((call) => (
            <tr key={call.id}><td class="time">{time(call.at)}</td><td><a href={link(["calls", call.id])}><Theirs text={call.name} /></a></td><td><CallBadge call={call} /></td><td class="num">{duration(call.ms)}</td><td class="num">{duration(call.wireMs)}</td><td class="num">{call.rounds}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
