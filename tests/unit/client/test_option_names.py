"""A misspelt option is an error that names the nearest option and all of them; checkers see the same options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from tests.support.peers import Pipe, said

from trimaran import SyncClient, connect
from trimaran.client import client as client_module
from trimaran.client.option_types import CallOptions, ListenOptions, LogLevel, TaskOptions
from trimaran.client.options import Options
from trimaran.connect_options import ConnectOptions
from trimaran.errors import ConfigError, ToolError
from trimaran.protocol.meta import LOG_LEVELS


def test_checkers_and_connect_know_the_same_options() -> None:
    assert ConnectOptions.__annotations__.keys() == set(Options.__struct_fields__)
    assert CallOptions.__annotations__.keys() == client_module._CALL_OPTIONS  # pyright: ignore[reportPrivateUsage]
    assert TaskOptions.__annotations__.keys() == client_module._TASK_OPTIONS  # pyright: ignore[reportPrivateUsage]
    assert ListenOptions.__annotations__.keys() == client_module._LISTEN_OPTIONS  # pyright: ignore[reportPrivateUsage]
    assert get_args(LogLevel) == LOG_LEVELS


@pytest.mark.parametrize("call", [connect, SyncClient])
def test_a_misspelt_option_of_connect_names_the_nearest_and_all(call: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        call("http://127.0.0.1:1/mcp", tiemout=3)
    text = str(caught.value)
    assert "unknown option 'tiemout'; did you mean 'timeout'? connect takes auth, cache, " in text
    assert "version" in text


async def test_a_misspelt_option_of_a_method_names_the_nearest_and_all() -> None:
    async with connect(Pipe().modern().on("tools/call", said("5"))) as client:
        untyped: Any = client
        with pytest.raises(TypeError, match=r"'tiemout'; did you mean 'timeout'\? call_tool takes .*into.*meta"):
            await untyped.call_tool("t", tiemout=3)
        with pytest.raises(TypeError, match=r"'tll'; did you mean 'ttl'\? start_task takes"):
            await untyped.start_task("t", tll=3)
        with pytest.raises(TypeError, match=r"'tool'; did you mean 'tools'\? listen takes"):
            untyped.listen(tool=True)


async def test_a_failed_tool_has_no_typed_data() -> None:
    """`into=int` promises an int: reading it from a failed call raises what the tool said."""
    async with connect(Pipe().modern().on("tools/call", said("it broke", isError=True))) as client:
        result = await client.call_tool("t", into=int)
        assert (result.is_error, result.text) == (True, "it broke")
        with pytest.raises(ToolError, match="it broke") as caught:
            assert result.data == 5
        assert caught.value.result is result
        assert (await client.call_tool("t")).data == "it broke"
