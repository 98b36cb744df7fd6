"""Callers of `trimaran gateway` log in to a server behind it, each with a browser at a real OpenID provider (oidc-provider)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest
from tests.support.until import until

from trimaran import connect

from ..harness import DEADLINE, listening
from .authority import STEPS, Authority, Form
from .notes import guarded_notes

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

CONFIG = """
[gateway]
secret_keys = ["one for this test"]
{store}

[gateway.auth]
provider = "apikey"
[gateway.auth.provider_opts.keys]
ann-key-123 = {{ subject = "ann" }}
bob-key-123 = {{ subject = "bob" }}

[server.notes]
transport = "http"
url = "{url}"
"""


class Browser:
    """Somebody who opens the pages that the gateway asks them to open, and logs in at the provider as `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.visits = 0

    async def __call__(self, question: Any) -> str:
        self.visits += 1
        thanks = await self.log_in(question.url)
        assert "You may close this page" in thanks
        return "accept"

    async def log_in(self, start: str) -> str:
        cookies = aiohttp.CookieJar(unsafe=True)  # unsafe: of a host that is a number
        async with aiohttp.ClientSession(cookie_jar=cookies) as browser:
            async with browser.get(start) as page:
                assert '<form method="post">' in await page.text()
            url, method, form = start, "POST", None
            for _ in range(STEPS):
                async with browser.request(method, url, data=form, allow_redirects=False) as page:
                    if page.status in (302, 303):
                        url, method, form = urljoin(url, page.headers["location"]), "GET", None
                        continue
                    text = await page.text()
                    assert page.status == 200, f"{method} {url}: {page.status} {text[:2000]}"
                if "<form" not in text:
                    return text
                seen = Form(text)
                url, method, form = urljoin(url, seen.action), "POST", seen.fill(self.name)
        raise AssertionError(f"after {STEPS} pages still not back: {url}")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Any]:
    """A function from the URL of the server behind it, and the place of its store, to the port of a gateway."""
    with ExitStack() as stack:

        def start(url: str, store: str = "") -> int:
            file = tmp_path / "mcp.toml"
            file.write_text(CONFIG.format(url=url, store=f'store = "{store}"' if store else ""))
            command = [sys.executable, "-P", "-m", "trimaran.apps.cli", "gateway", str(file), "--port"]
            return stack.enter_context(listening(lambda port: [*command, str(port)]))

        yield start


def client_of(port: int, key: str, browser: Browser, era: Any) -> Any:
    return connect(f"http://127.0.0.1:{port}/mcp", headers={"X-API-Key": key}, era=era, on_elicit=browser)


@pytest.mark.parametrize("opaque", [pytest.param(False, id="jwt"), pytest.param(True, id="opaque")])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_each_caller_logs_in_once_and_calls_in_its_own_name(
    authority: Authority, gateway: Any, monkeypatch: pytest.MonkeyPatch, era: Any, opaque: bool
) -> None:
    monkeypatch.setenv("TRIMARAN_ALLOW_PRIVATE", "1")
    ada, bert = Browser("ada"), Browser("bert")
    async with guarded_notes(authority, opaque=opaque) as url:
        port = await asyncio.to_thread(gateway, url)
        async with client_of(port, "ann-key-123", ada, era) as client:
            assert {tool.name for tool in await client.list_tools_all()} == {"notes_login", "notes_logout"}
            assert (await client.call_tool("notes_login")).data == "You are logged in to notes."

            async def is_listed() -> bool:
                return "notes_whoami" in {tool.name for tool in await client.list_tools_all(fresh=True)}

            await until(is_listed, "the catalog is listed with her login")
            assert (await client.call_tool("notes_whoami")).data["subject"] == "ada"
        async with client_of(port, "bob-key-123", bert, era) as client:
            assert (await client.call_tool("notes_whoami")).data["subject"] == "bert"
            await client.call_tool("notes_logout")
            assert (await client.call_tool("notes_whoami")).data["subject"] == "bert"
        async with client_of(port, "ann-key-123", ada, era) as client:
            assert (await client.call_tool("notes_whoami")).data["subject"] == "ada"
    assert (ada.visits, bert.visits) == (1, 2)
