"""`make fuzz`: look for bytes that break a promise of `targets.py`, guided by coverage.

    python -m tests.fuzz [--only NAME,...] [--seconds 60] [--keep] [--list]

Needs atheris, which `make fuzz` installs into an environment of its own. Each target runs in a process of its own, from its
corpus. What breaks a promise is printed, and belongs into the corpus together with its fix. `--keep` adds to the corpus
what reaches code that nothing in it reached.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .inputs import FOLDER, read_corpus, write_corpus

ROOT = Path(__file__).resolve().parents[2]
MAX_INPUT = 1024  # bytes; long enough for every branch, short enough to be read
MAX_KEPT = 24 * 1024  # bytes of a target's corpus


def fuzz_one(name: str, arguments: list[str]) -> None:
    """Become the fuzzer: it never returns."""
    atheris: Any = importlib.import_module("atheris")  # in .venv-fuzz only
    with atheris.instrument_imports(include=["trimaran"], enable_loader_override=False):
        from .targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", "--target", name, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)


def write_inputs(inputs: list[bytes], folder: Path) -> Path:
    folder.mkdir()
    for number, data in enumerate(inputs):
        (folder / str(number)).write_bytes(data)
    return folder


def read_inputs(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


def fuzz(name: str, seconds: int, *, keep: bool) -> bool:
    """Whether all promises held."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        grown = write_inputs(read_corpus(name), folder / "grown")
        limits = [f"-max_len={MAX_INPUT}", "-timeout=20", "-rss_limit_mb=2048"]
        outcome = run(name, f"-max_total_time={seconds}", *limits, f"-artifact_prefix={folder}/", str(grown))
        broken = [path for path in folder.iterdir() if path.is_file()]
        runs = next((line for line in reversed(outcome.stderr.splitlines()) if line.startswith(("#", "Done"))), "")
        print(
            f"{name:26} {'BROKEN' if broken or outcome.returncode else 'ok':7} {len(read_inputs(grown)):5} inputs  {runs[:80]}",
            flush=True,
        )
        for path in broken:
            print(f"  {path.name.partition('-')[0]}: {path.read_bytes()!r}")
        if broken or outcome.returncode:
            print("\n".join("  " + line for line in outcome.stderr.splitlines()[-40:] if line.strip()))
        if keep:
            keep_inputs(name, read_inputs(grown))
    return not broken and not outcome.returncode


def keep_inputs(name: str, inputs: list[bytes]) -> None:
    """What reached something new, the shortest first, as many as there is room for; what was there stays."""
    kept, size = read_corpus(name), 0
    for data in sorted(set(inputs) | set(kept), key=len):
        size += len(repr(data)) + 1
        if size < MAX_KEPT and data not in kept:
            kept.append(data)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(write_corpus(kept))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--only", default="", help="targets, by name")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", action="store_true", help="add what reaches new code to the corpus")
    parser.add_argument("--list", action="store_true", help="the names of all targets")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.target:
        fuzz_one(options.target, rest)
    names = subprocess.run(
        [sys.executable, "-c", "from tests.fuzz.targets import TARGETS; print(*TARGETS)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if options.list:
        print("\n".join(names))
        return 0
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    if unknown := set(only) - set(names):
        print(f"no such target: {', '.join(sorted(unknown))}; see --list", file=sys.stderr)
        return 2
    results = [fuzz(name, options.seconds, keep=options.keep) for name in only or names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
