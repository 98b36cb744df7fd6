"""Which variables of our environment a child process gets, and which of them it seems to miss.

A server that runs as our child is somebody else's program. It gets the variables below, which say where things are and how
the machine is set up, and what its entry names under `env`; not the tokens of every other service that happen to be set
here. This is no sandbox: the child still runs with the user's rights, and reads the user's files.

Two rules decide, in this order:

1. The name is in one of the tables, compared without case, because proxies and npm's settings are written both ways.
2. Neither name nor value carries a credential: `npm_config__auth`, `UV_INDEX_WORK_PASSWORD`, and
   `PIP_INDEX_URL=https://user:token@host/` stay here. Proxies are the exception: behind one that wants a password, a child
   without it reaches nothing at all.

Pure: the environment is an argument. `process.py` and `trimaran doctor` start children with it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Mapping
from typing import Final

from trimaran.protocol.mask import TOKEN

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")
_EVERYWHERE: Final = (
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TERM COLORTERM NO_COLOR TZ TMPDIR",
    # Certificates.
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE HTTPLIB2_CA_CERTS CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "GIT_SSL_CAINFO CARGO_HTTP_CAINFO DENO_CERT DENO_TLS_CA_STORE",
    # A display and a browser, for servers that open one to log in.
    "DISPLAY WAYLAND_DISPLAY XAUTHORITY BROWSER",
    # Where interpreters, libraries and package managers are.
    "VIRTUAL_ENV CONDA_PREFIX CONDA_EXE NODE_PATH NODE_OPTIONS LD_LIBRARY_PATH JAVA_HOME DOTNET_ROOT GOPATH GOROOT",
    "CARGO_HOME RUSTUP_HOME GEM_HOME DENO_DIR BUN_INSTALL PNPM_HOME VOLTA_HOME ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR",
    "PLAYWRIGHT_BROWSERS_PATH",
)
_PREFIXES: Final = (
    "LC_",
    "XDG_",
    "PYTHON",
    "NPM_CONFIG_",
    "COREPACK_",
    "PIP_",
    "UV_",
    "PIPX_",
    "NVM_",
    "PYENV_",
    "FNM_",
)
_PLATFORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "darwin": ("__CF_USER_TEXT_ENCODING DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH",),
    "win32": (
        "SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT OS TEMP TMP USERNAME USERDOMAIN USERPROFILE HOMEDRIVE HOMEPATH",
        "APPDATA LOCALAPPDATA PROGRAMDATA ALLUSERSPROFILE PUBLIC PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432",
        "COMMONPROGRAMFILES COMMONPROGRAMFILES(X86) COMPUTERNAME NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE PSMODULEPATH",
    ),
}
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASSW|_AUTH|CREDENTIAL|USERNAME|PUBLISH|COOKIE|_OTP|KEY(?!RING)")
# A user in a URL, a query, or a word that looks like the token of a service.
_CREDENTIALS: Final = re.compile(rf"://[^/?#\s]*@|://[^\s?]*\?[^\s=]*=|{TOKEN.pattern}")
_VARIABLE: Final = re.compile(r"(?<![\w$])[A-Z][A-Z0-9]*_[A-Z0-9_]+(?!\w)")


def child_environment(
    environ: Mapping[str, str],
    env: Mapping[str, str],
    *,
    inherit: bool = False,
    platform: str = sys.platform,
) -> dict[str, str]:
    """The environment of a child: the safe variables of `environ`, or with `inherit` all of them, and `env` laid over it."""
    if inherit:
        return {**environ, **env}
    names = frozenset(" ".join((*_EVERYWHERE, *_PLATFORMS.get(platform, ()))).split())
    return {name: value for name, value in environ.items() if _is_safe(name.upper(), value, names)} | dict(env)


def _is_safe(name: str, value: str, names: frozenset[str]) -> bool:
    if name in _PROXIES:
        return True
    is_listed = name in names or (name.startswith(_PREFIXES) and not _SECRET_NAME.search(name))
    return is_listed and not _CREDENTIALS.search(value)


def missing_variables(text: str, environ: Mapping[str, str], passed: Container[str]) -> list[str]:
    """The variables that the text names, that are set here, and that the child did not get; each once, in their order."""
    names = dict.fromkeys(_VARIABLE.findall(text))
    return [name for name in names if environ.get(name) and name not in passed]


def describe_missing(names: Iterable[str]) -> str:
    """A warning about them for a person; empty for none."""
    listed = list(names)
    if not listed:
        return ""
    verb, pronoun = ("are", "them") if len(listed) > 1 else ("is", "it")
    example = ", ".join(f'{name} = "${{{name}}}"' for name in listed)
    return (
        f"{' and '.join(listed)} {verb} set here but {verb} not passed on to the server; if it needs {pronoun}, "
        f"name {pronoun}: env = {{ {example} }}"
    )
