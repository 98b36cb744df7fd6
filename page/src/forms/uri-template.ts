// RFC 6570 for the form of a resource template: its variables, and the address they make.
const OPERATORS: Record<string, { first: string; separator: string; named: boolean; reserved: boolean }> = {
  "": { first: "", separator: ",", named: false, reserved: false },
  "+": { first: "", separator: ",", named: false, reserved: true },
  "#": { first: "#", separator: ",", named: false, reserved: true },
  ".": { first: ".", separator: ".", named: false, reserved: false },
  "/": { first: "/", separator: "/", named: false, reserved: false },
  ";": { first: ";", separator: ";", named: true, reserved: false },
  "?": { first: "?", separator: "&", named: true, reserved: false },
  "&": { first: "&", separator: "&", named: true, reserved: false },
};
const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const bare = (word: string): string => word.replace(/(\*|:\d+)$/, "");

export function variables(template: string): string[] {
  return [...new Set([...template.matchAll(EXPRESSION)].flatMap((match) => match[2]!.split(",").map(bare)))];
}

export function expand(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(EXPRESSION, (_, operator: string, words: string) => {
    const rule = OPERATORS[operator]!;
    const parts = words.split(",").flatMap((word) => {
      const name = bare(word);
      const value = values[name];
      if (value === undefined || value === "") return [];
      const limit = /:(\d+)$/.exec(word)?.[1];
      const text = limit === undefined ? value : [...value].slice(0, Number(limit)).join("");
      const encoded = rule.reserved ? encodeURI(text).replaceAll("%25", "%") : encodeURIComponent(text);
      return [rule.named ? `${name}=${encoded}` : encoded];
    });
    return parts.length > 0 ? rule.first + parts.join(rule.separator) : "";
  });
}

/** Whether an address could come from a template: its fixed pieces in their order. No regex: a template is a stranger's text. */
export function couldBe(template: string, uri: string): boolean {
  const pieces = template.split(/\{[^{}]+\}/);
  let from = 0;
  return pieces.every((piece, index) => {
    const at = index === pieces.length - 1 && pieces.length > 1 ? (uri.endsWith(piece) ? uri.length - piece.length : -1) : uri.indexOf(piece, from);
    if (at < from || (index === 0 && at !== 0)) return false;
    from = at + piece.length;
    return true;
  });
}
