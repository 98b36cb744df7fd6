"""The reference page is right: its TOML loads as it stands, and it names every key and every program there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimaran.host import Machine, OAuthEntry, Source, read_config
from trimaran.host.config import CLIENTS
from trimaran.host.config import entry as reading

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MACHINE = Machine(home="/u", workspace="/w", environ={"LINEAR_API_KEY": "k", "VAULT_SECRET": "s", "LEDGER_SECRET": "s"})


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_toml_of_the_page_loads_without_a_complaint(number: int) -> None:
    """R234, R235."""
    config = read_config([(Source("mcp.toml", "user"), BLOCKS[number])], MACHINE)
    assert not config.failed, [failed.reason for failed in config.failed.values()]
    assert not config.problems
    assert config.servers


def test_the_page_names_every_key_and_program() -> None:
    known = (*reading._STDIO, *reading._HTTP, *reading._COMMON, *OAuthEntry.__struct_fields__, *CLIENTS)  # pyright: ignore[reportPrivateUsage]
    missing = [key for key in known if f"`{key}`" not in PAGE and f".{key}]`" not in PAGE and f"`{key} = " not in PAGE]
    assert not [key for key in missing if f".{key}.Y]`" not in PAGE]
