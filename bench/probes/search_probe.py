"""Search a catalog of tools with one library: recall on annotated tasks, and the time of a query. JSON on stdout.

    python search_probe.py trimaran|fastmcp [--data FOLDER] [--sizes 1000,100000]

The folder has `livemcpbench-tools.json` ([{server, about, tools}]) and `livemcpbench-tasks.json` ([{steps, tools}]). A task's
steps are searched one by one; a tool that the task needs is found if it is among the first results of one of them. Tools that
are in no server's list do not count. Recall is counted over all needed tools.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Search = Callable[[str, int], list[str]]
"""The names of the best tools, without their servers."""

CUTS = (5, 10, 20)
QUERIES = 200
_WORDS = """
account address amount archive article audio backup balance bill book branch budget calendar card category channel
chart city client cloud code comment company contact container contract country course customer dashboard data date
device document domain driver email employee event expense file flight folder form game group holiday hotel image
index invoice item job key label language ledger library license link list location log machine map market meeting
member message metric model movie network news note order page paper parcel park password payment person phone photo
picture place plan player playlist policy port post price process product profile project province query question
queue rate recipe record region release report repository request research result review road role room route rule
sale sample schedule school score screen script season secret section sensor server service session sheet shop signal
site size slide song source sport stage station statement status stock store street student subject survey table tag
task tax team template term test text theme ticket time token tool topic track trade train transfer trip unit update
user value vehicle version video view visit volume wallet warehouse weather week widget window word worker year zone
"""
WORDS = _WORDS.split()
_VERBS = """
get list create update delete search send read write convert compare merge export import find check
"""
VERBS = _VERBS.split()


def trimaran_search(servers: list[dict[str, Any]]) -> Search:
    import msgspec

    from trimaran.host.context.search import ToolIndex
    from trimaran.types import Tool

    index = ToolIndex()
    for server in servers:
        index.update(server["server"], msgspec.convert(server["tools"], list[Tool]), about=server.get("about") or "")
    index.prepare()
    return lambda query, limit: [match.address.tool for match in index.search(query, limit)]


def fastmcp_search(servers: list[dict[str, Any]]) -> Search:
    from fastmcp.server.transforms.search.bm25 import BM25SearchTransform  # pyright: ignore[reportMissingImports]
    from fastmcp.tools.base import Tool  # pyright: ignore[reportMissingImports]

    # Its catalog has one tool of a name, so each carries its server, as mounted servers do.
    tools: Any = [
        Tool(
            name=f"{server['server']}_{tool['name']}",
            description=tool.get("description"),
            parameters=tool["inputSchema"],
        )
        for server in servers
        for tool in server["tools"]
    ]
    plain = {f"{server['server']}_{tool['name']}": tool["name"] for server in servers for tool in server["tools"]}
    searches: dict[int, Any] = {}
    loop = asyncio.new_event_loop()

    def search(query: str, limit: int) -> list[str]:
        transform = searches.setdefault(limit, BM25SearchTransform(max_results=limit))
        return [plain[tool.name] for tool in loop.run_until_complete(transform._search(tools, query))]

    return search


LIBRARIES = {"trimaran": trimaran_search, "fastmcp": fastmcp_search}


def lines(text: str) -> list[str]:
    return [line.strip() for line in re.findall(r"^\s*\d+\.\s*(.+?)\s*$", text, re.MULTILINE)]


def recall(search: Search, tasks: list[dict[str, Any]], known: set[str]) -> dict[str, float]:
    hits = dict.fromkeys(CUTS, 0)
    total = 0
    for task in tasks:
        needed = [tool for tool in lines(task["tools"]) if tool in known]
        total += len(needed)
        ranked = [search(step, max(CUTS)) for step in lines(task["steps"])]
        for cut in CUTS:
            names = {name for result in ranked for name in result[:cut]}
            hits[cut] += sum(tool in names for tool in needed)
    return {str(cut): hits[cut] / total for cut in CUTS}


def catalog(size: int) -> list[dict[str, Any]]:
    """Tools of our own making, 50 for each server."""
    chance = random.Random(1)
    servers: list[dict[str, Any]] = []
    for first in range(0, size, 50):
        tools: list[dict[str, Any]] = []
        for number in range(first, min(first + 50, size)):
            verb, nouns = chance.choice(VERBS), chance.sample(WORDS, 6)
            properties = {
                noun: {"type": "string", "description": f"The {noun} of the {nouns[0]}."} for noun in nouns[2:5]
            }
            tools.append(
                {
                    "name": f"{verb}_{nouns[0]}_{nouns[1]}_{number}",
                    "description": f"{verb.capitalize()} the {nouns[0]} of a {nouns[1]}. It needs the {nouns[5]}.",
                    "inputSchema": {"type": "object", "properties": properties},
                }
            )
        servers.append({"server": f"{chance.choice(WORDS)}-{first}", "tools": tools})
    return servers


def query_times(search: Search, count: int) -> dict[str, float]:
    chance = random.Random(2)
    times: list[float] = []
    search("get the account", 5)  # builds what is built at the first query
    for _ in range(count):
        query = f"{chance.choice(VERBS)} the {' '.join(chance.sample(WORDS, 3))} of a {chance.choice(WORDS)}"
        began = time.perf_counter()
        search(query, 5)
        times.append((time.perf_counter() - began) * 1000)
    return {"median": statistics.median(times), "worst": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--queries", type=int, default=QUERIES)
    options = parser.parse_args()
    make = LIBRARIES[options.library]
    report: dict[str, Any] = {"times": {}}
    if options.data is not None:
        servers = json.loads((options.data / "livemcpbench-tools.json").read_text())
        tasks = json.loads((options.data / "livemcpbench-tasks.json").read_text())
        known = {tool["name"] for server in servers for tool in server["tools"]}
        report["recall"] = recall(make(servers), tasks, known)
    for size in map(int, filter(None, options.sizes.split(","))):
        servers = catalog(size)
        began = time.perf_counter()
        search = make(servers)
        built = time.perf_counter() - began
        report["times"][str(size)] = {"build": built, **query_times(search, options.queries)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
