"""`make` on a machine that lacks something says what, and how to install it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PYTHON = shlex.quote(sys.executable)
NEEDED = ("make", "sh", "dirname", "git")
"""What the set-up calls before it has a Python."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of what `make run` uses, in a path with a blank, and a folder `bin` with the only programs there are."""
    folder = tmp_path / "a clone"
    (folder / "bin").mkdir(parents=True)
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for program in NEEDED:
        found = shutil.which(program)
        assert found is not None
        (folder / "bin" / program).symlink_to(found)
    return folder


def install_python(machine: Path, script: str) -> None:
    (machine / "bin" / "python3").write_text(f"#!/bin/sh\n{script}\n")
    (machine / "bin" / "python3").chmod(0o755)


def make(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "HOME": str(machine)}
    return subprocess.run(["make", *arguments], cwd=machine, env=environment, capture_output=True, text=True)


def refused(machine: Path, *arguments: str) -> str:
    done = make(machine, *arguments)
    assert done.returncode != 0
    assert not (machine / ".venv").exists()
    for system in ("Debian, Ubuntu:  apt-get install", "Fedora:          dnf install", "macOS:"):
        assert system in done.stderr
    return done.stderr


def test_a_machine_without_python_is_told_how_to_get_it(machine: Path) -> None:
    assert "there is no 'python3'" in refused(machine, "run")


def test_a_machine_without_git_is_told_how_to_get_it(machine: Path) -> None:
    (machine / "bin" / "git").unlink()
    assert "needs git" in refused(machine, "run")


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_a_python_that_is_not_supported_is_named(machine: Path, version: tuple[int, int]) -> None:
    number = ".".join(map(str, version))
    code = f"import sys; sys.version_info = {version!r}; exec(sys.argv[1])"
    install_python(machine, f'[ "$1" = --version ] && echo Python {number} || exec {PYTHON} -c "{code}" "$2"')
    assert f"Python {number}" in refused(machine, "run")


def test_a_python_without_venv_is_told_of_the_package(machine: Path) -> None:
    """Debian has the modules in a package of their own."""
    (machine / "empty").mkdir()
    (machine / "empty" / "ensurepip.py").write_text("raise ImportError")
    install_python(machine, f'PYTHONPATH="{machine}/empty" exec {PYTHON} "$@"')
    assert "apt-get install python3-venv" in refused(machine, "run")


def test_make_clean_leaves_only_what_git_has(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for pattern in ignored:
        (tmp_path / pattern).mkdir()
    (tmp_path / "server" / "__pycache__").mkdir(parents=True)
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True, env=os.environ)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "server"]
    assert not list((tmp_path / "server").iterdir())
