"""If a machine lacks something, `make` names it and says how to install it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.processes.children import IGNORING_CTRL_C

PYTHON = shlex.quote(sys.executable)
NEEDED = ("make", "sh", "dirname", "git")
"""Programs that the set-up calls before it has a Python."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of the files that `make run` uses, in a path with a blank, and a folder `bin` with the only programs."""
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


def test_make_without_python_says_how_to_install_it(machine: Path) -> None:
    assert "there is no 'python3'" in refused(machine, "run")


def test_make_without_git_says_how_to_install_it(machine: Path) -> None:
    (machine / "bin" / "git").unlink()
    assert "needs git" in refused(machine, "run")


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_an_unsupported_python_is_named(machine: Path, version: tuple[int, int]) -> None:
    number = ".".join(map(str, version))
    code = f"import sys; sys.version_info = {version!r}; exec(sys.argv[1])"
    install_python(machine, f'[ "$1" = --version ] && echo Python {number} || exec {PYTHON} -c "{code}" "$2"')
    assert f"Python {number}" in refused(machine, "run")


def test_make_names_the_package_of_a_missing_venv(machine: Path) -> None:
    """Debian has these modules in a package of their own."""
    (machine / "empty").mkdir()
    (machine / "empty" / "ensurepip.py").write_text("raise ImportError")
    install_python(machine, f'PYTHONPATH="{machine}/empty" exec {PYTHON} "$@"')
    assert "apt-get install python3-venv" in refused(machine, "run")


def test_make_clean_leaves_only_the_files_in_git(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for pattern in ignored:
        (tmp_path / pattern).mkdir()
    (tmp_path / "server" / "__pycache__").mkdir(parents=True)
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True, env=os.environ)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "server"]
    assert not list((tmp_path / "server").iterdir())


def test_a_process_of_a_test_gets_the_default_handler_of_sigint_though_a_shell_ignored_it() -> None:
    """`make test &`: a shell ignores SIGINT for jobs in the background, and their processes would inherit that."""
    child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    code = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    command = [*IGNORING_CTRL_C, sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
