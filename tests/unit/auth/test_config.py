"""A provider by its name and options (R153)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.auth import Anonymous, AnyOf, ApiKey, Basic, Bearer, Custom, Introspection, Refused, provider_from
from trimaran.errors import ConfigError

CONFIGS: dict[type, Any] = {
    Anonymous: {"provider": "none"},
    Bearer: {"provider": "bearer", "provider_opts": {"secret": "x" * 32}, "required_scopes": ["read"], "realm": "shop"},
    ApiKey: {"provider": "apikey", "provider_opts": {"keys": ["k-1"], "header_name": "X-Token"}},
    Basic: {"provider": "basic", "provider_opts": {"credentials": {"ada": "geheim"}}, "realm": "shop"},
    Custom: {"provider": "custom", "provider_opts": {"module": print, "opts": {"a": 1}}},
    Introspection: {
        "provider": "introspection",
        "provider_opts": {"endpoint": "https://issuer.example/i", "client_id": "rs", "client_secret": "geheim"},
    },
}


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_every_provider_has_a_name(kind: type) -> None:
    """R153: none, bearer, apikey, basic, custom; and introspection."""
    assert type(provider_from(CONFIGS[kind])) is kind


async def test_scopes_and_realm_reach_the_provider(request_with: Any) -> None:
    made = provider_from(CONFIGS[Bearer])
    with pytest.raises(Refused) as caught:
        await made.authenticate(request_with())
    assert caught.value.challenges == ('Bearer realm="shop", scope="read"',)
    assert made.required_scopes == ("read",)
    assert provider_from(CONFIGS[ApiKey]).header_names == ("x-token",)


def test_without_a_configuration_everyone_is_nobody() -> None:
    """R153: none is the default."""
    assert isinstance(provider_from(None), Anonymous)
    assert isinstance(provider_from({}), Anonymous)
    assert isinstance(provider_from({"realm": "shop"}), Anonymous)


def test_a_provider_is_itself_and_a_list_is_several() -> None:
    made = Anonymous()
    assert provider_from(made) is made
    assert provider_from([made]) is made
    assert isinstance(provider_from([CONFIGS[Bearer], CONFIGS[Basic]]), AnyOf)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("bearer", "not a string"),
        ({"provider": "saml"}, "no provider 'saml'; use one of none, bearer"),
        ({"provider": ["bearer"]}, "no provider"),
        ({"providers": "bearer"}, "there is no providers"),
        ({"provider": "bearer"}, "none was given"),
        ({"provider": "bearer", "provider_opts": ["geheim"]}, "provider_opts must be a mapping, not list"),
        ({"provider": "bearer", "provider_opts": {"sekret": "geheim"}}, "'sekret'"),
        ({"provider": "none", "required_scopes": ["read"]}, "required_scopes"),
        ({"provider": "basic", "provider_opts": {"credentials": {"a:b": "geheim"}}}, "without a colon"),
        ([], "two providers or more"),
    ],
)
def test_what_cannot_work_is_said_at_once(config: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        provider_from(config)
    assert "geheim" not in str(caught.value)
