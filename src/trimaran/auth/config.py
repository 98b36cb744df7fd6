"""A provider by its name and options, as a configuration file has them (R153)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from trimaran.errors import ConfigError
from trimaran.types import Json

from .provider import Provider

_KEYS: Final = frozenset({"provider", "provider_opts", "required_scopes", "realm"})
# Other names for options, as older configurations have them.
_RENAMED: Final = {"apikey": {"header_name": "header"}, "custom": {"module": "source"}}


def provider_from(config: Mapping[str, Json] | Provider | Iterable[Mapping[str, Json] | Provider] | None) -> Provider:
    """The provider that a configuration describes:

    `{"provider": "bearer", "provider_opts": {"secret": ...}, "required_scopes": ["read"], "realm": "mcp"}`

    `provider` is none, bearer, introspection, apikey, basic, oauth (`ProtectedResource`) or custom; a list of
    configurations tries several.
    """
    from .anonymous import Anonymous
    from .any_of import AnyOf

    if config is None:
        return Anonymous()
    if isinstance(config, Provider):
        return config
    if not isinstance(config, Mapping):
        if isinstance(config, (str, bytes)):
            raise ConfigError('auth must be a mapping, {"provider": "bearer", "provider_opts": {...}}, not a string')
        providers = [provider_from(item) for item in config]
        return providers[0] if len(providers) == 1 else AnyOf(*providers)
    return _read_provider(cast("Mapping[str, Any]", config))


def _read_provider(config: Mapping[str, Any]) -> Provider:
    unknown = sorted(set(config) - _KEYS)
    if unknown:
        raise ConfigError(f"auth: there is no {', '.join(unknown)}; there are {', '.join(sorted(_KEYS))}")
    name = config.get("provider", "none")
    kinds = _kinds()
    if not isinstance(name, str) or name not in kinds:
        raise ConfigError(f"auth: there is no provider {name!r}; use one of {', '.join(kinds)}")
    provider_options: Any = config.get("provider_opts") or {}
    if not isinstance(provider_options, Mapping):
        raise ConfigError(f"auth: provider_opts must be a mapping, not {type(provider_options).__name__}")
    renamed = _RENAMED.get(name, {})
    options = {renamed.get(key, key): value for key, value in cast("Mapping[str, Any]", provider_options).items()}
    options |= {key: config[key] for key in ("required_scopes", "realm") if config.get(key) is not None}
    if name == "none":
        options.pop("realm", None)  # it never challenges
    try:
        return kinds[name](**options)
    except TypeError as error:
        # Of our own constructors: it names an option, and quotes no value.
        raise ConfigError(f"auth: provider {name}: {error}") from None


def _kinds() -> Mapping[str, Callable[..., Provider]]:
    from .anonymous import Anonymous
    from .apikey import ApiKey
    from .basic import Basic
    from .bearer import Bearer
    from .custom import Custom
    from .introspection import Introspection
    from .resource import ProtectedResource

    return {
        "none": Anonymous,
        "bearer": Bearer,
        "introspection": Introspection,
        "apikey": ApiKey,
        "basic": Basic,
        "oauth": ProtectedResource,
        "custom": Custom,
    }
