// Build the inspector's page: `node page/build.mjs OUT`. One entry, split so that the editor and the markdown reader
// load when they are first needed. Names carry a digest of their content, so the server may let browsers keep them.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error("usage: node page/build.mjs OUT");
  process.exit(2);
}
const LIMIT = 600 * 1024; // compressed, all of it: what a person on a slow machine should ever have to load

const staging = `${out}.new`;
await rm(staging, { recursive: true, force: true });
await mkdir(join(staging, "assets"), { recursive: true });

const result = await build({
  entryPoints: [join(here, "src/main.tsx")],
  outdir: join(staging, "assets"),
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  sourcemap: false,
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  metafile: true,
  logLevel: "warning",
});

const outputs = Object.entries(result.metafile.outputs);
const entry = outputs.find(([, info]) => info.entryPoint);
const style = entry[1].cssBundle;
const preloads = entry[1].imports.filter((item) => item.kind === "import-statement").map((item) => basename(item.path));
const theme = await readFile(join(here, "src/theme-boot.js"));
const themeName = `theme-${createHash("sha256").update(theme).digest("hex").slice(0, 8)}.js`;
await writeFile(join(staging, "assets", themeName), theme);

const html = (await readFile(join(here, "src/index.html"), "utf-8"))
  .replace("%THEME%", `assets/${themeName}`)
  .replace("%STYLE%", `assets/${basename(style)}`)
  .replace("%PRELOADS%", preloads.map((name) => `<link rel="modulepreload" href="assets/${name}">`).join("\n    "))
  .replace("%SCRIPT%", `assets/${basename(entry[0])}`);
await writeFile(join(staging, "index.html"), html);
await cp(join(here, "src/icon.svg"), join(staging, "assets", "icon.svg"));

// The licences of what is bundled travel with it.
const bundled = new Set(Object.keys(result.metafile.inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? []));
const notices = [];
for (const name of [...bundled].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf-8"));
  const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
  notices.push(`${name} ${version} (${license})\n\n${file ? (await readFile(join(folder, file), "utf-8")).trim() : ""}`);
}
await writeFile(join(staging, "LICENSES.txt"), notices.join(`\n\n${"-".repeat(80)}\n\n`) + "\n");

let whole = 0;
let first = 0;
for (const [path] of outputs) {
  const size = gzipSync(await readFile(path)).length;
  whole += size;
  if (path === entry[0] || path === style || preloads.includes(basename(path))) first += size;
}
if (whole > LIMIT) {
  console.error(`error: the page is ${Math.round(whole / 1024)} KB compressed, over its limit of ${LIMIT / 1024} KB.`);
  process.exit(1);
}
await writeFile(join(staging, "size.json"), JSON.stringify({ compressed: whole, first_load: first }) + "\n");
await rm(out, { recursive: true, force: true });
await rename(staging, out);
console.log(`page: ${Math.round(whole / 1024)} KB compressed, ${Math.round(first / 1024)} KB of it at first`);
