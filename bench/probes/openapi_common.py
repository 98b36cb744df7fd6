"""Shared by the probes that make servers of OpenAPI documents. Standard library only.

Paths of documents come on stdin. An answer is one line of JSON: `seconds` of processor time, from the file to the
encoded list of tools, and `tools` as a client gets them; or `error`.
"""

import gc
import json
import logging
import sys
import time
from collections.abc import Callable

URL = "https://api.example.com"


def answer(list_tools: Callable[[str], bytes]) -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        gc.collect()
        started = time.process_time()
        try:
            data = list_tools(line.strip())
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            continue
        seconds = time.process_time() - started
        print(json.dumps({"seconds": seconds, "tools": json.loads(data)}), flush=True)
