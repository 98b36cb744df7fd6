"""Trimaran's lists of tools, from OpenAPI documents."""

import msgspec
from openapi_common import URL, answer

from trimaran import Server


def list_tools(path: str) -> bytes:
    return msgspec.json.encode(Server.from_openapi(path, base_url=URL).list_tools())


if __name__ == "__main__":
    answer(list_tools)
