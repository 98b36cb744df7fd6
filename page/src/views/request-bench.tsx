// Any request, by hand: a method and its params. For what the other pages do not offer, or refuse to.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post } from "../api/http";
import { parseExact, pretty } from "../api/json";
import type { CallRow, Json, Server } from "../api/types";
import { JsonEditor } from "../forms/editor";
import { CallView } from "../results/call";
import { Action, complain, Labelled } from "../ui/parts";

export function RequestBench({ server, method: firstMethod = "ping", params = {} }: { server: Server; method?: string; params?: Json }): JSX.Element {
  const [method, setMethod] = useState(firstMethod);
  const [text, setText] = useState(pretty(params));
  const [call, setCall] = useState<string | undefined>(undefined);
  const run = async (): Promise<void> => {
    const row = await post<CallRow>("/api/calls", { server: server.id, kind: "request", name: method, arguments: parseExact(text), sendAnyway: true });
    setCall(row.id);
  };
  return (
    <div class="request-bench" onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void run().catch(complain); } }}>
      <Labelled id="method" label="Method"><input id="method" type="text" class="code" list="methods" value={method} onInput={(event) => setMethod(event.currentTarget.value)} /></Labelled>
      <datalist id="methods">{["ping", "tools/list", "tools/call", "resources/list", "resources/read", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "server/discover"].map((name) => <option key={name} value={name} />)}</datalist>
      <div class="field"><div class="field-head"><span class="field-name">Params</span></div><JsonEditor text={text} onText={setText} label="Params as JSON" /></div>
      <div class="row run-row"><Action kind="primary" run={run}>Send request</Action></div>
      {call && <CallView id={call} />}
    </div>
  );
}
