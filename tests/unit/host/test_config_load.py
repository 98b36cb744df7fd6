"""Which files are read, how they go together, and what stops the load (R225, R226, R237, R244)."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.errors import ConfigError
from trimaran.host import ConfigUnusable, HostConfig, Machine, Source, load_config, read_config
from trimaran.host.config.tomltext import lines_of

LINUX = Machine(home="/u", workspace="/w", environ={})


def machine_at(root: Path, **environ: str) -> Machine:
    return Machine(home=str(root / "home"), workspace=str(root / "work"), environ=environ)


def put(path: object, text: str) -> Path:
    file = Path(str(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def read(text: str, machine: Machine = LINUX) -> HostConfig:
    return read_config([(Source("mcp.toml", "user"), text)], machine)


def refused(text: str) -> str:
    with pytest.raises(ConfigUnusable) as caught:
        read(text)
    return str(caught.value)


# --- where ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_users_file_is_in_the_same_place_on_every_system(platform: str) -> None:
    """R225."""
    home = "C:\\Users\\u" if platform == "win32" else "/u"
    machine = Machine(home=home, workspace=home, environ={}, platform=platform)
    assert machine.user_file.parts[-3:] == (".config", "trimaran", "mcp.toml")
    assert machine.user_file.is_relative_to(home)


def test_xdg_config_home_moves_the_users_file_unless_it_is_relative() -> None:
    """R225."""
    moved = Machine(home="/u", workspace="/w", environ={"XDG_CONFIG_HOME": "/x"})
    assert str(moved.user_file) == "/x/trimaran/mcp.toml"
    ignored = Machine(home="/u", workspace="/w", environ={"XDG_CONFIG_HOME": "x"})
    assert str(ignored.user_file) == "/u/.config/trimaran/mcp.toml"


def test_the_projects_file_is_below_the_workspace() -> None:
    """R225."""
    assert str(LINUX.project_file) == "/w/.trimaran/mcp.toml"


def test_this_machine_is_the_current_directory_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDE", "high")
    here = Machine.here()
    assert (here.workspace, here.environ["TIDE"]) == (str(tmp_path), "high")
    assert Machine.here(tmp_path / "sub").workspace == str(tmp_path / "sub")
    assert "high" not in repr(here)


# --- together ------------------------------------------------------------------------------------------------------


def test_both_files_are_optional(tmp_path: Path) -> None:
    """R225."""
    config = load_config(machine=machine_at(tmp_path))
    assert (config.sources, config.servers, config.failed) == ((), {}, {})


def test_a_projects_server_replaces_the_users_as_a_whole(tmp_path: Path) -> None:
    """R225: nothing of the user's entry shows through."""
    machine = machine_at(tmp_path)
    user = put(
        machine.user_file, '[server.a]\ncommand = "x"\nargs = ["1"]\ntimeout = "9s"\n[server.b]\ncommand = "b"\n'
    )
    project = put(machine.project_file, '[server.a]\ncommand = "y"\n')
    config = load_config(machine=machine)
    assert [source.file for source in config.sources] == [str(user), str(project)]
    a, b = config.servers["a"], config.servers["b"]
    assert (a.command, a.args, a.timeout, a.source.level) == ("y", (), None, "project")
    assert (b.command, b.source.level) == ("b", "user")


def test_a_projects_broken_server_does_not_fall_back_to_the_users(tmp_path: Path) -> None:
    """R225: the user's entry is another server; starting it in place of what the project asks for would be a surprise."""
    machine = machine_at(tmp_path)
    put(machine.user_file, '[server.a]\ncommand = "x"\n')
    put(machine.project_file, "[server.a]\ncommand = 5\n")
    config = load_config(machine=machine)
    assert "a" not in config.servers
    assert config.failed["a"].source.level == "project"


def test_files_beside_the_project_count_only_where_they_are_asked_for(tmp_path: Path) -> None:
    """A repository brings them along, so only hosts that ask for trust look there."""
    machine = machine_at(tmp_path)
    shared = put(
        machine.in_workspace(".mcp.json"), '{"mcpServers": {"c": {"command": "json", "args": ["${TIDE:-low}"]}}}'
    )
    assert load_config(machine=machine).sources == ()
    config = load_config(machine=machine, nearby=True)
    assert (config.servers["c"].command, config.servers["c"].args) == ("json", ("low",))
    assert [(source.file, source.level) for source in config.sources] == [(str(shared), "project")]
    put(machine.in_workspace("mcp.toml"), '[server.b]\ncommand = "toml"\n')
    assert list(load_config(machine=machine, nearby=True).servers) == ["b"], "the first that is there"
    put(machine.project_file, '[server.a]\ncommand = "own"\n')
    assert list(load_config(machine=machine, nearby=True).servers) == ["a"]


def test_a_json_file_can_be_named_too(tmp_path: Path) -> None:
    named = put(tmp_path / "shared.json", '{"mcpServers": {"c": {"url": "https://h.example/mcp"}}}')
    config = load_config(named, machine=machine_at(tmp_path))
    assert (config.servers["c"].url, config.sources[0].level) == ("https://h.example/mcp", "file")


def test_a_translated_file_names_no_lines_and_leaves_out_what_cannot_be_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = machine_at(tmp_path)
    text = '{\n"mcpServers": {\n"odd": 5,\n"unset": {"command": "x", "args": ["${NOBODY_SET_THIS}"]}}}'
    file = put(machine.in_workspace(".mcp.json"), text)
    config = load_config(machine=machine, nearby=True)
    assert [(problem.file, problem.line) for problem in config.failed["unset"].problems] == [(str(file), None)]
    assert f"{file}:3: the server 'odd' is left out: it is not an object" in caplog.text


def test_a_named_file_is_read_alone(tmp_path: Path) -> None:
    machine = machine_at(tmp_path)
    put(machine.user_file, '[server.a]\ncommand = "x"\n')
    named = put(tmp_path / "other.toml", '[server.b]\ncommand = "y"\n')
    config = load_config(named, machine=machine)
    assert list(config.servers) == ["b"]
    assert config.sources[0].level == "file"


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnusable, match=r"nowhere\.toml: there is no such file"):
        load_config(tmp_path / "nowhere.toml", machine=machine_at(tmp_path))


def test_an_edit_after_the_load_changes_nothing(tmp_path: Path) -> None:
    """R237."""
    machine = machine_at(tmp_path)
    put(machine.user_file, '[server.a]\ncommand = "x"\n')
    config = load_config(machine=machine)
    put(machine.user_file, '[server.a]\ncommand = "y"\n')
    assert config.servers["a"].command == "x"
    with pytest.raises(AttributeError):
        config.servers = {}  # type: ignore[misc]
    assert load_config(machine=machine).servers["a"].command == "y"


def test_one_bad_server_leaves_the_others_alone() -> None:
    """R226."""
    config = read('[server.bad]\ncommand = "x"\nurl = "https://h/"\n[server.good]\ncommand = "y"\n')
    assert list(config.servers) == ["good"]
    assert list(config.failed) == ["bad"]


# --- what stops the load -------------------------------------------------------------------------------------------


def test_bad_toml_stops_the_load_naming_file_line_and_table() -> None:
    """R226."""
    said = refused('[server.a]\ncommand = "x"\n\n[server.b]\ncommand = \n')
    assert said.startswith("mcp.toml:5: server.b: this is not TOML: ")


@pytest.mark.parametrize(
    "name", ["", " a", "a\\nb", "a\\u200bb", "x" * 201, "a__b", "_", "a_"], ids=lambda name: name[:20]
)
def test_a_bad_name_stops_the_load_naming_file_line_and_key(name: str) -> None:
    """R226."""
    said = refused(f'\n\n[server."{name}"]\ncommand = "x"\n')
    is_bare = len(name) > 100 or "_" in name
    assert said.startswith(f"mcp.toml:3: server.{name}: " if is_bare else 'mcp.toml:3: server."')
    assert "name" in said


@pytest.mark.parametrize(
    "name",
    ["a", "0", "_a", "-", "a_b-3", "x" * 33, "Linear", "a b", "ä", "a.b", "a/b", "@scope/pkg", "awslabs.aws-docs"],
)
def test_a_good_name_is_taken(name: str) -> None:
    """R226."""
    assert list(read(f'[server."{name}"]\ncommand = "x"\n').servers) == [name]


def test_a_name_with_a_dot_that_is_not_quoted_is_noticed() -> None:
    """TOML reads it as a table within a table."""
    failed = read('[server.awslabs.aws-docs]\ncommand = "x"\n').failed["awslabs"]
    assert 'a name with a dot in it is written in quotes, [server."awslabs.aws-docs"]' in failed.reason


def test_problems_of_a_server_with_an_odd_name_show_its_key_as_it_is_written() -> None:
    failed = read('[server."a.b"]\ncomand = "x"\n').failed["a.b"]
    assert 'mcp.toml:2: server."a.b".comand: ' in failed.reason


def test_a_server_written_twice_stops_the_load() -> None:
    """R226: TOML itself says so."""
    assert "mcp.toml:3: server.a: this is not TOML" in refused('[server.a]\ncommand = "x"\n[server.a]\n')


@pytest.mark.parametrize(
    "text",
    ['server = "x"', '[[server]]\ncommand = "x"', '[server]\ncommand = "npx"', "permissions = 3"],
)
def test_a_section_of_the_wrong_kind_stops_the_load(text: str) -> None:
    assert refused(text).startswith("mcp.toml:1: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[permissions]\ndeny = "x"', "mcp.toml:2: permissions.deny: a list of patterns is expected"),
        (
            '[permissions]\n\ndenny = ["x"]',
            "mcp.toml:3: permissions.denny: this key is not known; did you mean 'deny'?",
        ),
        ("[permissions]\ndeny = [1]", "mcp.toml:2: permissions.deny[0]: a pattern is expected"),
        ('[permissions]\ndeny = [{patern = "x"}]', "mcp.toml:2: permissions.deny[0].patern: this key is not known"),
        ('[permissions]\ndeny = [""]', "mcp.toml:2: permissions.deny[0]: a pattern is expected"),
    ],
)
def test_global_rules_that_cannot_be_read_stop_the_load(text: str, said: str) -> None:
    """R243: a deny that was dropped would be a permission."""
    assert refused(text).startswith(said)


def test_what_is_no_text_or_no_file_is_said(tmp_path: Path) -> None:
    machine = machine_at(tmp_path)
    file = put(machine.user_file, "")
    file.write_bytes(b"# \xe4\n[server.a]\n# \xff\n")
    with pytest.raises(ConfigUnusable, match=r"mcp\.toml:1: this is not UTF-8"):
        load_config(machine=machine)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigUnusable, match="this is not a file"):
        load_config(machine=machine)


def test_the_error_is_a_config_error_with_its_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        read('[server.""]\ncommand = "x"\n')
    assert isinstance(caught.value, ConfigUnusable)
    problem = caught.value.problem
    assert (problem.file, problem.line, problem.key) == ("mcp.toml", 1, 'server.""')


@pytest.mark.parametrize("text", ["\ufeff[server.a]\ncommand = 'x'\n", "[server.a]\r\ncommand = 'x'\r\n"])
def test_files_as_windows_writes_them_are_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.toml"
    file.write_bytes(text.encode())
    entry = load_config(file, machine=machine_at(tmp_path)).servers["a"]
    assert (entry.command, entry.lines["command"]) == ("x", 2)


# --- what does not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["servers", "mcpServers", "mcp_servers"])
def test_servers_under_a_name_of_others_are_pointed_out(key: str) -> None:
    problem = read(f'[{key}.a]\ncommand = "x"\n').problems[0]
    assert (
        str(problem)
        == f"mcp.toml:1: {key}: this key is not known, and ignored; servers are written as [server.NAME] here"
    )


def test_an_unknown_section_is_told_which_sections_there_are() -> None:
    problem = read("[zzz]\na = 1\n").problems[0]
    assert str(problem).endswith("known are server, permissions, pins, trust, context, gateway, view")


def test_an_unknown_section_is_ignored_and_pointed_out() -> None:
    config = read('[permission]\nallow = []\n[server.a]\ncommand = "x"\n[themes]\n')
    assert list(config.servers) == ["a"]
    assert [(p.key, p.line) for p in config.problems] == [("permission", 1), ("themes", 5)]
    assert "did you mean 'permissions'?" in config.problems[0].message


def test_global_rules_of_the_project_come_before_the_users() -> None:
    """R244."""
    user = '[permissions]\nallow = ["a"]\ndeny = [{ pattern = "b", reason = "no", comment = "c", expires_at = 2030-01-02 }]\n'
    project = '[permissions]\nask = ["d"]\n'
    config = read_config([(Source("u", "user"), user), (Source("p", "project"), project)], LINUX)
    assert [(r.action, r.pattern, r.source.level, r.line) for r in config.rules] == [
        ("ask", "d", "project", 2),
        ("allow", "a", "user", 2),
        ("deny", "b", "user", 3),
    ]
    last = config.rules[-1]
    assert (last.reason, last.comment, last.expires_at) == ("no", "c", "2030-01-02")


# --- lines ---------------------------------------------------------------------------------------------------------


def test_every_key_knows_its_line() -> None:
    text = """# a comment with [server.no]
[server.a] # another
command = "x" # = "y"
args = [
  "[server.b]", # ]
  'it''s', ]

"env" = { A = "1", "b.c" = { d = 2 } }
text = \"\"\"
[server.c]
\"\"\"\"
raw = '''
key = 1'''
when = 1979-05-27 07:32:00
dotted."k e y".z = 1
[[server.a.list]]
q = 1
[ server . "b" ]
c.d = {}
"""
    text = text.replace("'it''s'", "'its'")
    lines = {".".join(key): line for key, line in lines_of(text).items()}
    assert lines == {
        "server": 2,
        "server.a": 2,
        "server.a.command": 3,
        "server.a.args": 4,
        "server.a.env": 8,
        "server.a.env.A": 8,
        "server.a.env.b.c": 8,
        "server.a.env.b.c.d": 8,
        "server.a.text": 9,
        "server.a.raw": 12,
        "server.a.when": 14,
        "server.a.dotted": 15,
        "server.a.dotted.k e y": 15,
        "server.a.dotted.k e y.z": 15,
        "server.a.list": 16,
        "server.a.list[0]": 16,
        "server.a.list[0].q": 17,
        "server.a.list.q": 17,
        "server.b": 18,
        "server.b.c": 19,
        "server.b.c.d": 19,
    }
