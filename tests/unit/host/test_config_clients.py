"""Ten other programs: where their files are, what their entries mean here, and ours in their words.

The entries are written as the programs' own documents write them.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from trimaran.host import ConfigUnusable, Machine, Source, read_config
from trimaran.host.config import CLIENTS, Imported, export_servers, import_servers, merge_servers, write_servers
from trimaran.host.config.clients import client_of, read_content
from trimaran.host.config.transfer import name_for

LINUX = Machine(home="/u", workspace="/w", environ={})
MAC = Machine(home="/Users/u", workspace="/w", environ={}, platform="darwin")
WINDOWS = Machine(
    home="C:\\Users\\u", workspace="D:\\w", environ={"APPDATA": "C:\\Users\\u\\AppData\\Roaming"}, platform="win32"
)
ROAMING = "C:\\Users\\u\\AppData\\Roaming"


# --- where -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "linux", "mac", "windows"),
    [
        ("claude-desktop", "/u/.config/Claude/claude_desktop_config.json", "/Users/u/Library/Application Support/Claude/claude_desktop_config.json", f"{ROAMING}\\Claude\\claude_desktop_config.json"),
        ("claude-code", "/u/.claude.json", "/Users/u/.claude.json", "C:\\Users\\u\\.claude.json"),
        ("cursor", "/u/.cursor/mcp.json", "/Users/u/.cursor/mcp.json", "C:\\Users\\u\\.cursor\\mcp.json"),
        ("vscode", "/u/.config/Code/User/mcp.json", "/Users/u/Library/Application Support/Code/User/mcp.json", f"{ROAMING}\\Code\\User\\mcp.json"),
        ("codex", "/u/.codex/config.toml", "/Users/u/.codex/config.toml", "C:\\Users\\u\\.codex\\config.toml"),
        ("gemini", "/u/.gemini/settings.json", "/Users/u/.gemini/settings.json", "C:\\Users\\u\\.gemini\\settings.json"),
        ("qwen", "/u/.qwen/settings.json", "/Users/u/.qwen/settings.json", "C:\\Users\\u\\.qwen\\settings.json"),
        ("copilot", "/u/.copilot/mcp-config.json", "/Users/u/.copilot/mcp-config.json", "C:\\Users\\u\\.copilot\\mcp-config.json"),
        ("opencode", "/u/.config/opencode/opencode.json", "/Users/u/.config/opencode/opencode.json", "C:\\Users\\u\\.config\\opencode\\opencode.json"),
        ("goose", "/u/.config/goose/config.yaml", "/Users/u/.config/goose/config.yaml", f"{ROAMING}\\Block\\goose\\config\\config.yaml"),
        ("windsurf", "/u/.codeium/windsurf/mcp_config.json", "/Users/u/.codeium/windsurf/mcp_config.json", "C:\\Users\\u\\.codeium\\windsurf\\mcp_config.json"),
        ("zed", "/u/.config/zed/settings.json", "/Users/u/.config/zed/settings.json", f"{ROAMING}\\Zed\\settings.json"),
        ("mcp-json", "/w/.mcp.json", "/w/.mcp.json", "D:\\w\\.mcp.json"),
    ],
)  # fmt: skip
def test_each_program_keeps_its_file_in_its_place(client: str, linux: str, mac: str, windows: str) -> None:
    assert CLIENTS[client].file(LINUX) == PurePosixPath(linux)
    assert CLIENTS[client].file(MAC) == PurePosixPath(mac)
    assert CLIENTS[client].file(WINDOWS) == PureWindowsPath(windows)


def test_every_program_is_covered_above() -> None:
    assert len(CLIENTS) == 13


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".qwen/settings.json"),
        ("copilot", ".github/mcp.json"),
        ("opencode", "opencode.json"),
        ("zed", ".zed/settings.json"),
        ("mcp-json", ".mcp.json"),
    ],
)
def test_some_have_a_file_for_a_project(client: str, file: str) -> None:
    assert CLIENTS[client].file(LINUX, project=True) == PurePosixPath("/w") / file


@pytest.mark.parametrize("client", ["claude-desktop", "goose", "windsurf"])
def test_others_have_none_and_that_is_said(client: str) -> None:
    with pytest.raises(ConfigUnusable, match="no file for one project"):
        CLIENTS[client].file(LINUX, project=True)


@pytest.mark.parametrize(
    ("client", "variable", "file"),
    [
        ("codex", "CODEX_HOME", "/x/config.toml"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "/x/.claude.json"),
        ("claude-desktop", "XDG_CONFIG_HOME", "/x/Claude/claude_desktop_config.json"),
        ("goose", "XDG_CONFIG_HOME", "/x/goose/config.yaml"),
        ("zed", "XDG_CONFIG_HOME", "/x/zed/settings.json"),
    ],
)
def test_their_variables_move_their_files(client: str, variable: str, file: str) -> None:
    machine = Machine(home="/u", workspace="/w", environ={variable: "/x"})
    assert CLIENTS[client].file(machine) == PurePosixPath(file)


# --- in --------------------------------------------------------------------------------------------------------------


def taken(client: str, text: str, machine: Machine = LINUX) -> Imported:
    found = import_servers(CLIENTS[client], text, "f", machine)
    # What is brought in can be written and read again, whatever it is.
    assert tomllib.loads(write_servers(found.tables)) == ({"server": found.tables} if found.tables else {})
    return found


def one(client: str, entry: dict[str, Any], **rest: Any) -> Imported:
    return taken(client, json.dumps({CLIENTS[client].key: {"s": entry}, **rest}))


def table(client: str, entry: dict[str, Any], **rest: Any) -> dict[str, Any]:
    found = one(client, entry, **rest)
    assert not found.skipped, found.skipped
    return found.tables["s"]


def test_mcp_json_and_claude_code() -> None:
    for client in ("mcp-json", "claude-code", "claude-desktop"):
        assert table(client, {"command": "npx", "args": ["-y", "x"], "env": {"K": "v", "PORT": 80}}) == {
            "command": "npx",
            "args": ["-y", "x"],
            "env": {"K": "v", "PORT": "80"},
        }
    assert table("claude-code", {"type": "http", "url": "${BASE:-https://h}/mcp", "headers": {"A": "Bearer ${K}"}}) == {
        "transport": "http",
        "url": "${BASE:-https://h}/mcp",
        "headers": {"A": "Bearer ${K}"},
    }
    assert table("claude-code", {"type": "sse", "url": "https://h/"})["transport"] == "sse"
    assert table("claude-code", {"command": "x", "timeout": 120000})["timeout"] == "2m"
    assert table("claude-code", {"type": "http", "url": "https://h/", "oauth": {"clientId": "c", "scopes": "a b"}})[
        "oauth_config"
    ] == {"client_id": "c", "scopes": ["a", "b"]}


def test_claude_code_has_servers_of_the_user_and_of_this_workspace() -> None:
    text = json.dumps(
        {
            "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}},
            "projects": {"/w": {"mcpServers": {"b": {"command": "y"}}}, "/v": {"mcpServers": {"c": {"command": "z"}}}},
        }
    )
    assert taken("claude-code", text).tables == {"a": {"command": "x"}, "b": {"command": "y"}}


def test_cursor_spells_variables_its_own_way() -> None:
    assert table(
        "cursor",
        {
            "command": "${workspaceFolder}/x",
            "args": ["${userHome}${pathSeparator}y", "${/}z"],
            "env": {"K": "${env:KEY}"},
            "envFile": "${workspaceFolder}/.env",
        },
    ) == {"command": "${CLAUDE_PROJECT_DIR}/x", "args": ["${HOME}/y", "/z"], "env": {"K": "${KEY}"}}
    assert one("cursor", {"command": "x", "envFile": ".env"}).notes["s"] == ["envFile is not carried over"]
    assert table(
        "cursor", {"url": "https://h/", "auth": {"CLIENT_ID": "${env:ID}", "CLIENT_SECRET": "s", "scopes": ["r"]}}
    )["oauth_config"] == {"client_id": "${ID}", "client_secret": "s", "scopes": ["r"]}


def test_on_windows_home_and_separator_are_those_of_windows() -> None:
    text = json.dumps({"mcpServers": {"s": {"command": "${userHome}${/}x"}}})
    assert taken("cursor", text, WINDOWS).tables["s"]["command"] == "${USERPROFILE}\\x"


def test_vs_code_asks_and_here_a_variable_answers() -> None:
    found = taken(
        "vscode",
        """{
  // ours
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
    {"type": "promptString", "id": "region", "description": "Region", "default": "eu"},
  ],
  "servers": {
    "Perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "cwd": "${workspaceFolder}",
      "env": {"KEY": "${input:perplexity-key}", "REGION": "${input:region}", "U": "${env:USER}"}},
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
    "odd": {"command": "${command:extension.pick}"},
  },
}""",
    )
    assert found.tables == {
        "Perplexity": {
            "command": "npx",
            "args": ["-y", "x"],
            "env": {"KEY": "${PERPLEXITY_KEY}", "REGION": "${REGION:-eu}", "U": "${USER}"},
            "cwd": "${CLAUDE_PROJECT_DIR}",
        },
        "github": {"transport": "http", "url": "https://api.githubcopilot.com/mcp/"},
    }
    assert found.skipped == {"odd": "only VS Code knows what ${command:extension.pick} is: write a variable instead"}
    assert found.notes["Perplexity"] == [
        "VS Code asks for perplexity-key (Perplexity API Key); here set PERPLEXITY_KEY",
        "VS Code asks for region (Region); here set REGION, or have 'eu'",
    ]


def test_servers_in_the_old_settings_of_vs_code_are_found() -> None:
    text = '{"mcp": {"inputs": [{"id": "k"}], "servers": {"s": {"command": "x", "env": {"K": "${input:k}"}}}}}'
    assert client_of(PurePosixPath("settings.json"), text).name == "vscode"
    assert taken("vscode", text).tables == {"s": {"command": "x", "env": {"K": "${K}"}}}


def test_codex_names_variables_by_keys_of_their_own() -> None:
    found = taken(
        "codex",
        """
model = "o"
[mcp_servers.docs]
command = "npx"
args = ["-y", "x"]
env_vars = ["TOKEN", { name = "OTHER", source = "local" }]
cwd = "/srv"
startup_timeout_sec = 20
tool_timeout_sec = 1200
enabled = false
disabled_tools = ["rm"]
enabled_tools = ["ls"]
[mcp_servers.docs.env]
A = "b"
[mcp_servers.figma]
url = "https://mcp.figma.example/mcp"
bearer_token_env_var = "FIGMA"
http_headers = { X-Region = "us" }
env_http_headers = { X-Key = "KEY" }
scopes = ["r"]
oauth = { client_id = "c" }
startup_timeout_ms = 500
""",
    )
    assert found.tables == {
        "docs": {
            "command": "npx",
            "args": ["-y", "x"],
            "env": {"A": "b", "TOKEN": "${TOKEN}", "OTHER": "${OTHER}"},
            "cwd": "/srv",
            "timeout": "10m",
            "startup_timeout": "20s",
            "disabled": True,
            "permissions": {"deny": ["rm"]},
        },
        "figma": {
            "transport": "http",
            "url": "https://mcp.figma.example/mcp",
            "headers": {"X-Region": "us", "X-Key": "${KEY}", "Authorization": "Bearer ${FIGMA}"},
            "oauth_config": {"client_id": "c", "scopes": ["r"]},
            "startup_timeout": "500ms",
        },
    }
    assert found.notes["docs"] == [
        "tool_timeout_sec is 20m; at most 10m is allowed here",
        "enabled_tools is not carried over",
    ]


def test_gemini_tells_http_from_sse_by_the_type() -> None:
    """`url` alone is HTTP, and `httpUrl` is how it was written before."""
    assert table("gemini", {"httpUrl": "https://h/mcp", "headers": {"A": "Bearer $TOKEN"}, "timeout": 5000}) == {
        "transport": "http",
        "url": "https://h/mcp",
        "headers": {"A": "Bearer ${TOKEN}"},
        "timeout": "5s",
    }
    assert table("gemini", {"url": "https://h/sse", "type": "sse"})["transport"] == "sse"
    assert table("gemini", {"url": "https://h/mcp"})["transport"] == "http"
    assert table("gemini", {"url": "https://h/mcp", "type": "http"})["transport"] == "http"
    assert sent("gemini", {"transport": "sse", "url": "https://h/sse"}) == {"type": "sse", "url": "https://h/sse"}
    assert table("gemini", {"command": "x", "env": {"A": "$A", "B": "${B}", "C": "5$"}, "excludeTools": ["rm"]}) == {
        "command": "x",
        "env": {"A": "${A}", "B": "${B}", "C": "5$"},
        "permissions": {"deny": ["rm"]},
    }
    full = {"clientId": "c", "authorizationUrl": "https://a/x", "tokenUrl": "https://a/t", "audiences": ["z"]}
    manual = table("gemini", {"httpUrl": "https://h/", "oauth": {"enabled": True, **full}})
    assert (manual["oauth"], manual["oauth_config"]) == (
        "manual",
        {"client_id": "c", "auth_url": "https://a/x", "token_url": "https://a/t", "audience": "z"},
    )
    assert table("gemini", {"httpUrl": "https://h/", "oauth": {"enabled": False}})["oauth"] == "off"


def test_gemini_switches_servers_off_in_a_list_beside_them() -> None:
    assert table("gemini", {"command": "x"}, mcp={"excluded": ["s"]})["disabled"] is True
    assert table("gemini", {"command": "x"}, mcp={"allowed": ["t"]})["disabled"] is True
    assert table("gemini", {"command": "x"}, mcp={"allowed": ["s"]}) == {"command": "x"}


def test_what_a_program_may_do_unasked_elsewhere_is_asked_here() -> None:
    assert table("gemini", {"command": "x", "trust": True}) == {"command": "x"}
    assert one("gemini", {"command": "x", "trust": True}).notes["s"] == ["trust is not carried over"]
    assert one("mcp-json", {"command": "x", "alwaysAllow": ["rm"]}).notes["s"] == ["alwaysAllow is not carried over"]


GOOSE = """GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    display_name: Developer
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  github:
    args:
    - -y
    - '@modelcontextprotocol/server-github'
    bundled: null
    cmd: npx
    description: ''
    enabled: false
    env_keys:
    - GITHUB_TOKEN
    envs:
      A: b
    name: GitHub
    timeout: 300
    type: stdio
  remote:
    enabled: true
    type: streamable_http
    uri: https://h/mcp
    headers:
      Authorization: Bearer $KEY
    timeout: 30
    available_tools: []
  old:
    type: sse
    uri: https://h/sse
"""


def test_goose_keeps_secrets_by_name_and_has_extensions_of_its_own() -> None:
    found = taken("goose", GOOSE)
    assert found.tables == {
        "github": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-github"],
            "env": {"A": "b", "GITHUB_TOKEN": "${GITHUB_TOKEN}"},
            "timeout": "5m",
            "disabled": True,
        },
        "remote": {
            "transport": "http",
            "url": "https://h/mcp",
            "headers": {"Authorization": "Bearer ${KEY}"},
            "timeout": "30s",
        },
        "old": {"transport": "sse", "url": "https://h/sse"},
    }
    assert found.skipped == {"developer": "it is of the type 'builtin', which only Goose can run"}
    assert found.notes["github"] == ["Goose keeps GITHUB_TOKEN itself; here set it"]


def test_windsurf() -> None:
    assert table(
        "windsurf",
        {"serverUrl": "https://h/mcp", "headers": {"A": "${env:T}"}, "disabled": True, "disabledTools": ["rm"]},
    ) == {
        "transport": "http",
        "url": "https://h/mcp",
        "headers": {"A": "${T}"},
        "disabled": True,
        "permissions": {"deny": ["rm"]},
    }
    assert table("windsurf", {"url": "https://h/mcp"})["url"] == "https://h/mcp"
    assert "only Windsurf knows" in one("windsurf", {"command": "x", "env": {"K": "${file:/k}"}}).skipped["s"]


def test_zed_in_its_new_and_its_old_form() -> None:
    assert table("zed", {"source": "custom", "command": "x", "args": ["a"], "env": {}, "enabled": False}) == {
        "command": "x",
        "args": ["a"],
        "disabled": True,
    }
    assert table("zed", {"command": {"path": "x", "args": ["a"], "env": {"K": "v"}}, "settings": {}}) == {
        "command": "x",
        "args": ["a"],
        "env": {"K": "v"},
    }
    assert table("zed", {"url": "https://h/mcp", "headers": {"A": "b"}})["url"] == "https://h/mcp"
    for entry in ({"source": "extension", "settings": {}}, {"settings": {"k": 1}}):
        assert "an extension of the editor" in one("zed", entry).skipped["s"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "neither a command nor a URL"),
        ({"command": 5}, "neither a command nor a URL"),
        ({"type": "http"}, "no URL"),
        ({"type": "ws", "url": "wss://h/"}, "not spoken here"),
        ({"command": "x", "args": "y"}, "args is not a list"),
        ({"command": "x", "env": []}, "env is not an object"),
        ("x", "not an object"),
    ],
)
def test_an_entry_that_cannot_be_brought_is_skipped_with_the_reason(entry: Any, said: str) -> None:
    found = taken("mcp-json", json.dumps({"mcpServers": {"bad": entry, "good": {"command": "x"}}}))
    assert said in found.skipped["bad"]
    assert list(found.tables) == ["good"]


def test_names_stay_as_they_are_and_those_that_cannot_be_are_made_to_fit() -> None:
    """R226."""
    entries = {name: {"command": "x"} for name in ("My Server", "my-server", "MY.SERVER", "Ä", "x" * 40, "my\tserver")}
    found = taken("mcp-json", json.dumps({"mcpServers": entries}))
    assert list(found.tables) == ["My Server", "my-server", "MY.SERVER", "Ä", "x" * 40, "my-server-2"]
    config = read_config([(Source("f", "user"), write_servers(found.tables))], LINUX)
    assert not config.failed


def test_a_name_that_rules_could_take_for_anothers_is_changed_with_a_word() -> None:
    entries = {name: {"command": "x"} for name in ("github", "github__x", "GitHub_", "__")}
    found = taken("mcp-json", json.dumps({"mcpServers": entries}))
    assert list(found.tables) == ["github", "github-x", "github-2", "server"]
    assert found.notes["github-x"] == ["it is called 'github__x' in .mcp.json"]


def test_a_name_is_cut_before_it_is_counted() -> None:
    assert name_for("y" * 40, ["y" * 32]) == "y" * 30 + "-2"


def test_what_would_fail_here_is_said_at_once_but_not_for_unset_variables() -> None:
    assert one("mcp-json", {"type": "http", "url": "h/mcp"}).notes["s"][0].startswith("server.s.url: ")
    assert one("mcp-json", {"command": "${NOPE}"}).notes["s"] == []


def test_a_program_that_fills_in_nothing_is_pointed_out() -> None:
    assert one("claude-desktop", {"command": "x", "env": {"K": "${K}"}}).notes["s"] == [
        "Claude Desktop passes ${...} on as it stands; here it is filled in"
    ]


@pytest.mark.parametrize(
    ("file", "text", "client"),
    [
        ("a/.mcp.json", '{"mcpServers": {}}', "mcp-json"),
        ("claude_desktop_config.json", '{"mcpServers": {}}', "claude-desktop"),
        (".claude.json", '{"projects": {}}', "claude-code"),
        (".cursor/mcp.json", '{"mcpServers": {}}', "cursor"),
        (".vscode/mcp.json", '{"servers": {}}', "vscode"),
        ("config.toml", "[mcp_servers]", "codex"),
        ("settings.json", '{"mcpServers": {}}', "gemini"),
        ("config.yaml", "extensions: {}", "goose"),
        ("mcp_config.json", '{"mcpServers": {}}', "windsurf"),
        ("settings.json", '{"context_servers": {}}', "zed"),
    ],
)
def test_whose_file_it_is_shows_in_its_name_and_content(file: str, text: str, client: str) -> None:
    assert client_of(PurePosixPath(file), text).name == client


@pytest.mark.parametrize(("file", "text"), [("x.json", "{}"), ("mcp.toml", "[server.a]"), ("x.json", "[]")])
def test_a_file_without_servers_is_nobodys(file: str, text: str) -> None:
    with pytest.raises(ConfigUnusable):
        client_of(PurePosixPath(file), text)


def test_servers_that_are_no_object_are_refused_naming_the_key() -> None:
    with pytest.raises(ConfigUnusable, match="f: mcpServers: an object is expected"):
        import_servers(CLIENTS["cursor"], '{"mcpServers": []}', "f", LINUX)


# --- into mcp.toml ---------------------------------------------------------------------------------------------------

OURS = '# mine\n[server.a]\ncommand = "x" # why\n'


def test_servers_are_merged_into_what_is_there() -> None:
    made = merge_servers(OURS, "f", {"a": {"command": "x"}, "b": {"command": "y"}})
    assert made.text == OURS + '\n[server.b]\ncommand = "y"\n'
    assert (made.written, made.unchanged, made.kept) == (("b",), ("a",), ())


def test_another_server_of_the_same_name_stays_unless_replaced() -> None:
    kept = merge_servers(OURS, "f", {"a": {"command": "z"}})
    assert (kept.text, kept.kept) == (OURS, ("a",))
    replaced = merge_servers(OURS, "f", {"a": {"command": "z"}}, replace=True)
    assert (replaced.text, replaced.written) == ('# mine\n\n[server.a]\ncommand = "z"\n', ("a",))


# --- out -------------------------------------------------------------------------------------------------------------

PROCESS = {"command": "/bin/trimaran", "args": ["serve", "/p/boat.py"], "env": {"A": "b"}}
REMOTE = {"transport": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}", "X": "y"}}


def sent(client: str, given: dict[str, Any], machine: Machine = LINUX, **options: Any) -> Any:
    """The entry as written into an empty file; a text is why not."""
    made = export_servers(CLIENTS[client], "", "f", {"s": given}, machine, **options)
    if made.skipped:
        return made.skipped["s"]
    return read_content(made.text, CLIENTS[client].language, "f")[CLIENTS[client].key]["s"]


@pytest.mark.parametrize("client", ["mcp-json", "claude-desktop", "claude-code", "cursor", "gemini", "windsurf", "zed"])
def test_a_process_in_the_words_most_programs_share(client: str) -> None:
    assert sent(client, PROCESS) == PROCESS


def test_a_process_for_vs_code_codex_and_goose() -> None:
    assert sent("vscode", PROCESS) == {"type": "stdio", **PROCESS}
    assert sent("codex", PROCESS) == PROCESS
    assert sent("goose", PROCESS) == {
        "enabled": True,
        "type": "stdio",
        "name": "s",
        "description": "",
        "cmd": "/bin/trimaran",
        "args": ["serve", "/p/boat.py"],
        "envs": {"A": "b"},
        "env_keys": [],
        "timeout": 300,
    }


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("mcp-json", {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}", "X": "y"}}),
        (
            "claude-code",
            {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}", "X": "y"}},
        ),
        ("cursor", {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:KEY}", "X": "y"}}),
        (
            "vscode",
            {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:KEY}", "X": "y"}},
        ),
        ("codex", {"url": "https://h/mcp", "bearer_token_env_var": "KEY", "http_headers": {"X": "y"}}),
        ("gemini", {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}", "X": "y"}}),
        ("qwen", {"httpUrl": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}", "X": "y"}}),
        (
            "opencode",
            {
                "type": "remote",
                "url": "https://h/mcp",
                "headers": {"Authorization": "Bearer {env:KEY}", "X": "y"},
                "enabled": True,
            },
        ),
        ("windsurf", {"serverUrl": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:KEY}", "X": "y"}}),
    ],
)
def test_a_remote_server_in_each_programs_words(client: str, entry: dict[str, Any]) -> None:
    assert sent(client, REMOTE) == entry


def test_a_remote_server_for_goose_names_the_variables_of_its_headers() -> None:
    entry = sent("goose", REMOTE)
    assert (entry["type"], entry["uri"], entry["env_keys"]) == ("streamable_http", "https://h/mcp", ["KEY"])
    assert entry["headers"]["Authorization"] == "Bearer ${KEY}"


def test_a_program_that_fills_in_no_variables_is_not_given_any() -> None:
    """A literal ${KEY} sent as a token would be worse than nothing."""
    assert "does not fill in ${KEY}" in sent("zed", REMOTE)
    assert "does not fill in ${K}" in sent("claude-desktop", {"command": "x", "env": {"K": "${K}"}})
    machine = Machine(home="/u", workspace="/w", environ={"KEY": "k"})
    assert sent("zed", REMOTE, machine, values=True)["headers"]["Authorization"] == "Bearer k"
    assert sent("zed", REMOTE, LINUX, values=True) == "${KEY} is not set: set it, or write a default, ${KEY:-...}"


def test_defaults_are_for_those_who_know_them() -> None:
    given = {"command": "x", "env": {"K": "${K:-d}"}}
    assert sent("claude-code", given)["env"] == {"K": "${K:-d}"}
    for client in ("cursor", "gemini", "windsurf"):
        assert "knows no defaults" in sent(client, given)


def test_a_dollar_that_gemini_would_take_for_a_variable_is_not_written() -> None:
    assert sent("gemini", {"command": "x", "args": ["5$", "$"]})["args"] == ["5$", "$"]
    assert "would take $HOME for a variable" in sent("gemini", {"command": "x", "args": ["$HOME"]})


def test_variables_that_codex_and_goose_pass_on_are_named() -> None:
    given = {"command": "x", "env": {"K": "${K}", "A": "b"}}
    codex, goose = sent("codex", given), sent("goose", given)
    assert (codex["env_vars"], codex["env"]) == (["K"], {"A": "b"})
    assert (goose["env_keys"], goose["envs"]) == (["K"], {"A": "b"})
    assert "does not fill in ${B}" in sent("codex", {"command": "x", "env": {"K": "${B}"}})
    headers = {"transport": "http", "url": "https://h/", "headers": {"X": "${K}"}}
    assert sent("codex", headers)["env_http_headers"] == {"X": "K"}


def test_the_workspace_is_the_workspace_folder_of_editors() -> None:
    given = {"command": "${CLAUDE_PROJECT_DIR}/x"}
    assert sent("cursor", given)["command"] == sent("vscode", given)["command"] == "${workspaceFolder}/x"
    assert "does not fill in" in sent("windsurf", given)


@pytest.mark.parametrize(
    ("client", "given", "said"),
    [
        ("claude-desktop", REMOTE, "starts processes only"),
        ("codex", {"transport": "sse", "url": "https://h/"}, "does not speak HTTP+SSE"),
        ("goose", {"transport": "sse", "url": "https://h/"}, "does not speak HTTP+SSE"),
        ("cursor", {"command": "x", "disabled": True}, "cannot say so"),
        ("claude-desktop", {"command": "x", "cwd": "/"}, "has no cwd"),
        ("goose", {"command": "x", "cwd": "/"}, "has no cwd"),
        ("claude-code", {"command": "${"}, "never closed"),
    ],
)
def test_what_matters_and_cannot_be_said_is_not_written(client: str, given: dict[str, Any], said: str) -> None:
    assert said in sent(client, given)


@pytest.mark.parametrize(
    "given", [{"command": "x", "args": "y"}, {"command": "x", "timeout": "soon"}, {"command": 5}, {"comand": "x"}]
)
def test_a_table_that_is_wrong_here_is_not_given_to_others(given: dict[str, Any]) -> None:
    for client in CLIENTS:
        assert sent(client, given).startswith("server.s.")


def test_what_matters_less_is_left_out_with_a_note() -> None:
    given = {
        "command": "x",
        "timeout": "5s",
        "output_limit": 5,
        "permissions": {"deny": ["rm", "a*"], "allow": ["ls"]},
        "tools": {"a": {"timeout": "1s"}},
    }
    made = export_servers(CLIENTS["cursor"], "", "f", {"s": given}, LINUX)
    assert made.notes["s"] == [
        "Cursor has no timeout for a server; it is left out",
        "Cursor has no output_limit for a server; it is left out",
        "Cursor has no tools for a server; it is left out",
        "permissions are for Cursor to ask about; not all rules are carried over",
    ]


def test_what_some_can_say_is_said() -> None:
    given = {
        "command": "x",
        "timeout": "90s",
        "startup_timeout": "500ms",
        "disabled": True,
        "permissions": {"deny": ["rm"]},
    }
    assert sent("codex", given) == {
        "command": "x",
        "startup_timeout_sec": 0.5,
        "tool_timeout_sec": 90,
        "enabled": False,
        "disabled_tools": ["rm"],
    }
    assert sent("windsurf", given) == {"command": "x", "args": [], "disabled": True, "disabledTools": ["rm"]}
    assert sent("zed", given)["enabled"] is False
    assert sent("goose", given)["enabled"] is False
    gemini = sent("gemini", {**given, "disabled": False, "cwd": "/"})
    assert (gemini["timeout"], gemini["excludeTools"], gemini["cwd"]) == (90000, ["rm"], "/")
    oauth = {"transport": "http", "url": "https://h/", "oauth_config": {"client_id": "c", "scopes": ["a", "b"]}}
    assert sent("claude-code", oauth)["oauth"] == {"clientId": "c", "scopes": "a b"}
    assert sent("cursor", oauth)["auth"] == {"CLIENT_ID": "c", "scopes": ["a", "b"]}
    assert sent("codex", oauth)["oauth"] == {"client_id": "c"}
    assert sent("gemini", oauth)["oauth"] == {"enabled": True, "clientId": "c", "scopes": ["a", "b"]}


@pytest.mark.parametrize("client", sorted(CLIENTS))
@pytest.mark.parametrize("given", [PROCESS, REMOTE], ids=["process", "remote"])
def test_what_goes_out_comes_back_the_same(client: str, given: dict[str, Any]) -> None:
    """Where the program can say it at all; Goose writes down its own time limit."""
    made = export_servers(CLIENTS[client], "", "f", {"s": given}, LINUX)
    if made.skipped:
        assert (client, given is REMOTE) in {("claude-desktop", True), ("zed", True)}
        return
    back = taken(client, made.text).tables["s"]
    back.pop("timeout", None)
    assert back == given


def test_qwen_tells_http_from_sse_by_the_key() -> None:
    """As Gemini CLI did; `type` says nothing to it."""
    assert table("qwen", {"httpUrl": "https://h/mcp"})["transport"] == "http"
    assert table("qwen", {"url": "https://h/sse", "type": "http"})["transport"] == "sse"
    assert sent("qwen", {"transport": "sse", "url": "https://h/sse"}) == {"url": "https://h/sse"}


def test_copilot_calls_a_process_local_and_fills_in_variables_but_for_a_url() -> None:
    entry = {"type": "local", "tools": ["*"], "command": "x", "args": ["$A"], "env": {"A": "$A", "B": "${B:-c}"}}
    read = one("copilot", entry)
    assert read.tables["s"] == {"command": "x", "args": ["${A}"], "env": {"A": "${A}", "B": "${B:-c}"}}
    assert read.notes["s"] == []
    given = {"command": "x", "env": {"A": "${A:-b}"}, "timeout": "5s", "permissions": {"deny": ["rm"]}}
    assert sent("copilot", given) == {
        "tools": ["*"],
        "type": "local",
        "command": "x",
        "args": [],
        "env": {"A": "${A:-b}"},
        "timeout": 5000,
        "excludeTools": ["rm"],
    }
    assert "would take $A for a variable" in sent("copilot", {"command": "x", "env": {"A": "$A"}})
    assert sent("copilot", REMOTE)["headers"]["Authorization"] == "Bearer ${KEY}"
    assert "does not fill in ${BASE}" in sent("copilot", {"transport": "http", "url": "https://${BASE}/mcp"})
    web = {"type": "http", "url": "https://h/", "tools": ["read"], "oauthClientId": "c", "oauthScopes": ["r"]}
    read = one("copilot", web)
    assert read.tables["s"]["oauth_config"] == {"client_id": "c", "scopes": ["r"]}
    assert read.notes["s"] == ["tools is not carried over"]
    assert sent("copilot", read.tables["s"]) == {**web, "tools": ["*"]}
    assert sent("copilot", {"transport": "sse", "url": "https://h/sse"})["type"] == "sse"


def test_opencode_has_one_list_for_the_command_and_words_of_its_own() -> None:
    local = {
        "type": "local",
        "command": ["npx", "-y", "x"],
        "environment": {"KEY": "{env:KEY}"},
        "cwd": "/p",
        "enabled": False,
        "timeout": 5000,
    }
    assert table("opencode", local) == {
        "command": "npx",
        "args": ["-y", "x"],
        "env": {"KEY": "${KEY}"},
        "cwd": "/p",
        "disabled": True,
        "timeout": "5s",
    }
    assert sent("opencode", table("opencode", local)) == local
    oauth = {"clientId": "c", "clientSecret": "{env:S}", "scope": "a b", "callbackPort": 1}
    read = one("opencode", {"type": "remote", "url": "https://h/", "oauth": oauth})
    assert read.tables["s"]["oauth_config"] == {"client_id": "c", "client_secret": "${S}", "scopes": ["a", "b"]}
    assert read.notes["s"] == ["oauth.callbackPort is not carried over"]
    off = {"type": "remote", "url": "https://h/", "oauth": False, "enabled": True}
    assert sent("opencode", table("opencode", off)) == off
    local = {"type": "local", "command": ["x"], "disabled": True, "timeout": {"startup": 5000, "request": 9000}}
    deeper = json.dumps({"mcp": {"servers": {"s": local}}})
    assert taken("opencode", deeper).tables == {
        "s": {"command": "x", "disabled": True, "timeout": "9s", "startup_timeout": "5s"}
    }
    with pytest.raises(ConfigUnusable, match="one level deeper"):
        export_servers(CLIENTS["opencode"], deeper, "f", {"t": {"command": "x"}}, LINUX)
    assert "neither" in one("opencode", {"enabled": True}).skipped["s"]
    assert "reads a file" in one("opencode", {"type": "remote", "url": "{file:x}"}).skipped["s"]
    assert "no defaults" in sent("opencode", {"command": "x", "env": {"A": "${A:-b}"}})
    assert "would take {env:A}" in sent("opencode", {"command": "x", "args": ["{env:A}"]})


def test_what_a_program_cannot_be_told_of_a_login_is_said() -> None:
    details = {"client_id": "c", "client_secret": "s", "audience": "https://h"}
    web = {"transport": "http", "url": "https://h/", "oauth_config": details}
    for client, missing in (
        ("claude-code", "client_secret, audience"),
        ("cursor", "audience"),
        ("copilot", "client_secret, audience"),
        ("opencode", "audience"),
    ):
        made = export_servers(CLIENTS[client], "", "f", {"s": web}, LINUX)
        assert made.notes["s"] == [f"{CLIENTS[client].title} has no {missing} for OAuth; left out"]
    off = {"transport": "http", "url": "https://h/", "oauth": "off"}
    made = export_servers(CLIENTS["cursor"], "", "f", {"s": off}, LINUX)
    assert made.notes["s"] == ['Cursor has no oauth = "off" for a server: it may ask for a login']
    old = {"transport": "sse", "url": "https://h/sse"}
    for client in ("cursor", "windsurf", "zed"):
        made = export_servers(CLIENTS[client], "", "f", {"s": old}, LINUX)
        assert made.notes["s"] == [
            f"{CLIENTS[client].title} has no word for HTTP+SSE: it has to find out by itself, if it speaks it"
        ]
    robot = {**web, "oauth": "client_credentials", "oauth_config": {"client_id": "c", "client_secret": "s"}}
    for client in sorted(CLIENTS):
        assert 'oauth = "client_credentials"' in sent(client, robot)


def test_an_entry_of_the_same_name_stays_unless_replaced() -> None:
    text = '{"mcpServers": {"s": {"command": "theirs"}}}'
    kept = export_servers(CLIENTS["cursor"], text, "f", {"s": PROCESS}, LINUX)
    assert (kept.text, kept.kept, kept.written) == (text, ("s",), ())
    replaced = export_servers(CLIENTS["cursor"], text, "f", {"s": PROCESS}, LINUX, replace=True)
    assert replaced.written == ("s",)
    again = export_servers(CLIENTS["cursor"], replaced.text, "f", {"s": PROCESS}, LINUX)
    assert (again.text, again.unchanged) == (replaced.text, ("s",))
