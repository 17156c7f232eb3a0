"""The command line as a whole: help, version, and commands from other packages."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from drillcore.cli import CommandError, Session, common_options, main, pass_session


@click.command()
@common_options
@pass_session
def hello(session: Session) -> None:
    """Say hello."""
    session.emit({"hello": "world"}, "hello, world")


@click.command()
@common_options
def broken() -> None:
    """Fail."""
    raise CommandError("NO_LUCK", "try again")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the installed plugins by two commands of this file and a command whose package is missing."""
    found = EntryPoints(
        [
            EntryPoint("hello", f"{__name__}:hello", "drillcore.commands"),
            EntryPoint("broken", f"{__name__}:broken", "drillcore.commands"),
            EntryPoint("serve", "not_installed_anywhere.cli:serve", "drillcore.commands"),
        ]
    )
    monkeypatch.setitem(sys.modules, __name__, sys.modules[hello.callback.__module__])
    monkeypatch.setattr(importlib.metadata, "entry_points", found.select)


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += every_command(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("command", every_command(main), ids=" ".join)
def test_every_command_takes_json_and_has_help(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "--config" in result.stdout


def test_the_version_names_client_protocol_and_python() -> None:
    version = importlib.metadata.version("drillcore")
    plain, as_json = CliRunner().invoke(main, ["version"]), CliRunner().invoke(main, ["version", "--json"])
    assert plain.stdout.startswith(f"drillcore {version} (API 1.5, Python 3.")
    assert json.loads(as_json.stdout)["version"] == version
    assert json.loads(as_json.stdout)["api_version"] == "1.5"


@pytest.mark.usefixtures("plugins")
def test_help_lists_the_commands_of_other_packages() -> None:
    result = CliRunner().invoke(main, ["--help"])
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["hello", "Say hello."] in lines
    assert ["serve", "needs the server: pip install 'drillcore[server]'"] in lines


@pytest.mark.usefixtures("plugins")
def test_a_command_of_another_package_has_the_same_output() -> None:
    assert CliRunner().invoke(main, ["hello"]).stdout == "hello, world\n"
    assert json.loads(CliRunner().invoke(main, ["--json", "hello"]).stdout) == {"hello": "world"}
    failed = CliRunner().invoke(main, ["broken"])
    assert (failed.exit_code, failed.stdout, failed.stderr) == (1, "", "NO_LUCK: try again\n")


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("arguments", [[], ["--help"], ["--data-dir", "x", "y"]], ids=" ".join)
def test_a_command_whose_package_is_missing_says_what_to_install(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "serve needs the server: pip install 'drillcore[server]'" in result.stderr
    as_json = CliRunner().invoke(main, ["serve", *arguments, "--json"])
    assert json.loads(as_json.stdout)["error"]["reason"] == "SERVER_NOT_INSTALLED"


def test_the_installed_command_runs_and_fails_without_a_traceback(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("drillcore")
    environment = {"HOME": str(tmp_path), "DRILLCORE_CLIENT_ATTEMPTS": "1", "PATH": ""}
    done = subprocess.run(
        [program, "tenant", "list", "--address", "127.0.0.1:1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("UNAVAILABLE: no answer from 127.0.0.1:1")
    assert "Traceback" not in done.stderr
