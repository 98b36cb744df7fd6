"""Which variables a child gets: places and settings, no secrets; and which it seems to miss."""

from __future__ import annotations

import pytest

from trimaran.transports.child_environment import child_environment, describe_missing, missing_variables

SAFE = [
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ", "SHELL", "LOGNAME", "XDG_CONFIG_HOME"),
    *("http_proxy", "HTTPS_PROXY", "No_Proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *(
        "npm_config_registry",
        "NPM_CONFIG_CACHE",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "PIP_INDEX_URL",
        "UV_KEYRING_PROVIDER",
    ),
    *("VIRTUAL_ENV", "PYTHONPATH", "NVM_DIR", "JAVA_HOME", "DISPLAY"),
]
SECRET = [
    *("GITHUB_TOKEN", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "DATABASE_URL"),
    *("TRIMARAN_TOKEN", "SSH_AUTH_SOCK", "KUBECONFIG", "PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "MY_PATH"),
    *(
        "npm_config__auth",
        "NPM_CONFIG__PASSWORD",
        "npm_config_//npm.example/:_authToken",
        "npm_config_otp",
        "npm_config_key",
    ),
    *("UV_PUBLISH_TOKEN", "UV_INDEX_WORK_PASSWORD", "UV_INDEX_WORK_USERNAME", "COREPACK_NPM_TOKEN"),
]


@pytest.mark.parametrize("name", SAFE)
def test_what_says_where_things_are_is_passed_on(name: str) -> None:
    """Whose rule: ours; behind a proxy or a mirror a launcher has to find its packages."""
    assert child_environment({name: "x"}, {}) == {name: "x"}


@pytest.mark.parametrize("name", SECRET)
def test_what_may_be_a_secret_is_not(name: str) -> None:
    assert child_environment({name: "x"}, {}) == {}
    assert child_environment({name: "x"}, {}, inherit=True) == {name: "x"}
    assert child_environment({name: "x"}, {name: "y"}) == {name: "y"}


@pytest.mark.parametrize(
    "value",
    [
        "https://me:hunter2@pypi.example/simple",
        "https://hunter2@pypi.example/simple",
        "work=https://me:hunter2@pypi.example/simple https://other.example/simple",
        "https://pypi.example/simple?token=hunter2",
        "https://pypi.example/ghp_0123456789abcdef0123/simple",
    ],
)
def test_a_registry_whose_url_holds_a_credential_is_not_passed_on(value: str) -> None:
    for name in ("PIP_INDEX_URL", "UV_INDEX", "npm_config_registry"):
        assert child_environment({name: value}, {}) == {}
    assert child_environment({"PIP_INDEX_URL": "https://pypi.example/simple"}, {})


def test_a_proxy_is_passed_on_with_its_password() -> None:
    """Whose rule: ours; without it the child reaches nothing."""
    proxy = {"https_proxy": "http://me:hunter2@proxy.example:3128"}
    assert child_environment(proxy, {}) == proxy


def test_each_platform_has_variables_of_its_own() -> None:
    """Whose rule: ours; without SYSTEMROOT no socket opens on Windows, and without PATHEXT no command is found."""
    windows = {
        "SYSTEMROOT": r"C:\Windows",
        "PATHEXT": ".EXE",
        "COMSPEC": "cmd",
        "APPDATA": "a",
        "USERNAME": "me",
        "TEMP": "t",
    }
    assert child_environment(windows, {}, platform="win32") == windows
    assert child_environment(windows, {}, platform="linux") == {}


def test_variables_that_are_named_and_set_and_not_passed_seem_to_be_missing() -> None:
    environ = {"GITHUB_TOKEN": "x", "LINEAR_API_KEY": "y", "EMPTY_ONE": "", "PASSED_ON": "z", "GIT": "g"}
    text = "Error: GITHUB_TOKEN is required. Set GITHUB_TOKEN or LINEAR_API_KEY; not MY_GITHUB_TOKEN, EMPTY_ONE, PASSED_ON, GIT"
    assert missing_variables(text, environ, {"PASSED_ON": "z"}) == ["GITHUB_TOKEN", "LINEAR_API_KEY"]
    assert missing_variables("all is well", environ, ()) == []


def test_a_person_is_told_how_to_name_them() -> None:
    assert describe_missing([]) == ""
    assert describe_missing(["A_B"]) == (
        'A_B is set here but is not passed on to the server; if it needs it, name it: env = { A_B = "${A_B}" }'
    )
    assert describe_missing(["A_B", "C_D"]).endswith('name them: env = { A_B = "${A_B}", C_D = "${C_D}" }')
