"""Every attack succeeds against a host without its defences, and none against a host as it comes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .attacks import ATTACKS, Attack
from .rig import Rig

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_an_attack_succeeds_only_without_the_defences(attack: Attack, tmp_path: Path) -> None:
    undefended, defended = Rig(False, tmp_path / "undefended"), Rig(True, tmp_path / "defended")
    for rig in (undefended, defended):
        rig.folder.mkdir()
        await attack.run(rig)
    assert undefended.loot, "the attack does not work, so that it shows nothing"
    assert not defended.loot
    assert defended.stops, "nothing says what stopped it"


def test_the_page_about_threats_names_every_attack() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "threats.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.rpartition("|")[0].rpartition("|")[2])]
    assert sorted(named) == sorted(attack.run.__name__ for attack in ATTACKS)
