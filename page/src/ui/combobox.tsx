// A text field with suggestions that come while a person types. The text stays theirs: nothing is picked unless they pick it.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Theirs } from "./text";

interface Props {
  id: string;
  value: string;
  onInput: (value: string) => void;
  suggest: (value: string) => Promise<readonly string[]>;
  placeholder?: string;
  describedBy?: string;
  invalid?: boolean;
}

export function Combobox({ id, value, onInput, suggest, placeholder, describedBy, invalid }: Props): JSX.Element {
  const [options, setOptions] = useState<readonly string[]>([]);
  const [active, setActive] = useState(-1);
  const [open, setOpen] = useState(false);
  const latest = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);

  const ask = (text: string): void => {
    const turn = ++latest.current;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      suggest(text).then(
        (values) => {
          if (turn !== latest.current) return; // an older answer that came late
          setOptions(values.slice(0, 100));
          setActive(-1);
          setOpen(values.length > 0);
        },
        () => setOpen(false),
      );
    }, 80);
  };
  const choose = (option: string): void => {
    latest.current++;
    setOpen(false);
    onInput(option);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" && !open) return ask(value);
    if (!open) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setActive((index) => (index + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length);
    } else if (event.key === "Enter" && active >= 0 && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      choose(options[active]!);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
    }
  };
  return (
    <div class="combobox">
      <input
        id={id} type="text" role="combobox" autocomplete="off" spellcheck={false} value={value} placeholder={placeholder}
        aria-expanded={open} aria-controls={`${id}-list`} aria-autocomplete="list" aria-describedby={describedBy} aria-invalid={invalid}
        aria-activedescendant={open && active >= 0 ? `${id}-${active}` : undefined}
        onInput={(event) => { onInput(event.currentTarget.value); ask(event.currentTarget.value); }}
        onFocus={() => ask(value)} onBlur={() => { latest.current++; setOpen(false); }} onKeyDown={onKey}
      />
      <ul id={`${id}-list`} role="listbox" aria-label="Suggestions" hidden={!open}>
        {options.map((option, index) => (
          <li key={option} id={`${id}-${index}`} role="option" aria-selected={index === active} onMouseDown={(event) => { event.preventDefault(); choose(option); }}>
            <Theirs text={option} />
          </li>
        ))}
      </ul>
    </div>
  );
}
