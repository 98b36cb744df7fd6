// Where the page is: the fragment of the address, so that every place has a link that can be kept or sent.
import { computed, signal } from "@preact/signals";

interface Route {
  path: string[];
  params: Record<string, string>;
}

function read(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const decode = (word: string): string => {
    try {
      return decodeURIComponent(word);
    } catch {
      return word; // a link cut off in the middle of an escape still leads somewhere
    }
  };
  return { path: path.split("/").filter(Boolean).map(decode), params: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = signal<Route>(read(location.hash));
addEventListener("hashchange", () => {
  route.value = read(location.hash);
});

export function link(path: readonly string[], params: Record<string, string | number | undefined> = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value !== undefined && value !== "") words.set(key, String(value));
  const query = words.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function go(path: readonly string[], params: Record<string, string | number | undefined> = {}, replace = false): void {
  const target = link(path, params);
  if (replace) {
    history.replaceState(null, "", target);
    route.value = read(target);
  } else {
    location.hash = target;
  }
}

/** Change some of the parameters and stay at the same place.
 *
 * The address says where that is: `route` follows it one event later, and would take a person back who has just left.
 */
export function setParams(changes: Record<string, string | number | undefined>, replace = true): void {
  const here = read(location.hash);
  go(here.path, { ...here.params, ...changes }, replace);
}

/** Remember this place; the function says later whether the page is still there. */
export function stayer(): () => boolean {
  const place = read(location.hash).path.join("/");
  return () => read(location.hash).path.join("/") === place;
}

/** The server whose pages are open: `#/s/ID/...`. */
export const currentServerId = computed(() => (route.value.path[0] === "s" ? route.value.path[1] : route.value.params["server"]));
