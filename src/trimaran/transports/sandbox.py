"""Start a server in a sandbox: the command of bubblewrap (Linux) or sandbox-exec (macOS) around its own.

Nothing runs without the sandbox that was asked for: where the tool is missing, or the system has none, this refuses.

On Linux the process gets namespaces of its own. It sees the system's programs and libraries, its own program and runtime, and
the listed paths, all but the writable ones read-only; a home and a /tmp that are empty and vanish; no process but its own;
no network but a loopback of its own. Processes that it starts are in there with it, and end with it: the kernel ends all of a
process namespace with its first process, daemons too. A filter closes what namespaces leave open. On macOS a profile that denies by default is applied to the process
and what it starts; a daemon that leaves its group there is out of reach.

A list of hosts needs a way out: `sandbox_proxy.py` runs outside and lets through what is listed. On Linux its socket is bound
into the sandbox, where `sandbox_relay.py` listens on loopback for programs that know HTTP_PROXY.

`bubblewrap_command` and `seatbelt_profile` are pure but for looking at which paths exist.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, final

from trimaran.client.sandbox_policy import Sandbox
from trimaran.errors import ConfigError
from trimaran.files import read_file

from .sandbox_filter import build_filter

# Directories of the system, each as it is: on merged systems /bin is a link to usr/bin.
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
# The files of /etc that programs need to start at all: the linker's, names of users, certificates, time. No secrets, no settings.
_ETC: Final = (
    "ld.so.cache ld.so.conf ld.so.conf.d alternatives passwd group nsswitch.conf localtime timezone ssl pki ca-certificates "
    "ca-certificates.conf crypto-policies mime.types protocols services os-release"
)
# Parts of /proc that are about the whole machine. A server of root's could write the first ones, settings of the kernel among
# them, without any capability: its files belong to root. The others tell of memory and keys.
_READ_ONLY_PROC: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "mtrr")
_HIDDEN_PROC: Final = ("kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "latency_stats")
_NETWORK: Final = "resolv.conf hosts host.conf gai.conf"
_PASSED: Final = ("PATH", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "HOME", "NO_COLOR")
_PREFIX_PARTS: Final = ("bin", "lib", "lib64", "libexec")
_SMALL: Final = (
    "--size",
    str(256 * 1024 * 1024),
)  # bytes of a folder in memory: caches fit, the machine's memory stays
_BINDS: Final = ("--ro-bind", "--bind")
_MOST_SETTINGS: Final = 64 * 1024  # bytes of a pyvenv.cfg; it has ten lines
_SHEBANG: Final = 512  # bytes; Linux reads 256
_MOST_LINKS: Final = 20
_SOCKET: Final = "/run/trimaran-proxy.sock"
_SEATBELT: Final = "/usr/bin/sandbox-exec"


class SandboxedStart(NamedTuple):
    """How to start a server within its sandbox."""

    words: list[str]
    environment: dict[str, str]
    cwd: str | None
    seccomp: bytes = b""
    """For bubblewrap: the filter that it must inherit, see `sandbox_filter.py`."""


@final
class _Mounts:
    """The mounts of a sandbox. Outer ones come first, so that an inner one is not covered."""

    def __init__(self) -> None:
        self._mounts: dict[str, list[str]] = {}

    def add(self, path: str, *words: str) -> None:
        self._mounts[path] = list(words)

    def bind(self, path: str, option: str = "--ro-bind") -> None:
        self.add(path, option, os.path.realpath(path), path)

    def covers(self, path: str) -> bool:
        """True if a path is seen through a bound folder, or is one."""
        return path in self._mounts or self._outer(path) in _BINDS

    def _outer(self, path: str) -> str:
        """The option of the innermost mount around a path; empty if there is none."""
        around = [known for known in self._mounts if known != path and path.startswith(known.rstrip("/") + "/")]
        return self._mounts[max(around, key=len)][0] if around else ""

    def words(self) -> list[str]:
        ordered = sorted(self._mounts.items(), key=lambda mount: mount[0].rstrip("/").count("/"))
        # A path that an outer mount shows in the same way needs none of its own; it may be a link there, which cannot be mounted on.
        return [
            word for path, words in ordered if words[0] != self._outer(path) or words[0] not in _BINDS for word in words
        ]


def prepare_sandbox(
    policy: Sandbox,
    words: list[str],
    environment: Mapping[str, str],
    cwd: str | None,
    *,
    proxy: str | int | None = None,
    platform: str = sys.platform,
) -> SandboxedStart:
    """The command, the environment and the folder for a start in a sandbox.

    Args:
        words: The program, as a whole path, and its arguments.
        environment: As `sandbox_environment` makes it.
        proxy: For a list of hosts: the socket of the proxy on Linux, its port on macOS.

    Raises:
        ConfigError: there is no sandbox on this system, its tool is missing, or a path of the policy is not there.
    """
    folder = os.path.abspath(cwd or os.getcwd())
    _check_paths(policy, folder)
    if platform.startswith("linux"):
        tool = shutil.which("bwrap")
        if tool is None:
            raise ConfigError(
                "the server is not started: its sandbox needs bubblewrap, and there is no bwrap on PATH. Install it "
                "(apt-get install bubblewrap), or remove sandbox from the server's entry"
            )
        socket = proxy if isinstance(proxy, str) else None
        command = bubblewrap_command(tool, policy, words, environment, folder, socket=socket)
        return SandboxedStart(command, dict(environment), None, build_filter(os.uname().machine))
    if platform == "darwin":
        if not os.access(_SEATBELT, os.X_OK):
            raise ConfigError(f"the server is not started: its sandbox needs {_SEATBELT}, which is not there")
        port = proxy if isinstance(proxy, int) else None
        profile = seatbelt_profile(policy, words, environment, folder, proxy_port=port)
        variables = {**environment, **(_proxy_variables(port) if port is not None else {})}
        return SandboxedStart([_SEATBELT, "-p", profile, *words], variables, cwd)
    raise ConfigError(
        f"the server is not started: there is no sandbox for {platform}, only for Linux (bubblewrap) and macOS "
        "(sandbox-exec). Remove sandbox from the server's entry to run it with all your rights"
    )


def sandbox_environment(policy: Sandbox, environ: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a sandboxed server: where programs and texts are, those that the policy names, and its own `env`."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in _PASSED or name.startswith("LC_") or name in policy.env
    }
    return {**passed, **env}


def _check_paths(policy: Sandbox, cwd: str) -> None:
    for key, paths in (("read", policy.read), ("write", policy.write)):
        for path in paths:
            if not os.path.exists(_absolute(path, cwd)):
                raise ConfigError(f"the server is not started: sandbox.{key} names {path!r}, which is not there")


def _absolute(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))


# --- what a program needs of its own ---------------------------------------------------------------------------------


def runtime_paths(words: Iterable[str], environment: Mapping[str, str], cwd: str) -> list[str]:
    """The program, the runtime behind it, and the scripts that its arguments name: what it takes to start, and no more.

    A virtual environment comes with the Python it was made from, a script with its interpreter, a package of Node with the
    `node_modules` that it is in. Of another prefix (`~/.local/bin/x`) its programs and libraries come, not its data.
    """
    program, *arguments = words
    paths: dict[str, None] = dict.fromkeys(_of_program(program, environment.get("PATH", os.defpath), set()))
    for argument in arguments:
        file = os.path.join(cwd, argument)
        if not argument.startswith("-") and os.path.isfile(file):
            paths[os.path.abspath(file)] = None
            paths.update(dict.fromkeys(_node_modules(os.path.abspath(file))))
    return [path for path in paths if os.path.exists(path) and not path.startswith("/usr/")]


def _of_program(program: str, path: str, seen: set[str]) -> Iterator[str]:
    file = os.path.abspath(program)
    for _ in range(_MOST_LINKS):
        if file in seen:
            return
        seen.add(file)
        yield file
        yield from _of_prefix(file, path, seen)
        yield from _node_modules(file)
        if not os.path.islink(file):
            break
        file = os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file)))
    real = os.path.realpath(program)
    if real not in seen:
        seen.add(real)
        yield real
        yield from _of_prefix(real, path, seen)
        yield from _node_modules(real)
    if interpreter := _interpreter(real, path):
        yield from _of_program(interpreter, path, seen)


def _of_prefix(file: str, path: str, seen: set[str]) -> Iterator[str]:
    folder, prefix = os.path.dirname(file), os.path.dirname(os.path.dirname(file))
    if os.path.basename(folder) not in ("bin", "Scripts") or prefix in ("/", "/usr"):
        return
    try:
        settings = read_file(Path(prefix, "pyvenv.cfg"), _MOST_SETTINGS).decode("utf-8", "replace")
    except OSError:
        yield from (os.path.join(prefix, part) for part in _PREFIX_PARTS)
        return
    yield prefix
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            yield from _of_program(os.path.join(value.strip(), "python3"), path, seen)


def _node_modules(file: str) -> Iterator[str]:
    parts = Path(file).parts
    if "node_modules" in parts:
        yield str(Path(*parts[: parts.index("node_modules") + 1]))


def _interpreter(file: str, path: str) -> str | None:
    """The program that the first line of a script names."""
    try:
        first = read_file(file, _SHEBANG, at_least_head=True).split(b"\n", 1)[0]
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = os.fsdecode(first[2:]).split()
    if words and os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return shutil.which(names[0], path=path) if names else None
    return words[0] if words else None


# --- Linux -----------------------------------------------------------------------------------------------------------


def bubblewrap_command(
    tool: str,
    policy: Sandbox,
    words: list[str],
    environment: Mapping[str, str],
    cwd: str,
    *,
    socket: str | None = None,
) -> list[str]:
    """The command line of bubblewrap for a policy.

    Args:
        socket: The socket of the proxy, for a list of hosts.
    """
    mounts = _Mounts()
    for path in _SYSTEM:
        if os.path.islink(path):
            mounts.add(path, "--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            mounts.bind(path)
    names = f"{_ETC} {_NETWORK}" if policy.net is True else _ETC
    for name in names.split():
        if os.path.exists(path := f"/etc/{name}"):
            mounts.bind(path)
    mounts.add("/proc", "--proc", "/proc")
    for name in _READ_ONLY_PROC:
        if os.path.exists(path := f"/proc/{name}"):
            mounts.add(path, "--ro-bind-try", path, path)
    for name in _HIDDEN_PROC:
        if os.path.exists(path := f"/proc/{name}"):
            mounts.add(path, "--ro-bind-try", os.devnull, path)
    mounts.add("/dev", "--dev", "/dev")
    mounts.add("/dev/shm", *_SMALL, "--tmpfs", "/dev/shm")  # noqa: S108 - one of its own
    mounts.add("/tmp", *_SMALL, "--tmpfs", "/tmp")  # noqa: S108 - one of its own
    home = environment.get("HOME", "")
    if os.path.isabs(home) and home != "/":
        mounts.add(home, *_SMALL, "--tmpfs", home)
    for path in runtime_paths(words, environment, cwd):
        mounts.bind(path)
    for path in policy.read:
        mounts.bind(_absolute(path, cwd))
    for path in policy.write:
        mounts.bind(_absolute(path, cwd), "--bind")
    start = list(words)
    if policy.net and policy.net is not True:
        start = _through_proxy(mounts, start, environment, socket)
    if not mounts.covers(cwd):
        mounts.add(cwd, "--dir", cwd)
    return [
        tool,
        "--unshare-all",
        *(["--share-net"] if policy.net is True else []),
        # It could make namespaces of its own else, and look for faults of the kernel there.
        "--unshare-user",
        "--disable-userns",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--new-session",
        "--hostname",
        "sandbox",
        *mounts.words(),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        "--chdir",
        cwd,
        "--",
        *start,
    ]


def _through_proxy(mounts: _Mounts, words: list[str], environment: Mapping[str, str], socket: str | None) -> list[str]:
    """The same start behind a relay that leads from loopback to the proxy's socket."""
    if socket is None:
        raise ConfigError("a sandbox with a list of hosts needs the socket of its proxy")
    relay = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox_relay.py")
    python = sys.executable
    for path in runtime_paths([python, relay], environment, "/"):
        if not mounts.covers(path):
            mounts.bind(path)
    mounts.add(_SOCKET, "--bind", socket, _SOCKET)
    return [python, "-I", "-S", relay, _SOCKET, "--", *words]


def _proxy_variables(port: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")
    return {**dict.fromkeys(names, address), "NODE_USE_ENV_PROXY": "1", "NO_PROXY": "", "no_proxy": ""}


# --- macOS -----------------------------------------------------------------------------------------------------------

_MAC_SYSTEM: Final = (
    *(
        "/usr/lib",
        "/usr/bin",
        "/usr/sbin",
        "/usr/share",
        "/usr/libexec",
        "/bin",
        "/sbin",
        "/System",
        "/Library/Frameworks",
    ),
    *("/Library/Developer/CommandLineTools", "/private/etc/ssl", "/private/var/db/timezone", "/private/var/db/dyld"),
    *("/opt/homebrew/Cellar", "/opt/homebrew/opt", "/opt/homebrew/lib", "/usr/local/Cellar", "/usr/local/lib"),
)


def seatbelt_profile(
    policy: Sandbox, words: list[str], environment: Mapping[str, str], cwd: str, *, proxy_port: int | None = None
) -> str:
    """The profile of sandbox-exec for a policy: everything is denied that is not named.

    Args:
        proxy_port: The port of the proxy on loopback, for a list of hosts.
    """
    readable = [*_MAC_SYSTEM, *runtime_paths(words, environment, cwd), *(_absolute(path, cwd) for path in policy.read)]
    writable = [_absolute(path, cwd) for path in policy.write]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec*)",  # what may be executed must be readable, which is limited below
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        '(allow file-read* (literal "/") (literal "/dev/null") (literal "/dev/random") (literal "/dev/urandom"))',
        '(allow file-write-data (literal "/dev/null"))',
        '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
        *(f"(allow file-read* (subpath {_quoted(path)}))" for path in _both_paths([*readable, *writable])),
        *(f"(allow file-write* (subpath {_quoted(path)}))" for path in _both_paths(writable)),
    ]
    if policy.net is True:
        lines += [
            "(allow network*)",
            "(allow system-socket)",
            '(allow file-read* (literal "/private/etc/resolv.conf"))',
        ]
    elif policy.net and proxy_port is not None:
        lines.append(f'(allow network-outbound (remote ip "localhost:{proxy_port}"))')
    return "\n".join(lines) + "\n"


def _both_paths(paths: Iterable[str]) -> list[str]:
    """Each path as it is written and as it really is: a profile is matched against the latter, /tmp is /private/tmp."""
    return list(dict.fromkeys(form for path in paths for form in (path, os.path.realpath(path))))


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
