// Numbers as people read them.
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const shortClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// Times come from recordings of strangers, too, and a date that is none throws.
const isMoment = (at: number): boolean => Math.abs(at) <= 8.64e15;
export const time = (at: number): string => (isMoment(at) ? clock.format(at) : "?");
export const shortTime = (at: number): string => (isMoment(at) ? shortClock.format(at) : "?");

export function duration(ms: number | undefined): string {
  if (ms === undefined) return "";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function bytes(count: number | undefined): string {
  if (count === undefined) return "";
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(count < 10_240 ? 1 : 0)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}

export const count = (value: number): string => value.toLocaleString("en");
export const plural = (value: number, word: string, many = `${word}s`): string => `${count(value)} ${value === 1 ? word : many}`;
