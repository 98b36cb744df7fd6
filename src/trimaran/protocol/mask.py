"""A URL or a command line of a server without the secrets in it.

Pure. Masked are credentials and the values of a query in URLs, long opaque pieces of their paths, and arguments that look
like a secret: by the option before them, by the variable they set, or by the form that services give their tokens. It is a
guess, and a secret that looks like nothing stays: whoever can keep secrets out of both does so.

`Mask` is for texts of others that hold a target's URL or command somewhere, such as a transport's errors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, final

MASK: Final = "***"

# As services make them: sk-..., ghp_..., github_pat_..., xoxb-..., glpat-..., AKIA..., a JWT. Not in the middle of a word:
# there is an "sk-" in "task-".
TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk)[-_][\w-]{16,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|xox[a-z]-[\w-]{10,}"
    r"|glpat-[\w-]{10,}|AKIA[0-9A-Z]{12,}|eyJ[\w-]{10,}\.[\w-]+(?:\.[\w-]*)?)"
)
# A word that sets something, and what its name says. They are apart because a name in the middle of one expression would be
# looked for at every place of a text that may be a stranger's, and long.
_FLAG: Final = re.compile(r"(--?[\w-]+)(?:=(.*))?", re.DOTALL)
_SECRET_FLAG: Final = re.compile(
    r"secret|token|password|passwd|api[-_]?key|credential|auth|header|bearer", re.IGNORECASE
)
# API_KEY=..., --env=API_KEY=..., -eAPI_KEY=...
_SETTING: Final = re.compile(r"((?:--?[\w-]+=|-[A-Za-z])?(\w+)=)(.+)", re.DOTALL)
_SECRET_SETTING: Final = re.compile(r"secret|token|password|passwd|credential|key", re.IGNORECASE)
_HEADER: Final = re.compile(r"(([\w-]+)[ \t]*:[ \t]*)((?!//).+)", re.DOTALL)
_SECRET_HEADER: Final = re.compile(r"authorization|cookie|api-?key|token|secret", re.IGNORECASE)
# A long piece of a path with letters and digits in it: some services put the key there.
_OPAQUE: Final = re.compile(r"(?<!/)/(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[A-Za-z0-9_=.-]{20,}(?=/|$)")
_SECRET_NAME: Final = re.compile(r"secret|token|passw|key|credential|auth|cookie", re.IGNORECASE)
_SHORTEST: Final = 8  # characters; a shorter value of a secret name is not masked
_SHORT: Final = 3  # characters; a text this short is no secret, and would be replaced everywhere
_CUT: Final = 200  # characters of a command that the transport of children tells

Hide = Callable[[str], str]
"""Stands in for a secret."""


def _whole(text: str) -> str:
    return MASK if text else text


def mask_url(text: str, hide: Hide = _whole) -> str:
    """A URL without user, password, the values of its query, and words in its path that look like tokens."""
    text = re.sub(r"://[^/?#\s]*@", f"://{MASK}@", text)
    head, mark, query = text.partition("?")
    head = _OPAQUE.sub(lambda match: f"/{MASK}", head)
    query = re.sub(r"=([^&#]*)", lambda match: f"={hide(match[1])}", query)
    return TOKEN.sub(MASK, f"{head}{mark}{query}")


def mask_arguments(listed: Sequence[Any], hide: Hide = _whole) -> list[Any]:
    """The arguments of a command with their secrets masked; arguments that are not text stay."""
    masked: list[Any] = []
    hides_next = False
    for argument in listed:
        if not isinstance(argument, str):
            masked.append(argument)
            continue
        flag = _FLAG.fullmatch(argument)
        flag = flag if flag and _SECRET_FLAG.search(flag[1]) else None
        if hides_next and not (flag and argument.startswith("--")):
            masked.append(hide(argument))
            hides_next = False
        elif flag:
            masked.append(argument if flag[2] is None else f"{flag[1]}={hide(flag[2])}")
            hides_next = flag[2] is None
        elif (setting := _SETTING.fullmatch(argument)) and _SECRET_SETTING.search(setting[2]):
            masked.append(setting[1] + hide(setting[3]))
            hides_next = False
        elif (header := _HEADER.fullmatch(argument)) and _SECRET_HEADER.search(header[2]):
            masked.append(header[1] + hide(header[3]))
            hides_next = False
        else:
            masked.append(mask_url(argument, hide) if "://" in argument else TOKEN.sub(MASK, argument))
            hides_next = False
    return masked


def mask_command(command: Sequence[str]) -> str:
    """A command line, as one would type it."""
    return " ".join(argument if argument == MASK else shlex.quote(argument) for argument in mask_arguments(command))


def _pairs(url: str) -> list[tuple[str, str]]:
    """A URL, and each of its secrets: where it redirects to, and how a library writes it, may be another URL with them."""
    head, _, query = url.partition("?")
    pairs = [(url, mask_url(url))]
    for name, _, value in (setting.partition("=") for setting in re.split("[&#]", query)):
        if name and value:
            pairs.append((f"{name}={value}", f"{name}={MASK}"))
    pairs += [(match[0], f"/{MASK}") for match in _OPAQUE.finditer(head)]
    return pairs + [(match[0], MASK) for match in TOKEN.finditer(url)]


def secrets_in(table: Any) -> list[str]:
    """Secrets in headers or environment that a server may repeat in an error or on stderr: `Bearer x`, and `x`."""
    settings: Mapping[str, Any] = cast("Any", table) if isinstance(table, Mapping) else {}
    values = [value for name, value in settings.items() if _SECRET_NAME.search(name) and isinstance(value, str)]
    return [
        text
        for value in values
        for text in (value, value.split()[-1] if value.split() else "")
        if len(text) >= _SHORTEST
    ]


@final
class Mask:
    """Takes the secrets of one target out of any text.

    Args:
        url: Where the target is.
        command: How it is started; or its arguments alone.
        secrets: More secrets, such as the token that is sent to the target.
    """

    __slots__ = ("_pairs",)

    def __init__(self, url: str = "", command: Iterable[Any] = (), secrets: Iterable[str] = ()) -> None:
        words = [word for word in command if isinstance(word, str)]
        pairs = _pairs(url) if "://" in url else []
        pairs += [(secret, MASK) for secret in secrets]
        if len(line := shlex.join(words)) > _CUT:
            pairs.append((line[:_CUT], mask_command(words)[:_CUT]))  # cut in the middle of a secret, perhaps
        for word, masked in zip(words, mask_arguments(words), strict=True):
            pairs += [(shlex.quote(word), masked), (word, masked)]
        changed = {text: masked for text, masked in pairs if text != masked and len(text) > _SHORT}
        # The longest first: it may hold another one.
        self._pairs = sorted(changed.items(), key=lambda pair: -len(pair[0]))

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._pairs)

    def __call__(self, text: str) -> str:
        for secret, masked in self._pairs:
            text = text.replace(secret, masked)
        return text
