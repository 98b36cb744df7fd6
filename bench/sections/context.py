"""Tokens that a model reads: definitions at each step of a budget, and an agent's whole conversation with and without one.

The definitions are those of real servers, from files that are not part of this repository (`--catalogs FOLDER`). The servers
are replayed: each lists its own definitions and answers every call with a deterministic result. The agent is scripted: it
knows what it wants in a person's words and with which arguments, takes the tool that it wants if it reads its name, and
searches if it does not. Every request costs the declared tools and the conversation so far, as a provider counts it.
"""

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from plan import Plan
from report import Row, Section

from trimaran import Host, Server
from trimaran.format import to_provider
from trimaran.host import count_tokens, estimate_tokens
from trimaran.host.context.detail import DETAILS, first_sentence, signature_of, strip_noise, with_detail
from trimaran.types import Tool

BUDGET = 2500
GOAL = 0.10
LIVE, REAL = "livemcpbench-tools.json", "real-tools.json"

SERVERS = (
    "@modelcontextprotocol/server-filesystem",
    "mcp-server-git",
    "@modelcontextprotocol/server-memory",
    "mcp-server-time",
    "@paddle/paddle-mcp",
    "mcp-grafana",
    "redis-mcp-server",
    "office-word-mcp-server",
    "chrome-devtools-mcp",
    "nx-mcp",
)


class Task(NamedTuple):
    """What somebody wants, in words that are not the tool's own, and the call that does it."""

    words: str
    tool: str
    arguments: dict[str, Any]


TASKS = (
    Task("save some text into a file", "write_file", {"path": "/a/notes.txt", "content": "hello"}),
    Task("which files are in this folder", "list_directory", {"path": "/a"}),
    Task("find files whose name ends in .log", "search_files", {"path": "/a", "pattern": "*.log"}),
    Task("show me the text of a file", "read_text_file", {"path": "/a/notes.txt"}),
    Task("history of commits of the repository", "git_log", {"repo_path": "/r"}),
    Task("commit the staged changes in git", "git_commit", {"repo_path": "/r", "message": "fix"}),
    Task(
        "remember a new person in the knowledge graph",
        "create_entities",
        {"entities": [{"name": "Ada", "entityType": "person", "observations": []}]},
    ),
    Task("look up what the knowledge graph has about Ada", "search_nodes", {"query": "Ada"}),
    Task(
        "what time is noon in Tokyo for somebody in Berlin",
        "convert_time",
        {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Europe/Berlin"},
    ),
    Task(
        "add a new product to the catalog that we sell", "create_product", {"name": "Boat", "taxCategory": "standard"}
    ),
    Task(
        "make a discount code of ten percent",
        "create_discount",
        {"description": "ten", "type": "percentage", "amount": "10"},
    ),
    Task("find the customers by their email", "list_customers", {}),
    Task("which incidents are open", "list_incidents", {"status": "active"}),
    Task(
        "run a PromQL query against Prometheus",
        "query_prometheus",
        {"datasourceUid": "p", "expr": "up", "endTime": "now"},
    ),
    Task("set a field of a hash in redis", "hset", {"name": "boat", "key": "length", "value": 12}),
    Task("add a member with a score to a sorted set", "zadd", {"key": "scores", "score": 1.5, "member": "ada"}),
    Task("start a new Word document", "create_document", {"filename": "a.docx"}),
    Task("put a table into the Word document", "add_table", {"filename": "a.docx", "rows": 2, "cols": 2}),
    Task(
        "replace a word everywhere in the document",
        "search_and_replace",
        {"filename": "a.docx", "find_text": "x", "replace_text": "y"},
    ),
    Task("take a picture of the web page in the browser", "take_screenshot", {"pageId": 1}),
)


# --- the catalog -----------------------------------------------------------------------------------------------------


class Replayed:
    """A server with the definitions of a real one, and results that are made of the call."""

    def __init__(self, name: str, tools: list[dict[str, Any]]) -> None:
        self._name = name
        self._tools = tools

    def server_info(self) -> dict[str, str]:
        return {"name": self._name, "version": "1.0.0"}

    async def list_tools(self, cursor: str | None, ctx: Any) -> list[dict[str, Any]]:
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Any) -> str:
        """Twenty rows, as indented JSON, as most servers write it."""
        seed = hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()
        rows = [{"id": f"{seed[at : at + 8]}", "position": at, "kind": name, "is_new": at % 2 == 0} for at in range(20)]
        return json.dumps(rows, indent=2)


def catalog(folder: Path) -> dict[str, Any]:
    listed = {entry["server"]: entry["tools"] for entry in json.loads((folder / REAL).read_text())}
    servers: dict[str, Any] = {}
    for full_name in SERVERS:
        name = full_name.rpartition("/")[2]
        # The results are made up, so they fit no output schema.
        tools = [{key: value for key, value in tool.items() if key != "outputSchema"} for tool in listed[full_name]]
        servers[name] = Server(callbacks=Replayed(name, tools))
    return servers


# --- the agent -------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What solving all tasks cost, and what came of them."""

    tokens: int
    calls: int
    results: list[Any]
    solved: int
    tools: int


class Agent:
    """Solves one task after the other, each in a conversation of its own, and counts what it reads."""

    def __init__(self, host: Host, budget: int | None) -> None:
        self._host = host
        self._budget = budget
        self.tokens = 0
        self.calls = 0

    def _declared(self) -> list[str]:
        tools: Any = self._host.tools(format="anthropic", budget=self._budget)
        self.tokens += tokens_of(tools)
        return [tool["name"] for tool in tools]

    async def solve(self, task: Task) -> Any:
        messages: list[Any] = [{"role": "user", "content": task.words}]
        wanted = self._name_of(task)
        name, arguments = wanted, task.arguments
        if wanted not in self._ask(messages):
            found = await self._call(messages, "search_tools", {"query": task.words})
            if wanted not in json.dumps(found):
                return None
            if wanted not in self._ask(messages):
                name, arguments = "call_tool", {"name": wanted, "arguments": task.arguments}
        answer = await self._call(messages, name, arguments)
        self._ask(messages)  # the model reads the result, and ends
        return answer

    def _ask(self, messages: list[Any]) -> list[str]:
        self.tokens += tokens_of(messages)
        return self._declared()

    async def _call(self, messages: list[Any], name: str, arguments: dict[str, Any]) -> Any:
        self.calls += 1
        reply = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": name, "input": arguments}]}
        messages.append(reply)
        messages.append(await self._host.answer(reply, format="anthropic"))
        return messages[-1]["content"][0]["content"]

    def _name_of(self, task: Task) -> str:
        (name,) = [tool.name for tool in self._host.tools() if tool.name.endswith(f"__{task.tool}")]
        return name


async def solve_all(folder: Path, budget: int | None) -> Outcome:
    async with Host(catalog(folder), allow=["*"]) as host:
        agent = Agent(host, budget)
        results = [await agent.solve(task) for task in TASKS]
        solved = sum(result is not None for result in results)
        return Outcome(agent.tokens, agent.calls, results, solved, len(host.tools()))


def tokens_of(value: Any) -> int:
    return count_tokens(msgspec.json.encode(value).decode())


# --- the tables ------------------------------------------------------------------------------------------------------


def run(plan: Plan) -> Section:
    section = Section("context", "Tokens of definitions, and of an agent with and without a budget")
    if plan.catalogs is None:
        section.notes.append(f"skipped: give --catalogs FOLDER with {LIVE} and {REAL}")
        return section
    listed = json.loads((plan.catalogs / LIVE).read_text())
    tools = [msgspec.convert(tool, Tool) for entry in listed for tool in entry["tools"]]
    section.rows += definitions([tool for entry in listed for tool in entry["tools"]], tools)
    section.rows += estimates(plan.catalogs)
    section.rows += agents(plan.catalogs, section)
    return section


def definitions(raw: list[dict[str, Any]], tools: list[Tool]) -> list[Row]:
    whole = sum(map(tokens_of, raw))
    forms: dict[str, int] = {
        "pretty JSON": sum(count_tokens(json.dumps(tool, indent=2, ensure_ascii=False)) for tool in raw),
        "minified": whole,
        "schema noise stripped": sum(
            tokens_of({**tool, "inputSchema": strip_noise(tool["inputSchema"])}) for tool in raw
        ),
        "signature + description": sum(
            count_tokens(f"{signature_of(tool)}: {tool.description or ''}") for tool in tools
        ),
        "signature + first sentence": sum(
            count_tokens(f"{signature_of(tool)}: {first_sentence(tool.description or '')}") for tool in tools
        ),
        "names": sum(count_tokens(tool.name) for tool in tools),
    }
    for detail in DETAILS[:-1]:
        shapes = to_provider([with_detail(tool, detail) for tool in tools], "anthropic", fit="auto")
        forms[f"declared to Anthropic: {detail}"] = sum(map(tokens_of, shapes))
    return [
        Row(f"{len(tools)} tools, {form}", f"minified {whole:,}", f"{tokens:,} tokens", f"{tokens / whole:.2f}")
        for form, tokens in forms.items()
    ]


def estimates(folder: Path) -> list[Row]:
    """How far the estimate is from the true number, on every definition of both files."""
    texts = [
        json.dumps(tool, separators=(",", ":"), ensure_ascii=False)
        for file in (LIVE, REAL)
        for entry in json.loads((folder / file).read_text())
        for tool in entry["tools"]
    ]
    texts = [text for text in texts if len(text) >= 250]
    ratios = sorted(estimate_tokens(text) / count_tokens(text) for text in texts)
    began = time.process_time()
    size = sum(len(text) for text in texts)
    for text in texts:
        estimate_tokens(text)
    speed = (time.process_time() - began) / size * 1e9
    ours = f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}; {speed:.0f} us per KB"
    return [
        Row(
            f"estimate / true number, {len(texts)} definitions",
            "o200k",
            ours,
            budget="1.0 to 1.5",
            ok=ratios[0] >= 1 and ratios[-1] <= 1.5,
        )
    ]


def agents(folder: Path, section: Section) -> list[Row]:
    whole = asyncio.run(solve_all(folder, None))
    short = asyncio.run(solve_all(folder, BUDGET))
    share = short.tokens / whole.tokens
    is_equal = short.results == whole.results
    section.series["agent"] = {"whole": whole._asdict(), "budget": short._asdict()}
    section.notes.append(
        f"Agent: {len(TASKS)} tasks, {whole.tools} tools of {len(SERVERS)} servers, budget {BUDGET:,}; "
        f"solved {short.solved} and {whole.solved} without; calls {short.calls} and {whole.calls}; "
        f"results {'equal' if is_equal else 'differ'}"
    )
    return [
        Row(
            f"an agent's {len(TASKS)} tasks on {whole.tools} tools, tokens read",
            f"no budget {whole.tokens:,}",
            f"budget {short.tokens:,}",
            f"{share:.3f}",
            f"<= {GOAL:.2f}, results equal",
            share <= GOAL and is_equal,
        )
    ]
