// The host's side of an MCP App's conversation (ui/*, revision 2026-01-26), without the frame it happens in.
// The app is not trusted: it may call tools of its own server that are open to apps, read its resources, and ask for the rest.
import { asList, asObject, asText, isObject } from "../api/json";
import type { Json, JsonObject, ToolEntry } from "../api/types";

export interface BridgeEntry {
  number: number;
  at: number;
  direction: "app" | "host";
  message: JsonObject;
  refused?: string;
}
interface BridgeActions {
  post(message: JsonObject): void;
  callTool(name: string, args: Json): Promise<Json>;
  readResource(uri: string): Promise<Json>;
  tools(): readonly ToolEntry[];
  /** Ask the person. */
  mayOpen(url: string): Promise<boolean>;
  told(kind: "message" | "context", params: JsonObject): void;
  resized(height: number): void;
  seen(entry: BridgeEntry): void;
  /** The app is to be closed: it would hold the page. */
  flooded(why: string): void;
  context(): JsonObject;
}

const VERSION = "2026-01-26";
const MAX_BYTES = 4 * 1024 * 1024; // an app posts small messages; the longest is text for the model
const MAX_IN_FLIGHT = 64; // more open questions than this is a loop
const MAX_MESSAGES = 1_000; // in a second; an app that moves with every frame posts 60
const MAX_LENGTH = 4 * MAX_BYTES; // of a second's messages

class Refusal extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

/** What can be posted is more than JSON: cycles, big integers, any depth. */
function sizeOf(message: JsonObject): number | undefined {
  try {
    return JSON.stringify(message).length;
  } catch {
    return undefined;
  }
}

export class AppBridge {
  private state: "new" | "greeted" | "ready" = "new";
  private waiting: JsonObject[] = [];
  private inFlight = 0;
  private isClosed = false;
  private second = 0;
  private posted = 0;
  private length = 0;
  private number = 0;

  constructor(private readonly actions: BridgeActions) {}

  /** A message that the frame posted. */
  receive(event: { readonly data: unknown }): void {
    if (this.isClosed) return; // what was under way is not even read
    const now = Math.floor(Date.now() / 1000);
    if (now !== this.second) [this.second, this.posted, this.length] = [now, 0, 0];
    if (++this.posted > MAX_MESSAGES) return this.close(`The app posted more than ${MAX_MESSAGES} messages in a second.`);
    const { data } = event;
    if (!isObject(data) || data["jsonrpc"] !== "2.0") return;
    const size = sizeOf(data);
    if (size === undefined) return this.note({ jsonrpc: "2.0" }, "not JSON");
    const message = data;
    const id = message["id"];
    const method = asText(message["method"]);
    this.length += size;
    if (this.length > MAX_LENGTH) return this.close(`The app posted more than ${MAX_LENGTH / 1024 / 1024} MB in a second.`);
    if (size > MAX_BYTES) return this.note({ jsonrpc: "2.0", method: method ?? "" }, `over ${MAX_BYTES} bytes`);
    if (method === undefined) return this.note(message);
    const params = asObject(message["params"]);
    if (typeof id !== "string" && typeof id !== "number") {
      this.note(message);
      return this.hear(method, params);
    }
    if (this.inFlight >= MAX_IN_FLIGHT) {
      this.note(message, "too many requests at once");
      return this.answer({ jsonrpc: "2.0", id, error: { code: -32000, message: `At most ${MAX_IN_FLIGHT} requests at once.` } });
    }
    this.inFlight++;
    this.note(message);
    void this.serve(method, params)
      .then(
        (result) => this.answer({ jsonrpc: "2.0", id, result }),
        (error: unknown) => this.answer({ jsonrpc: "2.0", id, error: { code: error instanceof Refusal ? error.code : -32603, message: error instanceof Error ? error.message : String(error) } }),
      )
      .finally(() => this.inFlight--);
  }

  /** Tell the app something; it waits until the app is ready. */
  notify(method: string, params: JsonObject): void {
    const message: JsonObject = { jsonrpc: "2.0", method, params };
    if (this.state === "ready") this.answer(message);
    else this.waiting.push(message);
  }

  private hear(method: string, params: JsonObject): void {
    if (method === "ui/notifications/initialized" && this.state === "greeted") {
      this.state = "ready";
      for (const message of this.waiting.splice(0)) this.answer(message);
    } else if (method === "ui/notifications/size-changed" && typeof params["height"] === "number") {
      this.actions.resized(params["height"]);
    }
  }

  private async serve(method: string, params: JsonObject): Promise<Json> {
    if (method === "ping") return {};
    if (method === "ui/initialize") {
      this.state = "greeted";
      return {
        protocolVersion: VERSION,
        hostInfo: { name: "trimaran-inspector", version: "1" },
        hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {} },
        hostContext: this.actions.context(),
      };
    }
    if (this.state !== "ready") throw new Refusal(-32600, "The app has not sent ui/notifications/initialized yet.");
    switch (method) {
      case "tools/call": return this.callTool(asText(params["name"]) ?? "", params["arguments"] ?? {});
      case "resources/read": return this.actions.readResource(asText(params["uri"]) ?? "");
      case "ui/open-link": return this.open(asText(params["url"]) ?? "");
      case "ui/message": this.actions.told("message", params); return {};
      case "ui/update-model-context": this.actions.told("context", params); return {};
      case "ui/request-display-mode": return { mode: "inline" };
      default: throw new Refusal(-32601, `This host does not serve ${method}.`);
    }
  }

  private callTool(name: string, args: Json): Promise<Json> {
    const tool = this.actions.tools().find((entry) => entry.definition["name"] === name);
    if (!tool) throw new Refusal(-32602, `The app's server has no tool ${JSON.stringify(name)}.`);
    const visibility = asObject(asObject(tool.definition["_meta"])["ui"])["visibility"];
    if (visibility !== undefined && !asList(visibility).includes("app")) throw new Refusal(-32000, `The tool ${JSON.stringify(name)} is not open to apps.`);
    return this.actions.callTool(name, args);
  }

  private async open(url: string): Promise<Json> {
    if (!/^https?:\/\/[^@\s]+$/i.test(url)) throw new Refusal(-32602, "ui/open-link opens http and https addresses without a user name in them.");
    if (!(await this.actions.mayOpen(url))) throw new Refusal(-32000, "The person said no.");
    return {};
  }

  private close(why: string): void {
    this.isClosed = true;
    this.actions.flooded(why);
  }

  private note(message: JsonObject, refused?: string): void {
    this.actions.seen({ number: ++this.number, at: Date.now(), direction: "app", message, refused });
  }

  private answer(message: JsonObject): void {
    this.actions.post(message);
    this.actions.seen({ number: ++this.number, at: Date.now(), direction: "host", message });
  }
}
