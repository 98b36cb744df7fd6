"""`trimaran serve --auth`: who may call a server, from one word of the command line.

NAME             a provider in the served file                   auth = ApiKey({...}); --auth auth
FILE.py:NAME     one in another file or module
none             nobody is asked who they are, whatever the file holds
apikeys:PATH     keys in a text file, hashed                     one `<stored form> [subject] [scope ...]` a line
jwt:ISSUER       JWTs of this issuer, made for --audience        with metadata for clients, if that is a URL
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from trimaran.errors import ConfigError
from trimaran.files import read_file

from .auth.hash import PEPPER
from .load import BrokenFile, ServerFile, load_module, parse

_LARGEST_KEYS: Final = 4 * 1024 * 1024  # bytes; some forty thousand keys
FORMS: Final = (
    "--auth is the name of a provider in the served file (--auth auth), one in another (--auth FILE.py:NAME), "
    "a file of hashed keys (--auth apikeys:keys.txt) or an issuer (--auth jwt:https://login.example.com --audience URL)"
)


def provider(spec: str, audience: str | None, served: ServerFile | None) -> Any:
    """The provider that is meant. `served` is the file that is served, which has been imported before; a proxy has none."""
    kind, colon, rest = spec.partition(":")
    if kind != "jwt" and audience is not None:
        raise ConfigError("--audience goes with --auth jwt:ISSUER; a provider of your own has its audience in it")
    if spec == "none":
        return None
    if colon and kind == "apikeys":
        return _api_keys(rest)
    if colon and kind == "jwt":
        return _jwt(rest, audience)
    if served is not None and spec.replace(".", "").isidentifier():
        return _named(load_module(served), spec, _origin(served))
    try:
        where = parse(spec)
    except ConfigError as error:
        raise ConfigError(f"--auth {spec}: {error}. {FORMS}") from None
    if where.obj is None:
        raise ConfigError(f"--auth {spec}: say which of its names is the provider, as in {spec}:auth")
    return _named(load_module(where), where.obj, _origin(where))


def check_unused(served: ServerFile) -> None:
    """A file that holds a provider means it to be used; to serve without it in silence would open the door."""
    names = [name for name, value in vars(load_module(served)).items() if _is_provider(value)]
    if names:
        raise ConfigError(
            f"{_origin(served)} holds the provider {names[0]!r}: say --auth {names[0]} to have it decide who may call, or "
            "--auth none to serve without"
        )


def _origin(target: ServerFile) -> str:
    return str(target.file.name) if target.file is not None else str(target.module)


def _named(module: ModuleType, name: str, origin: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise BrokenFile(f"--auth: {origin} has no {name!r}{_instead(module, name)}")
        value = getattr(value, part)
    if isinstance(value, type):
        raise BrokenFile(f"--auth: {name!r} in {origin} is a class: write auth = {name}(...) there, and --auth auth")
    if not _is_provider(value):
        raise BrokenFile(
            f"--auth: {name!r} in {origin} is a {type(value).__name__}, not a provider of trimaran.auth, such as "
            f"ApiKey(...){_instead(module, name)}"
        )
    return value


def _is_provider(value: Any) -> bool:
    return not isinstance(value, (type, ModuleType)) and callable(getattr(value, "authenticate", None))


def _instead(module: ModuleType, name: str) -> str:
    names = [other for other, value in vars(module).items() if _is_provider(value)]
    near = difflib.get_close_matches(name, names, n=1) or names
    return (
        f"; did you mean {near[0]}?"
        if near
        else '; it holds no provider: write auth = ApiKey(["..."]) at its top level'
    )


# --- keys in a file --------------------------------------------------------------------------------------------------


def _api_keys(path: str) -> Any:
    from trimaran.auth.apikey import ApiKey

    if not path:
        raise ConfigError(f"--auth apikeys: names no file. {FORMS}")
    keys = read_keys(Path(path).expanduser())
    return ApiKey(keys, hash_keys=True, pepper=os.environ.get(PEPPER) or None)


def read_keys(path: Path) -> dict[str, dict[str, Any]]:
    """Hashed keys and whose they are. Messages count the lines: to quote one might put a secret into a log."""
    from trimaran.auth.hashes import is_keyed, is_legacy_hash

    try:
        lines = read_file(path, _LARGEST_KEYS).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--auth apikeys: {str(path)!r} cannot be read: {reason}") from None
    keys: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        stored, *rest = line.split("#", 1)[0].split() or [""]
        if not stored:
            continue
        where = f"--auth apikeys: line {number} of {path}"
        if not (is_keyed(stored) or is_legacy_hash(stored)):
            raise ConfigError(
                f"{where} does not begin with the stored form of a key: `trimaran auth hash` makes it; keys themselves do not belong there"
            )
        if is_keyed(stored) and not os.environ.get(PEPPER):
            raise ConfigError(f"{where} was made with a pepper: set {PEPPER} to it")
        if stored in keys:
            raise ConfigError(f"{where} repeats the key of an earlier line")
        keys[stored] = {"scopes": rest[1:], **({"subject": rest[0]} if rest else {})}
    if not keys:
        raise ConfigError(
            f"--auth apikeys: {str(path)!r} holds no key, so nobody could call: trimaran auth hash --generate >> {path}"
        )
    return keys


# --- an issuer -------------------------------------------------------------------------------------------------------


def _jwt(issuer: str, audience: str | None) -> Any:
    if not issuer:
        raise ConfigError(f"--auth jwt: names no issuer. {FORMS}")
    if audience is None:
        raise ConfigError(
            "--auth jwt: needs --audience, for whom its tokens are made: the URL of this server as clients write it, or what "
            "the issuer puts into aud. Without it a token for any other server would do"
        )
    if urlsplit(audience).scheme in ("http", "https"):
        from trimaran.auth.resource import ProtectedResource

        return ProtectedResource(resource=audience, authorization_servers=[issuer])
    from trimaran.auth.bearer import Bearer

    return Bearer(jwks="discover", issuer=issuer, audience=audience)
