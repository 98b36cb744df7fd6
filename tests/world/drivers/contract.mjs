// What every JavaScript driver does: see contract.py. Copied beside the framework's node_modules before it runs.
import { inspect } from "node:util";

const fold = (name) => "_" + name.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, "_");
const say = (result) =>
  typeof result === "string" ? result : (JSON.stringify(result) ?? inspect(result));

export async function main(drive) {
  const job = JSON.parse(process.argv[2]);
  const report = { tools: [], results: [], error: null };
  const use = async (callers) => {
    report.tools = Object.keys(callers);
    for (const { tool, arguments: args } of job.calls) {
      const name = report.tools.find((candidate) => fold(candidate).endsWith(fold(tool)));
      if (name === undefined) continue;
      let text;
      try {
        text = say(await callers[name](args));
      } catch (error) {
        text = `${error.name}: ${error.message}`;
      }
      report.results.push([name, text]);
    }
  };
  try {
    await drive(job, use);
  } catch (error) {
    console.error(error);
    report.error = `${error.name}: ${error.message}`.slice(0, 600);
  }
  process.stdout.write("\n" + JSON.stringify(report) + "\n", () => process.exit(0));
}
