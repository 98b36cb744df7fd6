// A list of any length that draws only the rows in view. All rows are equally high, so the place of each is a product.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props<T> {
  items: readonly T[];
  height: number;
  row: (item: T, index: number) => ComponentChildren;
  keyOf: (item: T, index: number) => string | number;
  label: string;
  selected?: number;
  onSelect?: (index: number) => void;
  onOpen?: (index: number) => void;
  empty?: ComponentChildren;
  /** Stay at the newest row while the person has not scrolled away from it. */
  follow?: boolean;
  id: string;
}

const MARGIN = 8; // rows drawn beyond the edges, so that a quick scroll shows no gap
const BROWSER_LIMIT = 15_000_000; // pixels; beyond some 16 million browsers lose precision

const STEP = 60; // rows a frame: a few milliseconds

/** How many of so many rows to draw: more with each frame, so that the first is seen at once and none takes long. */
export function useGrowing(total: number): number {
  const [shown, setShown] = useState(STEP);
  useEffect(() => {
    if (shown >= total) return;
    const frame = requestAnimationFrame(() => setShown(shown + STEP));
    return () => cancelAnimationFrame(frame);
  }, [shown, total]);
  return Math.min(shown, total);
}

export function VirtualList<T>({ items, height, row, keyOf, label, selected, onSelect, onOpen, empty, follow = false, id }: Props<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(400);
  const atEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current!;
    const watch = new ResizeObserver(() => setRoom(element.clientHeight));
    watch.observe(element);
    setRoom(element.clientHeight);
    return () => watch.disconnect();
  }, []);

  const whole = Math.min(items.length * height, BROWSER_LIMIT);
  useLayoutEffect(() => {
    if (follow && atEnd.current && box.current) box.current.scrollTop = whole;
  }, [whole, follow, room]);
  useEffect(() => {
    if (selected === undefined || selected < 0 || !box.current) return;
    const from = selected * height;
    if (from < box.current.scrollTop) box.current.scrollTop = from;
    else if (from + height > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = from + height - box.current.clientHeight;
  }, [selected, height]);

  const first = Math.max(0, Math.min(Math.floor(top / height), items.length - 1) - MARGIN);
  const last = Math.min(items.length, Math.ceil((top + room) / height) + MARGIN);

  const onKey = (event: KeyboardEvent): void => {
    if (!onSelect || items.length === 0) return;
    const page = Math.max(1, Math.floor(room / height) - 1);
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -items.length, End: items.length };
    const step = moves[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const from = selected ?? -1;
      onSelect(Math.max(0, Math.min(items.length - 1, from < 0 && step > 0 ? 0 : from + step)));
    } else if (event.key === "Enter" && selected !== undefined && onOpen) {
      onOpen(selected);
    }
  };

  if (items.length === 0) return <div class="virtual" ref={box}>{empty}</div>;
  return (
    <div
      class="virtual" ref={box} role={onSelect ? "listbox" : "log"} aria-label={label} tabIndex={0} onKeyDown={onKey} id={id} aria-live="off"
      aria-activedescendant={onSelect && selected !== undefined && selected >= first && selected < last ? `${id}-${selected}` : undefined}
      onScroll={(event) => {
        const element = event.currentTarget;
        atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - height;
        setTop(element.scrollTop);
      }}
    >
      <div class="virtual-all" role="presentation" style={{ height: `${whole}px` }}>
        <div class="virtual-window" role="presentation" style={{ transform: `translateY(${first * height}px)` }}>
          {items.slice(first, last).map((item, offset) => {
            const index = first + offset;
            const interactive = onSelect
              ? { role: "option" as const, "aria-selected": index === selected, "aria-posinset": index + 1, "aria-setsize": items.length, onClick: () => onSelect(index) }
              : {};
            return (
              <div key={keyOf(item, index)} id={`${id}-${index}`} class={`virtual-row ${index === selected ? "selected" : ""}`} style={{ height: `${height}px` }} {...interactive}>
                {row(item, index)}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
