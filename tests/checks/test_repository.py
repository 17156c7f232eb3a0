"""Rules about the repository itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from drillcore_server.storage.spaces import Space
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_folder_fdb_is_not_a_package() -> None:
    """It would shadow FoundationDB's own package `fdb`."""
    assert not (ROOT / "fdb" / "__init__.py").exists()


def test_import_fdb_finds_foundationdb() -> None:
    code = "import fdb; print(fdb.__file__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout
    assert "site-packages" in found


def test_the_committed_stubs_match_the_protocol_files(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(
        [sys.executable, ROOT / "proto" / "generate.py", tmp_path], env=environment, check=True, capture_output=True
    )
    made = stubs_below(tmp_path)
    assert made
    assert made == stubs_below(ROOT / "proto"), "run `make stubs`"


def stubs_below(folder: Path) -> dict[Path, str]:
    paths = [path for pattern in ("*_pb2*.py", "*_pb2*.pyi") for path in folder.rglob(pattern)]
    return {path.relative_to(folder): path.read_text(encoding="utf-8") for path in paths}


def dependencies() -> set[str]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return {re.split(r"[<>=~!\[; ]", line)[0] for group in groups for line in group}


def test_every_dependency_is_listed_with_its_licence() -> None:
    listed = set(re.findall(r"^\| ([\w-]+) \|", (ROOT / "THIRD_PARTY_LICENSES.md").read_text(), re.MULTILINE))
    assert dependencies() == listed - {"package"}


def test_every_dependency_is_listed_with_its_reason() -> None:
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8")
    reasons = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}
    assert dependencies() == reasons


def test_every_directory_of_the_store_is_on_the_page_of_the_key_layout() -> None:
    page = (ROOT / "fdb" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z/-]+)`[ *S]* \|(?:[^|\n]+\|){5}$", page, re.MULTILINE)
    assert set(rows) == set(Space)


def test_ci_runs_make_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "exec make test"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def documents() -> dict[Path, str]:
    folders = ("benchmarks", "client", "deploy", "docs", "fdb", "proto", "server")
    paths = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def test_every_link_of_the_documents_has_a_target() -> None:
    for path, text in documents().items():
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith(("http", "mailto:"))]
        for link in links:
            file, _, heading = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path.relative_to(ROOT)} links to {link}"
            assert not heading or heading in headings_of(target.read_text("utf-8")), f"{path.relative_to(ROOT)}: {link}"


def headings_of(text: str) -> set[str]:
    """The headings of a page in the form that links use."""
    lines = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_path_of_the_documents_exists() -> None:
    """A path is text in backquotes with a folder and a suffix, below the root, a package or the document's folder."""
    below = [ROOT / base for base in ("", "server/drillcore_server", "proto", "fdb", "fdb/drillcore_fdb", "tests")]
    for path, text in documents().items():
        named = re.findall(r"`(\w[\w./-]*/[\w-]+\.(?:py|md|toml|txt|sh|proto))(?:::\w+)?`", text)
        missing = [name for name in named if not any((base / name).exists() for base in (*below, path.parent))]
        assert missing == [], f"{path.relative_to(ROOT)} names missing paths"
