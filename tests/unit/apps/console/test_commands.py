"""What `/resources` shows of a server that lacks a part of what it declares."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.apps.console.commands import Commands
from trimaran.errors import CallError
from trimaran.types import Resource, ResourceTemplate

REFUSED = CallError(-32601, "Method not found")


class Server:
    """A client of a server that answers its two lists so."""

    def __init__(self, resources: Any, templates: Any) -> None:
        self._resources = resources
        self._templates = templates

    async def list_resources_all(self, **_: Any) -> Any:
        return _given(self._resources)

    async def list_resource_templates_all(self, **_: Any) -> Any:
        return _given(self._templates)


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


async def rows(resources: Any, templates: Any) -> list[str]:
    client: Any = Server(resources, templates)
    listed = await Commands._resource_rows("odd", client)  # pyright: ignore[reportPrivateUsage]  (the lists alone)
    return [name for name, _ in listed]


ONE = [Resource(uri="odd://one", name="one")]
EACH = [ResourceTemplate(uri_template="odd://{name}", name="each")]


async def test_neither_list_hides_the_other() -> None:
    assert await rows(ONE, EACH) == ["@odd:one", "@odd:each ..."]
    assert await rows(ONE, REFUSED) == ["@odd:one"]
    assert await rows(REFUSED, EACH) == ["@odd:each ..."]


@pytest.mark.parametrize("templates", [REFUSED, []])
async def test_where_there_is_nothing_to_show_the_error_is_told(templates: Any) -> None:
    with pytest.raises(CallError, match="Method not found"):
        await rows(REFUSED, templates)
