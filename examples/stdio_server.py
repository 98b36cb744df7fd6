"""A small stdio server: one tool that reports progress, and prints that do no harm.

python examples/stdio_server.py
claude mcp add word-count -- python /path/to/examples/stdio_server.py
"""

from __future__ import annotations

import logging
from collections import Counter

from trimaran import Context, Server

# Logging is yours to set up: the library never touches the root logger. On stdio, logs go to stderr.
logging.basicConfig(level=logging.INFO)

server = Server("word-count", version="1.0.0")


@server.tool
async def count_words(texts: list[str], ctx: Context, top: int = 3) -> dict[str, int]:
    """Count words over several texts and return the most frequent ones.

    Args:
        texts: The texts to look at.
        top: How many words to return.
    """
    counts: Counter[str] = Counter()
    for number, text in enumerate(texts, 1):
        counts.update(text.lower().split())
        await ctx.progress(number, total=len(texts), message=f"text {number}")
    print("this line goes to stderr: stdout belongs to the protocol")
    return dict(counts.most_common(top))


if __name__ == "__main__":
    server.run()
