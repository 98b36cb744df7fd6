"""`trimaran config`: check, show, import, export; the files of a home of our own (R225-R233)."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trimaran import Host
from trimaran.apps.cli.host_options import configure
from trimaran.host.trust import Trust

from .harness import Done, plain, run_cli

Capsys = pytest.CaptureFixture[str]

SECRETS = f"""
[permissions]
deny = ["mcp__boat__rm_*"]

[server.boat]
command = {sys.executable!r}
args = ["serve", "--token", "hunter2"]
env = {{ KEY = "hunter2", NAME = "${{BOAT_NAME}}" }}

[server.tide]
transport = "http"
url = "https://tide.example/mcp?key=hunter2"
headers = {{ Authorization = "Bearer hunter2" }}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a workspace of the test's own."""
    home = tmp_path / "home"
    (tmp_path / "work").mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "BOAT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return home


def user(home: Path, text: str) -> Path:
    return put(home / ".config" / "trimaran" / "mcp.toml", text)


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def config(capsys: Capsys, *words: str) -> Done:
    return run_cli(capsys, "config", *words)


# --- check -----------------------------------------------------------------------------------------------------------


def test_no_configuration_is_fine_and_says_where_it_would_be(capsys: Capsys, home: Path) -> None:
    """R225."""
    done = config(capsys, "check")
    assert (done.code, done.out) == (0, "")
    assert ".config/trimaran/mcp.toml" in done.err
    assert ".trimaran/mcp.toml" in done.err


def test_a_good_configuration_is_good(capsys: Capsys, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOAT_NAME", "Tern")
    file = user(home, SECRETS)
    done = config(capsys, "check")
    assert (done.code, done.out) == (0, "ok        boat: stdio\nok        tide: http\n")
    assert f"{file} (user)" in done.err


def test_a_failed_server_is_named_with_file_line_and_key_and_the_code_is_one(capsys: Capsys, home: Path) -> None:
    """R226, R232."""
    file = user(home, SECRETS)
    done = config(capsys, "check")
    assert done.code == 1
    assert f"failed    boat: {file}:8: server.boat.env.NAME: ${{BOAT_NAME}} is not set" in done.out
    assert "ok        tide: http" in done.out


def test_bad_toml_and_a_bad_name_end_with_usage(capsys: Capsys, home: Path) -> None:
    """R226."""
    file = user(home, "[server.a\n")
    done = config(capsys, "check")
    assert done.code == 2
    assert f"trimaran: {file}:1:" in done.err
    user(home, '[server." A"]\ncommand = "x"\n')
    assert (
        f'{file}:1: server." A": the name of a server neither begins nor ends with a blank'
        in config(capsys, "check").err
    )


def test_a_command_and_a_directory_that_are_not_there_fail(capsys: Capsys, home: Path) -> None:
    user(
        home, f'[server.a]\ncommand = "no-such-program"\n[server.b]\ncommand = {sys.executable!r}\ncwd = "/no/where"\n'
    )
    done = config(capsys, "check")
    assert done.code == 1
    assert ":2: server.a.command: 'no-such-program' is not found" in done.out
    assert ":5: server.b.cwd: there is no directory '/no/where'" in done.out


def test_a_relative_path_is_looked_for_from_where_the_server_starts(capsys: Capsys, home: Path, tmp_path: Path) -> None:
    script = put(tmp_path / "srv" / "run", "#!/bin/sh\n")
    script.chmod(0o755)
    user(home, f'[server.a]\ncommand = "./run"\ncwd = {str(script.parent)!r}\n')
    assert config(capsys, "check").code == 0
    user(home, f'[server.a]\ncommand = "run"\ncwd = {str(script.parent)!r}\n')
    assert config(capsys, "check").code == 1


def test_what_is_disabled_may_have_anything_missing(capsys: Capsys, home: Path) -> None:
    user(home, '[server.a]\ncommand = "no-such"\ndisabled = true\n[server.b]\ncommand = "${NO}"\ndisabled = true\n')
    done = config(capsys, "check")
    assert done.code == 0
    assert done.out.startswith("disabled  a\ndisabled  b: ")


def test_the_project_and_its_directory_can_be_named(capsys: Capsys, home: Path, tmp_path: Path) -> None:
    """R225."""
    put(tmp_path / "other" / ".trimaran" / "mcp.toml", '[servers.a]\ncommand = "x"\n')
    done = config(capsys, "check", "--workspace", str(tmp_path / "other"))
    assert done.code == 1
    assert "ignored " in done.out
    assert "[server.NAME]" in done.out


def test_one_file_can_be_checked_alone_as_json(capsys: Capsys, home: Path, tmp_path: Path) -> None:
    user(home, "[server.broken]\n")
    file = put(tmp_path / "my.toml", '[server.a]\ntransport = "http"\nurl = "https://h/"\n')
    done = config(capsys, "check", str(file), "--json")
    assert done.code == 0
    assert done.json == {
        "good": True,
        "files": [{"file": str(file), "level": "file"}],
        "servers": {"a": {"state": "ok", "problems": [], "transport": "http"}},
        "problems": [],
        "rules": [],
    }


RULES = f"""
[permissions]
deny = ["mcp__boat"]

[server.boat]
command = {sys.executable!r}

[server.tide]
transport = "http"
url = "https://tide.example/mcp"

[server.tide.permissions]
ask = ["write_***"]
"""


def test_rules_that_cannot_be_read_are_told_with_file_and_line_and_the_code_is_one(capsys: Capsys, home: Path) -> None:
    """R243: a rule that is lost might be the one that denies."""
    file = user(home, RULES)
    done = config(capsys, "check")
    assert done.code == 1
    assert f"rule      {file}:3, permissions.deny: no tool can have this name" in done.out
    assert "For all tools of a server, write mcp__boat__*" in done.out
    assert f"failed    tide: {file}:13, server.tide.permissions.ask: " in done.out
    assert "ok        boat: stdio" in done.out
    report = config(capsys, "check", "--json").json
    assert report["good"] is False
    assert [(one["severity"], one["server"]) for one in report["rules"]] == [("error", None), ("error", "tide")]
    assert report["servers"]["tide"]["state"] == "failed"


def test_one_bad_rule_is_enough_for_a_code_of_one(capsys: Capsys, home: Path) -> None:
    user(home, f'[permissions]\ndeny = ["mcp__boat__x("]\n[server.boat]\ncommand = {sys.executable!r}\n')
    assert config(capsys, "check").code == 1
    assert config(capsys, "check", "--json").code == 1


def test_rules_of_what_is_disabled_are_told_and_are_no_failure(capsys: Capsys, home: Path) -> None:
    user(home, '[server.a]\ncommand = "x"\ndisabled = true\n[server.a.permissions]\nask = ["write_***"]\n')
    done = config(capsys, "check")
    assert done.code == 0
    assert "disabled  a\nrule      " in done.out


def test_rules_about_servers_that_are_not_there_are_told_and_are_no_failure(capsys: Capsys, home: Path) -> None:
    """The same file is read in other projects, which have other servers."""
    file = user(home, f'[permissions]\nallow = ["mcp__baot__*"]\n[server.boat]\ncommand = {sys.executable!r}\n')
    done = config(capsys, "check")
    assert done.code == 0
    assert f"warning   {file}:2, permissions.allow: the rule matches no tool there is" in done.out
    assert "Did you mean mcp__boat__*?" in done.out


# --- trust -----------------------------------------------------------------------------------------------------------

PROJECT = f"""
[permissions]
allow = ["mcp__boat__*"]

[server.boat]
command = {sys.executable!r}
args = ["--auth-hook", "./steal.sh", "${{BOAT_NAME:-x}}"]

[server.boat.permissions]
allow = ["sail"]
"""


def project(tmp_path: Path, text: str = PROJECT) -> Path:
    return put(tmp_path / "work" / ".trimaran" / "mcp.toml", text)


def test_a_projects_file_is_trusted_until_it_changes(capsys: Capsys, home: Path, tmp_path: Path) -> None:
    file = project(tmp_path)
    assert "(project, not trusted: trimaran config trust)" in config(capsys, "check").err
    done = config(capsys, "trust")
    assert done.code == 0
    assert f"boat: {sys.executable} --auth-hook ./steal.sh '${{BOAT_NAME:-x}}' ({file}:5)" in done.out
    assert f"allow mcp__boat__* ({file}:3)" in done.out
    assert f"allow sail of boat ({file}:10)" in done.out
    kept = home / ".local" / "share" / "trimaran" / "trusted.json"
    assert list(json.loads(kept.read_text())["files"]) == [str(file)]
    checked = config(capsys, "check", "--json")
    assert (checked.code, checked.json["files"]) == (0, [{"file": str(file), "level": "project", "trusted": True}])
    assert "(project, trusted)" in config(capsys, "check").err
    assert "trusted already" in config(capsys, "trust").err
    project(tmp_path, PROJECT + "# another word\n")
    assert config(capsys, "check", "--json").json["files"][0]["trusted"] is False


def test_trust_is_taken_back(capsys: Capsys, tmp_path: Path) -> None:
    project(tmp_path)
    assert "was not trusted" in config(capsys, "untrust").err
    config(capsys, "trust")
    done = config(capsys, "untrust")
    assert (done.code, "no longer trusted" in done.err) == (0, True)
    assert config(capsys, "check", "--json").json["files"][0]["trusted"] is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mcp.toml", '[server.boat]\ncommand = "boat"\n'),
        (".mcp.json", '{"mcpServers": {"boat": {"command": "boat"}}}'),
    ],
)
def test_a_file_in_the_current_directory_is_the_projects_and_starts_nothing_untrusted(
    capsys: Capsys, home: Path, tmp_path: Path, name: str, text: str
) -> None:
    """R225; Trust: a repository that brings such a file along must not start programs by being entered."""
    file = put(tmp_path / "work" / name, text)
    assert f"{file} (project, not trusted: trimaran config trust)" in config(capsys, "check").err
    host = Host(configure(None, []), trust=Trust())
    assert host.untrusted_files == (str(file),)
    assert "not trusted" in host.status()[0].reason
    assert f"{file} is trusted" in config(capsys, "trust").err
    assert f"{file} is no longer trusted" in config(capsys, "untrust").err


def test_there_is_nothing_to_trust_without_a_file_of_the_project(capsys: Capsys, home: Path) -> None:
    user(home, SECRETS)
    done = config(capsys, "trust")
    assert done.code == 2
    assert "the project has nothing to trust" in done.err
    assert not (home / ".local").exists()


# --- show ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["toml", "json"])
def test_what_is_shown_holds_no_secret(capsys: Capsys, home: Path, flags: list[str]) -> None:
    user(home, SECRETS)
    done = config(capsys, "show", *flags)
    assert done.code == 0
    assert "hunter2" not in done.out + done.err
    assert "${BOAT_NAME}" in done.out
    assert "***" in done.out


def test_what_is_shown_is_toml_that_says_where_each_server_stands(capsys: Capsys, home: Path) -> None:
    file = user(home, SECRETS)
    done = config(capsys, "show")
    assert f"# {file}:5\n# failed: {file}:8: server.boat.env.NAME: " in done.out
    assert "# deny mcp__boat__rm_*" in done.out
    assert tomllib.loads(done.out)["server"]["tide"] == {
        "transport": "http",
        "url": "https://tide.example/mcp?key=***",
        "headers": {"Authorization": "***"},
    }


def test_one_server_can_be_shown_and_an_unknown_one_is_refused(capsys: Capsys, home: Path) -> None:
    user(home, SECRETS)
    assert list(config(capsys, "show", "tide", "--json").json["servers"]) == ["tide"]
    done = config(capsys, "show", "tides")
    assert done.code == 2
    assert "there is boat, tide" in done.err


# --- import ----------------------------------------------------------------------------------------------------------

CURSOR = {"mcpServers": {"My Boat": {"command": "x", "env": {"K": "${env:K}", "S": "hunter2"}}, "bad": {}}}


def test_servers_of_another_program_are_taken_over(capsys: Capsys, home: Path) -> None:
    text = json.dumps(CURSOR, indent=1)
    put(home / ".cursor" / "mcp.json", text)
    done = config(capsys, "import", "cursor")
    file = home / ".config" / "trimaran" / "mcp.toml"
    assert done.code == 0
    assert done.out == f"{file} now has My Boat.\n"
    source = home / ".cursor" / "mcp.json"
    line = text[: text.index('"bad"')].count("\n") + 1
    assert f"{source}:{line}: bad is not taken over: it has neither a command nor a URL" in done.err
    assert tomllib.loads(file.read_text()) == {
        "server": {"My Boat": {"command": "x", "env": {"K": "${K}", "S": "hunter2"}}}
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "already" in config(capsys, "import", "cursor").err


def test_a_dry_run_writes_nothing_and_shows_no_secret(capsys: Capsys, home: Path) -> None:
    put(home / ".cursor" / "mcp.json", json.dumps(CURSOR))
    done = config(capsys, "import", "cursor", "--dry-run")
    assert tomllib.loads(done.out)["server"]["My Boat"]["env"] == {"K": "${K}", "S": "***"}
    assert not (home / ".config").exists()


def test_a_file_is_imported_into_the_project(capsys: Capsys, home: Path) -> None:
    put(Path(".mcp.json"), '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}')
    done = config(capsys, "import", ".mcp.json", "b", "--project")
    assert done.code == 0
    assert tomllib.loads(Path(".trimaran/mcp.toml").read_text()) == {"server": {"b": {"command": "y"}}}
    assert config(capsys, "import", "cursor", "--from-project").code == 2
    put(Path(".cursor/mcp.json"), '{"mcpServers": {"c": {"command": "z"}}}')
    assert config(capsys, "import", "cursor", "--from-project", "--project").code == 0
    assert "[server.c]" in Path(".trimaran/mcp.toml").read_text()


@pytest.mark.parametrize(
    ("entry", "cwd"),
    [
        ({"command": "node", "args": ["server.js"]}, "{project}"),
        ({"command": "./run.sh"}, "{project}"),
        ({"command": "node", "args": ["--config=./a.json"]}, "{project}"),
        ({"command": "node", "args": ["main.js"], "cwd": "backend"}, "{project}/backend"),
        ({"command": "node", "args": ["."], "cwd": "."}, "{project}"),
        ({"command": "npx", "args": ["-y", "@scope/server", "elsewhere.js", "https://a.example/server.js"]}, None),
        ({"command": "/bin/cat", "args": ["/server.js", "~/server.js", "${HOME}/server.js"]}, None),
        ({"command": "node", "args": ["./main.js"], "cwd": "/srv"}, "/srv"),
    ],
)
@pytest.mark.parametrize("place", [".mcp.json", ".cursor/mcp.json"])
def test_relative_paths_of_a_projects_file_mean_the_same_files_after_an_import(
    capsys: Capsys, home: Path, tmp_path: Path, place: str, entry: dict[str, Any], cwd: str | None
) -> None:
    folder = tmp_path / "their project"
    put(folder / "server.js", "")
    file = put(folder / place, json.dumps({"mcpServers": {"a": entry}}))
    ended = config(capsys, "import", str(file))
    assert ended.code == 0
    written = tomllib.loads((home / ".config/trimaran/mcp.toml").read_text())["server"]["a"]
    expected = None if cwd is None else cwd.replace("{project}", str(folder))
    assert (written["command"], written.get("cwd")) == (entry["command"], expected)
    assert ("is below it" in ended.err) == (expected != entry.get("cwd"))


def test_relative_paths_go_by_the_project_between_its_own_files(capsys: Capsys, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "our project"
    file = put(folder / ".mcp.json", '{"mcpServers": {"a": {"command": "./run.sh"}}}')
    assert config(capsys, "import", str(file), "--project", "--workspace", str(folder)).code == 0
    written = tomllib.loads((folder / ".trimaran/mcp.toml").read_text())["server"]["a"]
    assert written == {"command": "./run.sh", "cwd": "${CLAUDE_PROJECT_DIR}"}


def test_a_relative_path_in_the_users_file_is_told(capsys: Capsys, home: Path) -> None:
    put(home / ".cursor/mcp.json", '{"mcpServers": {"a": {"command": "node", "args": ["./server.js"]}}}')
    ended = config(capsys, "import", "cursor")
    assert "a: './server.js' is looked for where the host runs; write its whole path, or set cwd" in ended.err


def test_a_server_of_the_same_name_stays_unless_replaced(capsys: Capsys, home: Path) -> None:
    file = user(home, '[server.a]\ncommand = "mine" # ours\n')
    put(Path("x.json"), '{"mcpServers": {"a": {"command": "theirs"}}}')
    done = config(capsys, "import", "x.json")
    assert done.code == 1
    assert "--replace" in done.err
    assert "mine" in file.read_text()
    assert config(capsys, "import", "x.json", "--replace").code == 0
    assert tomllib.loads(file.read_text())["server"]["a"] == {"command": "theirs"}
    assert "mine" in Path(f"{file}.trimaran-bak").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cursor"], "Cursor has no such file here"),
        (["nothing.json"], "neither a file that is there nor one of mcp-json"),
        (["x.json", "--from-project"], "goes with the name of a program"),
        (["x.json"], "there are no servers in it"),
        (["x.json", "--client", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_imported_is_said(capsys: Capsys, home: Path, words: list[str], said: str) -> None:
    put(Path("x.json"), "{}")
    done = config(capsys, "import", *words)
    assert done.code == 2
    assert said in plain(done.err)


def test_whose_file_it_is_can_be_said(capsys: Capsys, home: Path) -> None:
    put(Path("x.json"), '{"mcpServers": {"a": {"url": "https://h/sse"}}}')
    assert config(capsys, "import", "x.json", "--client", "gemini").code == 0
    assert "sse" in (home / ".config" / "trimaran" / "mcp.toml").read_text()


def test_a_file_without_servers_is_not_a_failure(capsys: Capsys, home: Path) -> None:
    put(home / ".cursor" / "mcp.json", '{"mcpServers": {}}')
    done = config(capsys, "import", "cursor")
    assert (done.code, done.out) == (0, "")
    assert "has no servers" in done.err


# --- export ----------------------------------------------------------------------------------------------------------


def test_servers_of_ours_go_into_another_programs_file(capsys: Capsys, home: Path) -> None:
    user(home, '[server.a]\ncommand = "x"\nenv = { K = "${K}" }\n[server.b]\ncommand = "y"\ndisabled = true\n')
    settings = put(home / ".config" / "zed" / "settings.json", '{\n  // mine\n  "theme": "x",\n}\n')
    done = config(capsys, "export", "zed")
    assert done.code == 1
    assert "a: Zed does not fill in ${K}: it needs the value itself" in done.err
    assert "--expand" in done.err
    assert done.out == ""
    done = config(capsys, "export", "vscode", "--project")
    assert done.code == 0
    assert json.loads(Path(".vscode/mcp.json").read_text()) == {
        "servers": {"a": {"type": "stdio", "command": "x", "args": [], "env": {"K": "${env:K}"}}}
    }
    assert "// mine" in settings.read_text()


def test_values_of_today_are_written_on_demand(capsys: Capsys, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "v")
    user(home, '[server.a]\ncommand = "x"\nenv = { K = "${K}" }\n')
    settings = put(home / ".config" / "zed" / "settings.json", '{\n  // mine\n  "theme": "x",\n}\n')
    done = config(capsys, "export", "zed", "a", "--expand")
    assert done.code == 0, done.err
    assert '// mine\n  "theme": "x",\n  "context_servers": {' in settings.read_text()
    assert '"K": "v"' in settings.read_text()
    assert "settings.json.trimaran-bak" in done.err


def test_a_dry_run_of_an_export_shows_the_entry_masked(capsys: Capsys, home: Path) -> None:
    user(home, '[server.a]\ncommand = "x"\nenv = { K = "hunter2" }\n')
    done = config(capsys, "export", "codex", "--dry-run")
    assert done.json == {"mcp_servers": {"a": {"command": "x", "env": {"K": "***"}}}}
    assert not (home / ".codex").exists()


def test_a_failed_server_can_be_exported_if_only_its_variables_are_missing(capsys: Capsys, home: Path) -> None:
    """The other program may have them."""
    user(home, '[server.a]\ncommand = "${NO}"\n')
    assert config(capsys, "export", "cursor", "a").code == 0
    assert "${env:NO}" in (home / ".cursor" / "mcp.json").read_text()


def test_help_names_every_program(capsys: Capsys) -> None:
    for words in (["config", "import", "--help"], ["config", "export", "--help"], ["install", "--help"]):
        said = plain(run_cli(capsys, *words).out)
        for name in (
            "claude-desktop",
            "claude-code",
            "cursor",
            "vscode",
            "codex",
            "gemini",
            "goose",
            "windsurf",
            "zed",
            "mcp-json",
        ):
            assert name in said
