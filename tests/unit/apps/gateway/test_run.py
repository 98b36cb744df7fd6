"""Another configuration while the gateway runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import connect
from trimaran.apps.gateway.run import Reloader
from trimaran.errors import CallError, ConfigError
from trimaran.host.config import load_config

from .conftest import child, gateway_of, read, url_of
from .test_call_control import KEYS

pytestmark = pytest.mark.slow


async def names(client: Any) -> set[str]:
    return {tool.name.split("_")[0] for tool in await client.list_tools_all(fresh=True)}


async def test_servers_come_and_go_and_a_call_at_work_goes_on(tmp_path: Path) -> None:
    view = '[view.a]\nservers = ["boats"]\n'
    async with gateway_of(child("boats") + child("tugs")) as gateway, connect(gateway.url, era="legacy") as client:
        assert await names(client) == {"boats", "tugs"}
        tugs = gateway.served["tugs"]
        at_work = asyncio.ensure_future(client.call_tool("boats_wait", {"file": str(tmp_path / "go")}))
        await until(lambda: gateway.served["boats"].control.active == 1)
        changed = child("boats", "boats.py", "other boats")
        await gateway.reload(read(changed + child("tugs") + child("rafts") + '[view.a]\nservers = ["rafts"]\n'))
        assert await names(client) == {"boats", "tugs", "rafts"}
        assert gateway.served["tugs"] is tugs
        async with connect(url_of(gateway, "/views/a/mcp")) as viewer:
            assert await names(viewer) == {"rafts"}
        assert (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
        (tmp_path / "go").touch()
        assert (await soon(at_work)).data == "arrived"
        await gateway.reload(read(child("tugs") + child("boats") + view))
        assert await names(client) == {"boats", "tugs"}
        with pytest.raises(CallError, match="nothing is served at /servers/rafts/mcp"):
            await connect(url_of(gateway, "/servers/rafts/mcp")).open()
        async with connect(url_of(gateway, "/views/a/mcp")) as viewer:
            assert await names(viewer) == {"boats"}
        await until(lambda: not gateway._retiring)  # pyright: ignore[reportPrivateUsage]


async def test_a_server_that_changed_serves_until_the_new_one_has_started() -> None:
    """Its tools were unknown to callers for as long as the new child took to start."""
    async with gateway_of(child("boats")) as gateway, connect(gateway.url) as client:
        reload = asyncio.ensure_future(gateway.reload(read(child("boats", "boats.py", "other boats"))))
        before = gateway.served["boats"]
        answers: list[str] = []
        while not reload.done():
            answers.append((await client.call_tool("boats_sail", {"boat": "Ida"})).data)
        await reload
        assert gateway.served["boats"] is not before
        answers.append((await client.call_tool("boats_sail", {"boat": "Ida"})).data)
        assert len(answers) > 2 and set(answers) == {"Ida sails"}


async def test_rules_keys_and_limits_change_while_sessions_go_on() -> None:
    async with gateway_of(child("boats") + KEYS) as gateway:
        headers = {"X-API-Key": "ann-key-123"}
        async with connect(gateway.url, headers=headers, era="legacy") as ann:
            session = ann.session_id
            await ann.call_tool("boats_sail", {"boat": "Ida"})
            rules = '[permissions]\ndeny = ["mcp__boats__sail to user:ann"]\n'
            await gateway.reload(read(child("boats") + KEYS + rules))
            assert "boats_sail" not in {tool.name for tool in await ann.list_tools_all(fresh=True)}
            with pytest.raises(CallError):
                await ann.call_tool("boats_sail", {"boat": "Ida"})
            assert ann.session_id == session
            await gateway.reload(read(child("boats") + KEYS.replace("ann-key-123", "ann-key-456")))
        with pytest.raises(Exception, match="key"):
            await connect(gateway.url, headers=headers).open()
        async with connect(gateway.url, headers={"X-API-Key": "ann-key-456"}) as ann:
            assert (await ann.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[gateway]\nstore = "redis://localhost"\n', "gateway.store has changed, which needs a new process"),
        (KEYS, "gateway.auth has changed"),
        ("[gateway]\nnonsense = 1\n", "gateway.nonsense: this key is not known"),
        ('[permissions]\nallow = ["("]\n', "permissions"),
        ('[view.a]\nservers = ["none"]\n', "there is no server 'none'"),
    ],
)
async def test_a_configuration_that_cannot_be_used_changes_nothing(text: str, message: str) -> None:
    async with gateway_of(child("boats")) as gateway, connect(gateway.url) as client:
        with pytest.raises(ConfigError, match=message):
            await gateway.reload(read(text))
        assert (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"


async def test_a_changed_file_and_a_signal_reload_the_configuration(tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(child("boats"))
    config = load_config(file)
    async with gateway_of(child("boats")) as gateway, connect(gateway.url) as client:
        reloader = Reloader(gateway, lambda: load_config(file), config)
        running = asyncio.ensure_future(reloader.run())
        try:
            file.write_text(child("boats") + child("tugs"))
            await until(lambda: "tugs" in gateway.served and gateway.served["tugs"].is_up, "the file is read again")
            await until(lambda: gateway.served["tugs"].server.tools)
            assert await names(client) == {"boats", "tugs"}
            file.write_text("[server")
            await until(lambda: "was not reloaded" in caplog.text, "the mistake is logged")
            assert await names(client) == {"boats", "tugs"}
            stamp = os.stat(file)
            file.write_text(child("boats"))
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            reloader.wake()
            await until(lambda: "tugs" not in gateway.served, "it is told to reload")
        finally:
            running.cancel()
            await asyncio.wait((running,))


async def test_a_view_that_does_not_fit_the_tools_is_not_served_and_the_rest_is(caplog: Any) -> None:
    view = '[view.a]\nservers = ["boats"]\ntransforms.boats.sial.name = "go"\n[view.b]\nservers = ["boats"]\n'
    async with gateway_of(child("boats")) as gateway:
        await gateway.reload(read(child("boats") + view))
        assert "the view 'a' is not served" in caplog.text
        assert "there is no tool 'sial'" in caplog.text
        async with connect(url_of(gateway, "/views/b/mcp")) as client:
            assert await names(client) == {"boats"}
