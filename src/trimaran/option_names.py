"""Names of options: a misspelt one is refused with the nearest name and all the others.

A type checker reports the same mistake in the editor. This is for programs that run without one.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import ConfigError


def check_options(
    options: Iterable[str], known: Iterable[str], owner: str, error: type[Exception] = ConfigError
) -> None:
    """Refuse the first option that `owner` does not take.

    Raises:
        ConfigError: or the class given as `error`; the message names the nearest option and all of them.
    """
    names = sorted(known)
    for name in options:
        if name not in names:
            raise error(f"unknown option {name!r};{suggestion(name, names)} {owner} takes {', '.join(names)}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The words " did you mean 'timeout'?", or none if no known name is near."""
    import difflib  # costs more than this whole module, and only a mistake needs it

    near = difflib.get_close_matches(name, list(known), n=1)
    return f" did you mean {near[0]!r}?" if near else ""
