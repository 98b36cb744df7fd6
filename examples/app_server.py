"""A server with a view: a tide table that hosts with MCP Apps show as a page, and others read as text.

    python examples/app_server.py
    trimaran call examples/app_server.py tides harbour=Dover
    claude mcp add tides -- python examples/app_server.py

The page is self-contained. It says that it is ready, draws the result it is told, and its button calls a tool that the
model never sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimaran import Context, Server, ToolError
from trimaran.ext.apps import Apps, supports_ui, ui_tool

VIEW = "ui://tides/table"
TIDES = {"Dover": ["05:12", "17:34"], "Brest": ["03:40", "16:02"]}

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Tides</title>
<h1 id="harbour">...</h1>
<ol id="times"></ol>
<button id="next" disabled>Tomorrow</button>
<script>
  let id = 0, day = 0, harbour = "";
  const waiting = new Map();
  const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) => new Promise((resolve, reject) => {
    waiting.set(++id, { resolve, reject });
    post({ id, method, params });
  });
  const element = (name) => document.getElementById(name);
  const draw = (table) => {
    element("harbour").textContent = table.harbour + (day ? ", in " + day + " d" : "");
    element("times").replaceChildren(...table.times.map((time) => {
      const line = document.createElement("li");
      line.textContent = time;
      return line;
    }));
    element("next").disabled = false;
  };
  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data.method === "ui/notifications/tool-input") harbour = data.params.arguments.harbour;
    else if (data.method === "ui/notifications/tool-result" && !data.params.isError) draw(data.params.structuredContent);
    else if (data.method === "ui/resource-teardown") post({ id: data.id, result: {} });
    else if (waiting.has(data.id)) {
      const { resolve, reject } = waiting.get(data.id);
      waiting.delete(data.id);
      data.error ? reject(data.error) : resolve(data.result);
    }
  });
  element("next").onclick = async () => {
    const result = await ask("tools/call", { name: "tides_of_day", arguments: { harbour, day: ++day } });
    if (!result.isError) draw(result.structuredContent);
  };
  ask("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: "tides", version: "1.0.0" },
    appCapabilities: { availableDisplayModes: ["inline"] },
  }).then(() => post({ method: "ui/notifications/initialized" }));
</script>
</html>
"""

server = Server("tides", version="1.0.0", instructions="High water at a few harbours.")
apps = Apps()
apps.attach(server)
# It loads nothing from anywhere, so it asks for nothing.
apps.add_view(VIEW, PAGE, title="Tide table", prefers_border=True)


@dataclass
class Table:
    """High water at a harbour."""

    harbour: str
    times: list[str]


def table(harbour: str, day: int) -> Table:
    if harbour not in TIDES:
        raise ToolError(f"No tides are known for {harbour}; there are {', '.join(TIDES)}.")
    hours = [(int(t[:2]) * 60 + int(t[3:]) + 50 * day) % 1440 for t in TIDES[harbour]]
    return Table(harbour, [f"{minute // 60:02}:{minute % 60:02}" for minute in hours])


@server.tool(meta=ui_tool(VIEW), annotations={"readOnlyHint": True})
async def tides(harbour: str, ctx: Context) -> Table:
    """Tell today's high water at a harbour."""
    await ctx.log("debug", "drawn as a table" if supports_ui(ctx) else "told in text")
    return table(harbour, 0)


@server.tool(meta=ui_tool(VIEW, visibility=["app"]), annotations={"readOnlyHint": True})
async def tides_of_day(harbour: str, day: int) -> Table:
    """Tell the high water of a day to come. For the page's button; the model does not see this tool."""
    return table(harbour, day)


apps.check()

if __name__ == "__main__":
    server.run()
