"""Outputs on disk: for the user alone, for a while, bounded, and no reason to fail."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran.host.output_files import OutputFiles
from trimaran.host.output_limits import OutputMissing, OutputStore

ID = "abcdefghijklmnop_{}"


def files(folder: Path, clock: list[float] | None = None, **options: float) -> OutputFiles:
    settings = {"most": 3, "most_bytes": 1000, "ttl": 60.0, **options}
    if clock is None:
        return OutputFiles(folder, **settings)  # type: ignore[arg-type]
    return OutputFiles(folder, **settings, clock=lambda: clock[0])  # type: ignore[arg-type]


def test_a_file_is_for_the_user_alone(tmp_path: Path) -> None:
    outputs = files(tmp_path / "a" / "b")
    outputs.keep(ID, "host", "text").result()
    outputs.keep("abcdefghijklmnop", "host", "text").result()
    (file,) = [place for place in (tmp_path / "a" / "b").iterdir() if place.name.startswith("abcdefghijklmnop.")]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    outputs.close()


def test_an_output_is_read_by_its_owner_until_it_is_old(tmp_path: Path) -> None:
    clock = [0.0]
    outputs = files(tmp_path, clock)
    outputs.keep("abcdefghijklmnop", "host", "text \ud800 é").result()
    clock[0] = (tmp_path.stat()).st_mtime
    assert outputs.read("abcdefghijklmnop", "host") == "text \ud800 é"
    assert outputs.read("abcdefghijklmnop", "other") is None
    clock[0] += 100
    assert outputs.read("abcdefghijklmnop", "host") is None
    assert list(tmp_path.iterdir()) == []
    outputs.close()


@pytest.mark.parametrize("output_id", ["../../etc/passwd", "a", "", "x" * 100, "abcdefghijklmnop/.."])
def test_an_id_is_no_path(tmp_path: Path, output_id: str) -> None:
    outputs = files(tmp_path)
    assert outputs.read(output_id, "host") is None
    outputs.close()


def test_number_and_bytes_are_bounded(tmp_path: Path) -> None:
    outputs = files(tmp_path)
    for number in range(6):
        outputs.keep(f"abcdefghijklmnop{number}", "host", "x" * 200).result()
    assert len(list(tmp_path.iterdir())) == 3
    outputs.keep("abcdefghijklmnopqrst", "host", "x" * 900).result()
    assert len(list(tmp_path.iterdir())) == 1
    outputs.close()


def test_a_disk_that_cannot_be_written_costs_the_file_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = OutputStore(folder=blocked / "below")
    output_id = store.keep("text", owner="host")
    assert output_id is not None
    store.close()
    assert store.page(output_id, owner="host").text == "text"
    assert "only in this process" in caplog.text


@pytest.mark.slow
def test_another_process_reads_on(tmp_path: Path) -> None:
    store = OutputStore(folder=tmp_path)
    output_id = store.keep("0123456789" * 10, owner="host")
    store.close()
    program = (
        "import sys; from pathlib import Path; from trimaran.host.output_limits import OutputStore\n"
        "print(OutputStore(folder=Path(sys.argv[1])).page(sys.argv[2], owner='host', offset=95).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(output_id)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "56789"
    with pytest.raises(OutputMissing):
        OutputStore(folder=tmp_path).page("no-such-output-here", owner="host")
