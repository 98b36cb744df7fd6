"""The commands of sandboxes: what bubblewrap is told, and the profile of sandbox-exec. tests/fault/test_sandbox.py runs them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trimaran.client.sandbox_policy import Sandbox
from trimaran.errors import ConfigError
from trimaran.transports.sandbox import (
    bubblewrap_command,
    prepare_sandbox,
    runtime_paths,
    sandbox_environment,
    seatbelt_profile,
)

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/home/ann"}


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def mounted(command: list[str], option: str) -> list[str]:
    return [command[at + 2] for at, word in enumerate(command) if word == option]


def test_only_the_safe_and_the_named_variables_are_passed_on() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "GITHUB_TOKEN": "x", "PYTHONPATH": "/evil", "KEY": "y"}
    passed = sandbox_environment(Sandbox(env=("KEY",)), environ, {"OWN": "z"})
    assert passed == {"PATH": "/bin", "LC_ALL": "C", "KEY": "y", "OWN": "z"}


def test_a_strict_sandbox_shows_the_system_and_the_program(tmp_path: Path) -> None:
    program = script(tmp_path / "tool", "#!/bin/sh\n")
    command = bubblewrap_command("bwrap", Sandbox(), [program], ENVIRONMENT, str(tmp_path))
    assert command[0] == "bwrap"
    assert {"--unshare-all", "--die-with-parent", "--new-session", "--disable-userns"} <= set(command)
    assert "--share-net" not in command
    assert program in mounted(command, "--ro-bind")
    assert not mounted(command, "--bind")
    assert command[-2:] == ["--", program]
    assert "/etc" not in mounted(command, "--ro-bind") and "/etc/shadow" not in command
    assert "/etc/resolv.conf" not in command


def test_the_listed_paths_are_mounted_from_the_outside_in(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    policy = Sandbox(read=("a/b",), write=("a",), net=True)
    command = bubblewrap_command("bwrap", policy, ["/usr/bin/true"], ENVIRONMENT, str(tmp_path))
    inner, outer = str(tmp_path / "a" / "b"), str(tmp_path / "a")
    assert command.index(outer) < command.index(inner)
    assert mounted(command, "--bind") == [outer]
    assert inner in mounted(command, "--ro-bind")
    assert "--share-net" in command


def test_a_list_of_hosts_needs_its_proxy() -> None:
    policy = Sandbox(net=("example.com",))
    with pytest.raises(ConfigError, match="socket of its proxy"):
        bubblewrap_command("bwrap", policy, ["/usr/bin/true"], ENVIRONMENT, "/")
    command = bubblewrap_command("bwrap", policy, ["/usr/bin/true"], ENVIRONMENT, "/", socket="/x/socket")
    assert "--share-net" not in command
    assert "/x/socket" in command
    assert any(word.endswith("sandbox_relay.py") for word in command)


def test_a_virtual_environment_comes_with_its_python(tmp_path: Path) -> None:
    base = script(tmp_path / "base" / "bin" / "python3", "")
    (tmp_path / "base" / "lib").mkdir()
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(base)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {tmp_path / 'base' / 'bin'}\n")
    (tmp_path / "venv" / "lib").mkdir()
    server = script(tmp_path / "venv" / "bin" / "server", f"#!{python}\n")
    paths = runtime_paths([server], ENVIRONMENT, "/")
    assert {str(tmp_path / "venv"), str(tmp_path / "base" / "lib"), base} <= set(paths)
    assert str(tmp_path) not in paths


def test_a_package_of_node_comes_with_its_modules_and_a_prefix_without_its_data(tmp_path: Path) -> None:
    modules = tmp_path / "project" / "node_modules"
    server = script(modules / "server" / "index.js", "#!/usr/bin/env -S sh\n")
    (modules / ".bin").mkdir()
    (modules / ".bin" / "server").symlink_to(server)
    assert str(modules) in runtime_paths([str(modules / ".bin" / "server")], ENVIRONMENT, "/")
    tool = script(tmp_path / "home" / ".local" / "bin" / "tool", "")
    (tmp_path / "home" / ".local" / "share").mkdir()
    paths = runtime_paths([tool], ENVIRONMENT, "/")
    assert str(tmp_path / "home" / ".local" / "share") not in paths
    assert str(tmp_path / "home" / ".local") not in paths


def test_a_script_that_the_arguments_name_is_shown_and_a_folder_is_not(tmp_path: Path) -> None:
    file = script(tmp_path / "server.py", "")
    (tmp_path / "data").mkdir()
    paths = runtime_paths(["/usr/bin/python3", "server.py", "data", "-x"], ENVIRONMENT, str(tmp_path))
    assert paths == [file]


def test_links_in_a_circle_and_broken_ones_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert runtime_paths([str(tmp_path / "a")], ENVIRONMENT, "/") == []


def test_the_profile_of_macos_denies_by_default() -> None:
    policy = Sandbox(read=("/data",), write=('/out "x"',), net=("example.com",))
    profile = seatbelt_profile(policy, ["/usr/bin/true"], ENVIRONMENT, "/", proxy_port=4711)
    assert profile.startswith("(version 1)\n(deny default)\n")
    assert '(allow file-read* (subpath "/data"))' in profile
    assert '(allow file-write* (subpath "/out \\"x\\""))' in profile
    assert '(allow file-write* (subpath "/data"))' not in profile
    assert '(allow network-outbound (remote ip "localhost:4711"))' in profile
    assert "(allow network*)" not in profile
    assert profile.count("(") == profile.count(")")
    assert "network" not in seatbelt_profile(Sandbox(), ["/usr/bin/true"], ENVIRONMENT, "/")
    assert "(allow network*)" in seatbelt_profile(Sandbox(net=True), ["/usr/bin/true"], ENVIRONMENT, "/")


@pytest.mark.parametrize("platform", ["win32", "freebsd14", "emscripten"])
def test_other_systems_are_refused(platform: str) -> None:
    with pytest.raises(ConfigError, match="there is no sandbox for"):
        prepare_sandbox(Sandbox(), ["/usr/bin/true"], ENVIRONMENT, None, platform=platform)


def test_macos_without_its_tool_is_refused() -> None:
    if os.path.exists("/usr/bin/sandbox-exec"):
        pytest.skip("it is there")
    with pytest.raises(ConfigError, match="sandbox-exec"):
        prepare_sandbox(Sandbox(), ["/usr/bin/true"], ENVIRONMENT, None, platform="darwin")
