"""The compatibility page is what `make world` found, and the lists that `make world` runs are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..world import results
from ..world.agents import AGENTS
from ..world.catalog import Program, RealServer, read_known, read_programs, read_servers
from ..world.frameworks import BRIDGES, driver_of
from ..world.results import PAGE, Row, Run, read_results, render

PROGRAMS = read_programs()
SERVERS, _ = read_servers()
EVERYTHING: list[Program | RealServer] = [*PROGRAMS, *SERVERS]


def name_of(program: Program | RealServer) -> str:
    return program.name


def test_the_page_says_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(read_results())


def test_every_result_is_of_a_program_that_is_still_run() -> None:
    assert set(read_results()) <= {program.name for program in EVERYTHING}


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_client_program_has_the_code_that_runs_it(program: Program) -> None:
    match program.kind:
        case "agent":
            assert program.name in AGENTS
        case "framework":
            assert driver_of(program.packages).exists()
        case _:
            assert BRIDGES[program.name]


def test_names_are_unique_and_the_main_package_of_each_is_pinned() -> None:
    names = [program.name for program in EVERYTHING]
    assert len(names) == len(set(names))
    assert not [program.name for program in EVERYTHING if not all(program.packages.main)]


def test_a_known_fault_belongs_to_a_program_and_has_a_reason() -> None:
    names = {program.name for program in EVERYTHING}
    assert not [known for known in read_known() if known.program not in names or not known.reason]


def test_a_partial_run_leaves_the_other_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    first = Row("agent", "a", "A", "a", "1", "2026-01-01", {"stdio": Run(True)})
    second = Row("bridge", "b", "B", "b", "2", "2026-01-02", {"http": Run(False, ["add: no | result"], ["its own"])})
    results.save(first)
    results.save(second)
    assert read_results() == {"a": first, "b": second}
    page = (tmp_path / "page.md").read_text()
    assert "stdio: works" in page
    assert "http: **fails**: add: no \\| result" in page
    assert "| B | its own |" in page
