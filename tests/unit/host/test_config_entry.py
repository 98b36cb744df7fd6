"""One server's table: every key, and what is said about every mistake (R227-R236)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import connect
from trimaran.host import FailedEntry, Machine, OAuthEntry, ServerEntry, Source, ToolSettings, read_config

HTTP = 'transport = "http"\nurl = "https://h.example/mcp"\n'
STDIO = 'command = "x"\n'


def machine(**environ: str) -> Machine:
    return Machine(home="/u", workspace="/w", environ=environ)


def entry_of(text: str, **environ: str) -> ServerEntry:
    config = read_config([(Source("mcp.toml", "user"), f"[server.s]\n{text}")], machine(**environ))
    assert not config.failed, config.failed["s"].reason
    return config.servers["s"]


def failed(text: str, **environ: str) -> FailedEntry:
    config = read_config([(Source("mcp.toml", "user"), f"[server.s]\n{text}")], machine(**environ))
    assert not config.servers, "it was taken"
    return config.failed["s"]


def problems(text: str, **environ: str) -> list[tuple[str, int | None]]:
    found = failed(text, **environ).problems
    assert all(problem.file == "mcp.toml" for problem in found)
    return [(problem.key.removeprefix("server.s."), problem.line) for problem in found]


# --- the examples of the requirements --------------------------------------------------------------------------------

EXAMPLES = """
[server.linear]
command = "npx"
args = ["-y", "@linear/mcp-server"]
env = { LINEAR_API_KEY = "${LINEAR_API_KEY}" }
timeout = "60s"
startup_timeout = "5s"

[server.notion]
transport = "http"
url = "https://mcp.notion.example/v1"
headers = { X-Workspace = "demo" }
oauth = "auto"

[server.legacy]
transport = "sse"
url = "https://legacy.example/mcp/sse"
oauth = "off"
"""


def examples() -> dict[str, ServerEntry]:
    config = read_config([(Source("f", "user"), EXAMPLES)], machine(LINEAR_API_KEY="k"))
    assert not config.failed
    return dict(config.servers)


def test_example_a_is_a_process() -> None:
    """R234."""
    linear = examples()["linear"]
    assert (linear.transport, linear.command, linear.args) == ("stdio", "npx", ("-y", "@linear/mcp-server"))
    assert (linear.env, linear.timeout, linear.startup_timeout) == ({"LINEAR_API_KEY": "k"}, 60.0, 5.0)


def test_examples_b_and_c_are_reached_over_http() -> None:
    """R235."""
    notion, legacy = examples()["notion"], examples()["legacy"]
    assert (notion.transport, notion.url) == ("http", "https://mcp.notion.example/v1")
    assert (notion.headers, notion.oauth) == ({"X-Workspace": "demo"}, "auto")
    assert (legacy.transport, legacy.url, legacy.oauth) == ("sse", "https://legacy.example/mcp/sse", "off")


def test_whatever_the_transport_connect_takes_the_target() -> None:
    """R236: the transport is chosen by the configuration alone."""
    described = [connect(entry.target()) for entry in examples().values()]
    assert len(described) == 3


def test_what_a_file_leaves_open_is_for_others_to_decide() -> None:
    """R230, R269: a time limit that is not written comes from the environment, then from the host."""
    entry = entry_of(STDIO)
    assert (entry.timeout, entry.startup_timeout, entry.output_limit) == (None, None, 2 * 1024 * 1024)
    assert (entry.enabled, entry.lazy, entry.args, entry.env, entry.cwd) == (True, False, (), {}, None)
    assert (entry.tools, entry.permissions) == ({}, ())


# --- transports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["transport", "type"])
def test_type_is_another_word_for_transport(key: str) -> None:
    """R227."""
    assert entry_of(f'{key} = "sse"\nurl = "https://h/"').transport == "sse"
    assert entry_of(f'{key} = "stdio"\n{STDIO}').transport == "stdio"


def test_transport_and_type_that_differ_are_a_mistake() -> None:
    """R227."""
    assert problems('transport = "http"\ntype = "sse"\nurl = "https://h/"') == [("type", 3)]


@pytest.mark.parametrize("given", ['"ws"', '"HTTP"', '"streamable-http"', "1", '""'])
def test_any_other_transport_is_an_error(given: str) -> None:
    """R227."""
    found = failed(f'transport = {given}\nurl = "https://h/"').problems[0]
    assert (found.key, found.line) == ("server.s.transport", 2)
    assert '"stdio", "http" and "sse"' in found.message


def test_a_spelling_of_others_is_translated() -> None:
    assert 'write "http"' in failed('transport = "streamable-http"\nurl = "https://h/"').reason


@pytest.mark.parametrize(
    "line",
    ['url = "https://h/"', "headers = {}", 'oauth = "off"', "oauth_config = {}"],
    ids=lambda line: line.split()[0],
)
def test_a_key_of_http_on_a_process_is_an_error_naming_it(line: str) -> None:
    """R228."""
    assert problems(f"{STDIO}{line}") == [(line.split()[0], 3)]


@pytest.mark.parametrize(
    "line", ['command = "x"', "args = []", "env = {}", 'cwd = "/"'], ids=lambda line: line.split()[0]
)
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_key_of_a_process_over_http_is_an_error_naming_it(line: str, transport: str) -> None:
    """R229."""
    found = failed(f'transport = "{transport}"\nurl = "https://h/"\n{line}').problems
    assert [(problem.key, problem.line) for problem in found] == [(f"server.s.{line.split()[0]}", 4)]


def test_a_url_without_a_transport_is_told_what_to_add() -> None:
    """R227: the default is stdio."""
    found = failed('url = "https://h/"').problems
    assert [str(one) for one in found] == ['mcp.toml:2: server.s.url: url is for HTTP: add transport = "http"']


def test_a_process_needs_a_command_and_http_a_url() -> None:
    """R228, R229."""
    assert problems("args = []") == [("command", 1)]
    assert problems('transport = "http"') == [("url", 1)]
    assert problems('command = "  "') == [("command", 2)]


def test_a_process_gets_all_its_keys() -> None:
    """R228."""
    entry = entry_of('command = "x"\nargs = ["a", ""]\nenv = { A = "1" }\ncwd = "/srv"')
    assert entry.target() == {
        "command": "x",
        "args": ["a", ""],
        "env": {"A": "1"},
        "inherit_env": False,
        "cwd": "/srv",
    }


def test_a_process_gets_the_whole_environment_only_where_that_is_said() -> None:
    assert entry_of('command = "x"\ninherit_env = true').target()["inherit_env"] is True
    assert problems('command = "x"\ninherit_env = ["A"]') == [("inherit_env", 3)]
    assert problems('transport = "http"\nurl = "https://h/"\ninherit_env = true') == [("inherit_env", 4)]


def test_a_tilde_is_the_users_home_as_in_a_shell() -> None:
    entry = entry_of('command = "~/bin/x"\nargs = ["~/y"]\ncwd = "~"')
    assert (entry.command, entry.args, entry.cwd) == ("/u/bin/x", ("~/y",), "/u")


@pytest.mark.parametrize(
    "url",
    [
        "h.example/mcp",
        "ftp://h/",
        "https://",
        "https:///mcp",
        "http://[::1",
        "https://h:x/",
        "/mcp",
        "",
        "https://h/ x",
    ],
    ids=repr,
)
def test_a_url_that_is_not_absolute_http_is_an_error(url: str) -> None:
    """R229."""
    assert problems(f'transport = "http"\nurl = "{url}"') == [("url", 3)]


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    said = failed('transport = "http"\nurl = "https://me:hunter2@h/?k=hunter2"').reason
    assert "holds credentials" in said
    assert "hunter2" not in said


# --- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["X Y", "X:", "é", ""], ids=repr)
def test_a_header_name_that_http_forbids_is_named(name: str) -> None:
    """R233."""
    found = failed(f'{HTTP}headers = {{ "{name}" = "v" }}').problems[0]
    assert (found.key, found.line) == (f"server.s.headers.{name}", 4)


@pytest.mark.parametrize("value", ["a\\nb", "a\\r", "\\u0000", " a", "a ", "\\u20ac", "\\u007f"], ids=repr)
def test_a_header_value_that_http_forbids_names_the_header_and_not_the_value(value: str) -> None:
    """R233."""
    found = failed(
        f'{HTTP}headers = {{ X-Key = "secret{value}secret" }}'
        if value.startswith("\\")
        else f'{HTTP}headers = {{ X-Key = "{value}" }}'
    )
    assert found.problems[0].key == "server.s.headers.X-Key"
    assert "secret" not in found.reason


def test_a_variable_cannot_smuggle_a_header() -> None:
    """R233: what is checked is the value as it will be sent."""
    assert problems(f'{HTTP}headers = {{ X-Key = "${{K}}" }}', K="a\r\nX-Evil: 1") == [("headers.X-Key", 4)]


# --- oauth -----------------------------------------------------------------------------------------------------------

MANUAL = '[server.s.oauth_config]\nclient_id = "c"\nauth_url = "https://a/x"\ntoken_url = "https://a/t"\n'


def test_oauth_is_auto_unless_said() -> None:
    """R229, C31."""
    assert entry_of(HTTP).oauth == "auto"
    assert entry_of(f'{HTTP}oauth = "off"').oauth == "off"
    assert entry_of(STDIO).oauth == "off"


def test_an_authorization_header_implies_off() -> None:
    """C31."""
    assert entry_of(f'{HTTP}headers = {{ authorization = "Bearer x" }}').oauth == "off"
    assert problems(f'{HTTP}headers = {{ Authorization = "Bearer x" }}\noauth = "auto"') == [
        ("headers.Authorization", 4)
    ]


@pytest.mark.parametrize("given", ['"yes"', "true", '"Auto"'])
def test_another_mode_of_oauth_is_an_error(given: str) -> None:
    """R229."""
    assert problems(f"{HTTP}oauth = {given}") == [("oauth", 4)]


def test_manual_oauth_has_all_its_options() -> None:
    """R231."""
    entry = entry_of(
        f'{HTTP}oauth = "manual"\n{MANUAL}client_secret = "${{SECRET}}"\nscopes = ["r", "w"]\naudience = "https://h"\n',
        SECRET="sssh",
    )
    assert entry.oauth == "manual"
    assert entry.oauth_config == OAuthEntry(
        client_id="c",
        client_secret="sssh",
        auth_url="https://a/x",
        token_url="https://a/t",
        scopes=("r", "w"),
        audience="https://h",
    )
    assert "sssh" not in repr(entry.oauth_config) + repr(entry)


@pytest.mark.parametrize("missing", ["client_id", "auth_url", "token_url"])
def test_manual_oauth_names_what_is_missing(missing: str) -> None:
    """R231."""
    kept = "\n".join(line for line in MANUAL.splitlines() if not line.startswith(missing))
    assert problems(f'{HTTP}oauth = "manual"\n{kept}') == [(f"oauth_config.{missing}", 5)]
    assert [key for key, _ in problems(f'{HTTP}oauth = "manual"')] == [
        "oauth_config.client_id",
        "oauth_config.auth_url",
        "oauth_config.token_url",
    ]


def test_a_table_called_oauth_says_both() -> None:
    """C32."""
    table = MANUAL.replace("oauth_config", "oauth")
    assert entry_of(f'{HTTP}{table}mode = "manual"').oauth == "manual"
    entry = entry_of(f"{HTTP}{table}")
    assert (entry.oauth, entry.oauth_config and entry.oauth_config.client_id) == ("manual", "c")
    assert entry_of(f'{HTTP}[server.s.oauth]\nclient_id = "c"').oauth == "auto"
    assert problems(f'{HTTP}[server.s.oauth]\nmode = "of"') == [("oauth.mode", 5)]
    assert problems(f'{HTTP}{MANUAL}[server.s.oauth]\nmode = "manual"\nclient_id = "c"\n')[0] == ("oauth_config", 4)


def test_auto_takes_a_client_and_scopes_but_no_endpoints() -> None:
    """R251: the configured client wins."""
    entry = entry_of(f'{HTTP}oauth_config = {{ client_id = "c", scopes = "a b" }}')
    assert entry.oauth_config == OAuthEntry(client_id="c", scopes=("a", "b"))
    assert problems(f'{HTTP}oauth = "auto"\n{MANUAL}') == [("oauth_config.auth_url", 7), ("oauth_config.token_url", 8)]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('token_url = "http://a/t"', "token_url"),
        ('auth_url = "a/x"', "auth_url"),
        ('scopes = "x y"\nclient = "c"', "client"),
        ("scopes = 3", "scopes"),
        ('scopes = ["a b"]', "scopes"),
        ("client_id = 3", "client_id"),
    ],
)
def test_a_bad_option_of_oauth_is_named(line: str, key: str) -> None:
    """R231, R252: endpoints are https, or on this machine."""
    kept = "".join(f"{one}\n" for one in MANUAL.splitlines() if one.split()[0] != line.split()[0])
    assert [found for found, _ in problems(f'{HTTP}oauth = "manual"\n{kept}{line}')] == [f"oauth_config.{key}"]


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "[::1]:80"])
def test_endpoints_on_this_machine_may_be_http(host: str) -> None:
    """R252."""
    text = MANUAL.replace("https://a/", f"http://{host}/")
    assert entry_of(f'{HTTP}oauth = "manual"\n{text}').oauth == "manual"


def test_off_with_options_is_a_mistake_and_so_is_a_secret_of_nobody() -> None:
    assert problems(f'{HTTP}oauth = "off"\n{MANUAL}') == [("oauth_config", 5)]
    assert problems(f'{HTTP}oauth_config = {{ client_secret = "x" }}') == [("oauth_config.client_secret", 4)]


# --- oauth without a person ------------------------------------------------------------------------------------------

ROBOT = '[server.s.oauth]\nmode = "client_credentials"\nclient_id = "c"\n'
COMPANY = '[server.s.oauth]\nmode = "enterprise_managed"\nclient_id = "c"\nidp_token_url = "https://i/t"\n'
PLATFORM = '[server.s.oauth]\nmode = "workload_identity"\n'


def test_a_program_may_have_credentials_of_its_own() -> None:
    """R211, R212: files are named from the workspace on."""
    entry = entry_of(f'{HTTP}{ROBOT}client_secret = "${{SECRET}}"\ndpop = true\nscopes = ["r"]', SECRET="sssh")  # noqa: S106
    assert entry.oauth == "client_credentials"
    assert entry.oauth_config == OAuthEntry(client_id="c", client_secret="sssh", dpop=True, scopes=("r",))  # noqa: S106
    assert OAuthEntry(client_secret="sssh", subject_token_file="~/t").secrets == ("sssh",)  # noqa: S106
    entry = entry_of(f'{HTTP}{COMPANY}subject_token_file = "~/token"\nprivate_key_file = "keys/app.pem"')
    assert entry.oauth_config is not None
    assert (entry.oauth_config.subject_token_file, entry.oauth_config.private_key_file) == (
        "/u/token",
        "/w/keys/app.pem",
    )
    entry = entry_of(f'{HTTP}{PLATFORM}assertion_file = "/var/run/token"')
    assert entry.oauth_config == OAuthEntry(assertion_file="/var/run/token")


@pytest.mark.parametrize(
    ("text", "key", "kind"),
    [
        (ROBOT, "oauth", "oauth_incomplete"),
        (f'{ROBOT}client_secret = ""', "oauth.client_secret", "oauth_incomplete"),
        (f'{ROBOT}client_secret = "a"\nprivate_key = "b"', "oauth.private_key", "contradiction"),
        (f'{ROBOT}client_secret = "a"\nassertion = "b"', "oauth.assertion", "contradiction"),
        (f'{ROBOT}client_secret = "a"\ndpop = "yes"', "oauth.dpop", "invalid_value"),
        (f'{ROBOT}client_secret = "${{NOWHERE}}"', "oauth.client_secret", "missing_env"),
        (f'{ROBOT}client_secret = "a"\ntoken_url = "http://i/t"', "oauth.token_url", "invalid_url"),
        (f'{ROBOT}client_secret = "a"\nsecret = "b"', "oauth.secret", "unknown_key"),
        (ROBOT.replace('client_id = "c"', 'client_secret = "a"'), "oauth.client_id", "oauth_no_client_id"),
        (COMPANY, "oauth", "oauth_incomplete"),
        (f'{COMPANY}subject_token = "a"\nsubject_token_type = "jwt"', "oauth.subject_token_type", "invalid_value"),
        (f'{COMPANY}subject_token = "a"\ntoken_url = "https://i/t"', "oauth.token_url", "oauth_incomplete"),
        (
            COMPANY.replace("idp_token_url", "idp_issuer") + 'subject_token = "a"',
            "oauth.idp_token_url",
            "oauth_incomplete",
        ),
        (PLATFORM, "oauth", "oauth_incomplete"),
        (f'{PLATFORM}assertion = "a"\nclient_secret = "b"', "oauth.client_secret", "contradiction"),
        (f'{PLATFORM}assertion = "a"\nassertion_file = "b"', "oauth.assertion_file", "contradiction"),
    ],
)
def test_what_a_mode_lacks_or_cannot_have_is_named(text: str, key: str, kind: str) -> None:
    """R280: with its kind."""
    found = failed(f"{HTTP}{text}").problems
    assert [(problem.key, problem.kind) for problem in found] == [(f"server.s.{key}", kind)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('transport = "websocket"\nurl = "https://h/"', "invalid_transport"),
        ('transport = "http"', "missing_url"),
        ('transport = "http"\nurl = "ftp://h"', "invalid_url"),
        (f'{HTTP}headers = {{ "a b" = "c" }}', "invalid_header"),
        (f'{HTTP}headers = {{ a = "b\\n" }}', "invalid_header"),
        (f'{HTTP}oauth = "maybe"', "invalid_oauth_mode"),
        (
            f'{HTTP}oauth = "manual"\noauth_config = {{ client_id = "c", auth_url = "https://a/" }}',
            "oauth_manual_incomplete",
        ),
        (f'{HTTP}oauth_config = {{ client_secret = "c" }}', "oauth_no_client_id"),
        (f'{HTTP}oauth = "auto"\nheaders = {{ Authorization = "x" }}', "contradiction"),
        (f'{STDIO}url = "https://h/"', "field_not_valid_for_transport"),
        ('args = ["x"]', "missing_command"),
        (f'{STDIO}env = {{ A = "${{NOWHERE}}" }}', "missing_env"),
        (f'{STDIO}env = {{ A = "${{NOWHERE" }}', "invalid_reference"),
        (f'{STDIO}colour = "red"', "unknown_key"),
        (f'{STDIO}timeout = "soon"', "invalid_value"),
        (f"{STDIO}enabled = true\ndisabled = true", "contradiction"),
        (f'{STDIO}permissions = {{ allow = "x" }}', "invalid_rule"),
    ],
)
def test_every_problem_has_a_kind(text: str, kind: str) -> None:
    """R280: a program need not read the message."""
    [problem] = failed(text).problems
    assert problem.kind == kind
    assert problem.to_json()["kind"] == kind


# --- common keys -----------------------------------------------------------------------------------------------------


def test_common_keys_are_read() -> None:
    """R230."""
    entry = entry_of(
        f'{STDIO}disabled = true\ntimeout = "1m30s"\nstartup_timeout = 2.5\noutput_limit = "1 KiB"\nlazy = true\n'
        '[server.s.tools."read file"]\ntimeout = "10m"\n[server.s.tools.x]\n'
        '[server.s.permissions]\nallow = ["read_*"]\ndeny = [{ pattern = "rm", reason = "never" }]\nask = []\n'
    )
    assert (entry.disabled, entry.enabled, entry.lazy) == (True, False, True)
    assert (entry.timeout, entry.startup_timeout, entry.output_limit) == (90.0, 2.5, 1024)
    assert entry.tools == {"read file": ToolSettings(timeout=600.0), "x": ToolSettings()}
    assert [(rule.action, rule.pattern, rule.reason) for rule in entry.permissions] == [
        ("allow", "read_*", None),
        ("deny", "rm", "never"),
    ]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('timeout = "601s"', "timeout"),
        ('timeout = "11m"', "timeout"),
        ("timeout = 0", "timeout"),
        ("timeout = -1", "timeout"),
        ("timeout = nan", "timeout"),
        ('timeout = "soon"', "timeout"),
        ("timeout = true", "timeout"),
        ('startup_timeout = "1 year"', "startup_timeout"),
        ('output_limit = "2 MiBs"', "output_limit"),
        ("output_limit = 0", "output_limit"),
        ("output_limit = 1.5", "output_limit"),
        ('disabled = "no"', "disabled"),
        ("lazy = 1", "lazy"),
        ("tools = 3", "tools"),
        ("tools = { a = 3 }", "tools.a"),
        ('tools = { a = { timeout = "x" } }', "tools.a.timeout"),
        ('tools = { a = { timout = "1s" } }', "tools.a.timout"),
        ("permissions = []", "permissions"),
        ('permissions = { allow = "x" }', "permissions.allow"),
        ("permissions = { permit = [] }", "permissions.permit"),
        ("permissions = { deny = [{}] }", "permissions.deny[0]"),
        ('permissions = { deny = [{ pattern = "x", reason = 3 }] }', "permissions.deny[0].reason"),
        ('args = "-y"', "args"),
        ("args = [1]", "args[0]"),
        ("env = []", "env"),
        ("env = { PORT = 80 }", "env.PORT"),
        ('env = { "A=B" = "x" }', "env.A=B"),
        ("cwd = 1", "cwd"),
        ('args = ["a\\u0000"]', "args[0]"),
    ],
)
def test_a_bad_value_fails_that_server_naming_key_and_line(line: str, key: str) -> None:
    """R226, R228, R230."""
    assert problems(f"{STDIO}{line}") == [(key, 3)]


def test_the_longest_time_is_ten_minutes() -> None:
    """R230."""
    assert entry_of(f'{STDIO}timeout = "10m"').timeout == 600
    assert "10m" in failed(f'{STDIO}timeout = "10m1s"').reason


def test_an_unknown_key_fails_the_server_with_the_key_that_was_perhaps_meant() -> None:
    found = failed('comand = "x"\ncommand = "x"\n').problems
    assert [str(one) for one in found] == [
        "mcp.toml:2: server.s.comand: this key is not known; did you mean 'command'?"
    ]
    assert "known are command, args" in failed(f"{STDIO}zzz = 1").reason


def test_all_mistakes_are_told_at_once() -> None:
    keys = [key for key, _ in problems('command = 1\nargs = 1\ntimeout = 0\nurl = "https://h/"\nx = 1')]
    assert keys == ["x", "url", "command", "args", "timeout"]


def test_enabled_is_the_other_way_round() -> None:
    assert entry_of(f"{STDIO}enabled = false").disabled
    assert entry_of(f"{STDIO}enabled = true\ndisabled = false").enabled
    assert problems(f"{STDIO}enabled = true\ndisabled = true") == [("enabled", 3)]


def test_a_disabled_server_with_mistakes_is_still_disabled() -> None:
    """Who has no key for a server switches it off: that is no failure."""
    found = failed(f'{STDIO}disabled = true\nenv = {{ A = "${{NOPE}}" }}')
    assert found.disabled


def test_a_server_that_is_no_table_fails_alone() -> None:
    config = read_config([(Source("f", "user"), '[server]\na = 1\nb = { command = "x" }\n')], machine())
    assert list(config.servers) == ["b"]
    assert str(config.failed["a"].problems[0]) == "f:2: server.a: a table is expected, [server.a], not the number 1"


def test_an_entry_knows_where_its_keys_stand() -> None:
    entry = entry_of('command = "x"\n\nenv = { A = "1" }\n')
    assert [entry.where(key) for key in ("", "command", "env.A", "timeout")] == [
        "mcp.toml:1",
        "mcp.toml:2",
        "mcp.toml:4",
        "mcp.toml:1",
    ]


def test_nothing_secret_is_in_what_is_printed_of_an_entry() -> None:
    entry = entry_of(f'{STDIO}env = {{ A = "hunter2" }}')
    assert "hunter2" not in repr(entry)
    with_header = entry_of(f'{HTTP}headers = {{ A = "hunter2" }}')
    config: Any = read_config([(Source("f", "user"), f'[server.s]\n{STDIO}env = {{ A = "hunter2" }}')], machine())
    assert "hunter2" not in repr(with_header) + repr(config)


# --- variables -------------------------------------------------------------------------------------------------------


def test_variables_are_filled_in_everywhere_they_may_stand() -> None:
    """R232."""
    entry = entry_of(
        'command = "${A}"\nargs = ["-${A}-${A}", "${B:-ü}"]\nenv = { X = "${A}" }\ncwd = "${A}/${A}"', A="ä"
    )
    assert (entry.command, entry.args) == ("ä", ("-ä-ä", "ü"))
    assert (entry.env, entry.cwd) == ({"X": "ä"}, "ä/ä")
    remote = entry_of('transport = "http"\nurl = "https://${H}/"\nheaders = { X = "a${H}" }', H="h")
    assert (remote.url, remote.headers) == ("https://h/", {"X": "ah"})
    oauth = entry_of(f'{HTTP}oauth_config = {{ client_id = "${{C}}", scopes = ["${{S}}"] }}', C="c", S="s").oauth_config
    assert oauth == OAuthEntry(client_id="c", scopes=("s",))


def test_the_table_keeps_variables_as_written() -> None:
    assert entry_of('command = "${A}"', A="x").table["command"] == "${A}"


def test_variables_stay_alone_where_they_mean_nothing() -> None:
    """R232 names the places: a timeout is none."""
    assert problems(f'{STDIO}timeout = "${{T}}"', T="5s") == [("timeout", 3)]


def test_the_workspace_is_a_variable() -> None:
    """R232: whatever the environment says."""
    assert entry_of('command = "${CLAUDE_PROJECT_DIR}/x"', CLAUDE_PROJECT_DIR="/elsewhere").command == "/w/x"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('command = "${NOPE}"', "command"),
        ('command = "x"\nargs = ["a", "${NOPE}"]', "args[1]"),
        ('command = "x"\nenv = { K = "${NOPE}" }', "env.K"),
        ('command = "x"\ncwd = "${NOPE}"', "cwd"),
        ('transport = "http"\nurl = "https://${NOPE}/"', "url"),
        (f'{HTTP}headers = {{ K = "${{NOPE}}" }}', "headers.K"),
        (f'{HTTP}oauth_config = {{ client_id = "${{NOPE}}" }}', "oauth_config.client_id"),
    ],
)
def test_an_unset_variable_fails_that_server_naming_field_and_variable(line: str, key: str) -> None:
    """R232, C37."""
    found = failed(line, OTHER="hunter2").problems
    assert [one.key for one in found] == [f"server.s.{key}"]
    assert found[0].message == "${NOPE} is not set: set it, or write a default, ${NOPE:-...}"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('command = "${E}"', "command"),
        ('transport = "http"\nurl = "${E}"', "url"),
        (
            f'{HTTP}oauth = "manual"\n{MANUAL.replace(chr(34) + "c" + chr(34), chr(34) + "${E}" + chr(34))}',
            "oauth_config.client_id",
        ),
    ],
    ids=["command", "url", "client_id"],
)
def test_a_variable_that_is_set_to_nothing_is_no_command_and_no_url(text: str, key: str) -> None:
    assert [found for found, _ in problems(text, E="")] == [key]


def test_on_windows_the_case_of_a_variable_does_not_matter() -> None:
    windows = Machine(home="C:\\u", workspace="C:\\w", environ={"LOCALAPPDATA": "C:\\l"}, platform="win32")
    text = '[server.s]\ncommand = "${LocalAppData}/x"\nargs = ["${claude_project_dir}"]\n'
    entry = read_config([(Source("f", "user"), text)], windows).servers["s"]
    assert (entry.command, entry.args) == ("C:\\l/x", ("C:\\w",))


def test_braces_that_are_not_closed_fail_that_server() -> None:
    """R232."""
    assert "never closed" in failed('command = "${HOME/x"').reason
