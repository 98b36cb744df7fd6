"""The options of a client: their defaults, their meanings, and the checks of their values.

The defaults suit a program that runs for weeks: every call ends, nothing grows without bound, and a server that breaks a rule
is logged but used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final, get_args

from msgspec import Struct

from trimaran.durations import check_seconds
from trimaran.errors import ConfigError
from trimaran.option_names import check_options
from trimaran.protocol.versions import SUPPORTED

from .sandbox_policy import read_sandbox

Era: TypeAlias = Literal["auto", "modern", "legacy"]
ClientState: TypeAlias = Literal["new", "connecting", "ready", "reconnecting", "closed"]
SchemaCheck: TypeAlias = Literal["warn", "strict", "off"]
Tap: TypeAlias = Callable[[Literal["out", "in"], bytes], None]

# The longest honest call we know of is a build; past this somebody forgot about it.
MAX_TIMEOUT: Final = 600.0
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# The attributes of a token source, of a grant, and of a Principal (for a server in this process).
_AUTHS: Final = (("header", "refresh"), ("acquire",), ("subject", "scopes"))
_FIELD_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")


@final
class Options(Struct, frozen=True, kw_only=True):
    """Everything `connect` takes beside its target. `option_types.py` has the types that users' checkers see."""

    era: Era = "auto"
    """Which eras to try: both (modern first), or one."""
    version: str | None = None
    """Speak this revision and no other."""
    timeout: float | None = 30.0
    """Seconds a call may take; None for no limit."""
    max_timeout: float | None = None
    """Seconds a call may take however much progress it reports; None for 600, or `timeout` if that is more."""
    connect_timeout: float = 30.0
    """Seconds to get from nothing to ready."""
    client_info: Mapping[str, Any] | None = None
    """The name and version sent to the server; by default those of this library."""
    capabilities: Mapping[str, Any] | None = None
    """Declared in addition to the capabilities that the handlers imply."""

    on_elicit: Any = None
    on_sample: Any = None
    roots: Any = None
    on_log: Any = None
    on_notification: Any = None
    on_request: Any = None
    on_state: Any = None
    handler: Any = None
    """An object with any of the handlers above as its methods."""

    schema_check: SchemaCheck = "warn"
    """The treatment of a structured result that does not match the tool's output schema."""
    raise_on_error: bool = False
    """Raise ToolError when a tool says that it failed."""
    retries: int = 2
    """How often a call that is safe to repeat is repeated after a loss."""
    ping_interval: float | None = None
    """Seconds between pings; None for no pings."""
    ping_failures: int = 3
    """Pings that may fail in a row before the connection counts as lost."""
    max_rounds: int = 10
    """How often one call may ask for input."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The longest message taken from a server."""
    cache: bool = True
    """Cache the results that the server allows to cache, for as long as it allows."""
    tasks: bool = False
    """Declare support for tasks: the server may then answer a call with a task, and `call_tool` waits for it."""
    tap: Tap | None = None
    """Sees every JSON message in either direction; for recording and debugging. A tap with a method `on_http` also sees the
    HTTP requests that carry them (`transports/http_tap.py`); one with a method `on_odd` is told what came that is no
    message."""

    auth: Any = None
    """A bearer token, or an object with `header()` and `refresh(www_authenticate)`."""
    headers: Mapping[str, str] | None = None
    """Sent with every HTTP request."""
    ssl: Any = None
    """An ssl.SSLContext, or False to accept any certificate."""
    env: Mapping[str, str] | None = None
    """Set for a child process, on top of the safe variables of this process's environment."""
    inherit_env: bool = False
    """Let a child process have this process's whole environment, with every secret in it."""
    cwd: Any = None
    """Where a child process starts."""
    sandbox: Any = None
    """The sandbox of a child process: "strict", a table or a `Sandbox`; None: it may reach everything that you may."""
    on_stderr: Callable[[str], None] | None = None
    """Sees every line a child process writes to stderr."""
    grace: float = 2.0
    """Seconds a child process gets to end by itself, and again after it was told to."""

    @classmethod
    def names(cls) -> frozenset[str]:
        """The names of all options."""
        return frozenset(cls.__struct_fields__)

    @classmethod
    def make(cls, keywords: Mapping[str, Any]) -> Options:
        """Options from keywords; ConfigError names the one that cannot be."""
        check_options(keywords, cls.names(), "connect")
        options = cls(**keywords)
        options._check()
        return options

    def _check(self) -> None:
        _choice("era", self.era, get_args(Era))
        _choice("schema_check", self.schema_check, get_args(SchemaCheck))
        if self.version is not None:
            _choice("version", self.version, SUPPORTED)
        for name in ("timeout", "max_timeout", "connect_timeout", "ping_interval", "grace"):
            value: Any = getattr(self, name)
            if value is None and name in ("connect_timeout", "grace"):
                raise ConfigError(f"{name} must be a number of seconds, not None")
            if value is not None and not _is_positive(value, zero=name == "grace"):
                raise ConfigError(f"{name} must be a positive number of seconds, not {value!r}")
            check_seconds(name, value)
        for name in ("retries", "ping_failures", "max_rounds", "max_message_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < (0 if name == "retries" else 1):
                least = "not negative" if name == "retries" else "positive"
                raise ConfigError(f"{name} is a whole number, {least}; not {value!r}")
        self._check_kinds()
        if read_sandbox(self.sandbox) is not None and self.inherit_env:
            raise ConfigError("inherit_env passes on every secret, and sandbox keeps them: give one of the two")
        modern = self.version == SUPPORTED[0]
        if self.version is not None and self.era != "auto" and modern != (self.era == "modern"):
            raise ConfigError(f"version={self.version!r} does not belong to era={self.era!r}; give one of the two")

    def _check_kinds(self) -> None:
        for name in ("client_info", "capabilities", "headers", "env"):
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise ConfigError(f"{name} must be a mapping, not {type(value).__name__}")
        for name in ("headers", "env"):
            pairs: Mapping[Any, Any] = getattr(self, name) or {}
            for key, value in pairs.items():
                if not isinstance(key, str) or not isinstance(value, str):
                    raise ConfigError(f"{name} maps text to text; {key!r} is {value!r}")
        if not isinstance(self.inherit_env, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  (a value of a config)
            raise ConfigError(f"inherit_env is True or False, not {self.inherit_env!r}; variables are named under env")
        for name in ("tap", "on_stderr"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"{name} is a function, not {type(value).__name__}")
        for key, value in (self.headers or {}).items():
            if not _TOKEN.fullmatch(key) or not _FIELD_VALUE.fullmatch(value):
                raise ConfigError(f"the header {key!r} is not legal HTTP")
        if self.ssl is not None and not isinstance(self.ssl, bool) and "SSLContext" not in type(self.ssl).__name__:
            raise ConfigError(f"ssl is an ssl.SSLContext, or False to accept any certificate; not {self.ssl!r}")
        auth = self.auth
        if isinstance(auth, str):
            if not _FIELD_VALUE.fullmatch(auth) or not auth.strip() or " " in auth:
                raise ConfigError("auth is a bearer token: printable ASCII without spaces or line breaks")
        elif isinstance(auth, type) or (auth is not None and not _is_auth(auth)):
            raise ConfigError(
                "auth is a bearer token, a grant of trimaran.oauth such as OAuth(login=True), or an object with header() and "
                f"refresh(www_authenticate); not {auth if isinstance(auth, type) else type(auth).__name__}"
            )
        if auth is not None and any(name.lower() == "authorization" for name in self.headers or ()):
            raise ConfigError("both headers and auth= give the Authorization header; give one of them")

    def __repr__(self) -> str:
        # Not the generated one: auth, headers and env hold what belongs in no log.
        return f"<Options era={self.era!r} timeout={self.timeout!r}>"

    @property
    def wanted_era(self) -> Era:
        """The era, with a pinned revision taken into account."""
        if self.version is None:
            return self.era
        return "modern" if self.version == SUPPORTED[0] else "legacy"


def _is_auth(auth: Any) -> bool:
    return any(all(hasattr(auth, name) for name in names) for names in _AUTHS)


def _is_positive(value: Any, *, zero: bool = False) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value):
        return False
    return value > 0 or (zero and value == 0)


def _choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(f"{name}={value!r} is not one of {listed}")
