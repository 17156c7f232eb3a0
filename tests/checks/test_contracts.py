"""ARCHITECTURE.md lists which capability uses which, and READMEs list modules. Both agree with the code."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import grimp
import pytest

from tests.support.paths import ROOT

SERVER = ROOT / "server" / "drillcore_server"
EVERYONE_USES = {"kernel", "storage"}
READMES = sorted(path for path in SERVER.rglob("README.md") if path.parent != SERVER)


def imports() -> dict[str, set[str]]:
    """Each folder of the server with the other folders that it imports."""
    graph = grimp.build_graph("drillcore_server", cache_dir=None)
    used = defaultdict(set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            user, target = (name.split(".")[1] for name in (f"{module}.", f"{imported}."))
            if target and user != target:
                used[user].add(target)
    return used


def test_architecture_lists_which_capability_uses_which() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (none|(?:`\w+`(?:, )?)+) \|$", text, re.MULTILINE)
    listed = {capability: set(re.findall(r"`(\w+)`", used)) for capability, used in rows}
    folders = {path.parent.name for path in SERVER.glob("*/__init__.py")}
    assert listed.keys() == folders - EVERYONE_USES - {"app"}
    used = imports()
    assert listed == {capability: used[capability] - EVERYONE_USES for capability in listed}


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.relative_to(SERVER).as_posix())
def test_a_readme_lists_modules_that_exist(readme: Path) -> None:
    """The first column of a table of modules names files beside the README, with or without suffix, or folders."""
    text = readme.read_text(encoding="utf-8")
    tables = re.findall(r"^\| (?:module|file|where) \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row.split("|")[1] for table in tables for row in table.splitlines()]
    names = {name for row in rows for name in re.findall(r"`([\w/.]+)`", row)}
    missing = [name for name in names if not any((readme.parent / f"{name}{end}").exists() for end in ("", ".py"))]
    assert missing == []


@pytest.mark.parametrize("capability", sorted(path.parent.name for path in SERVER.glob("*/__init__.py")))
def test_the_readme_of_a_capability_links_its_decisions(capability: str) -> None:
    text = (SERVER / capability / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\((\.\./\.\./\.\./docs/decisions/[\w-]+\.md)\)", text)
    assert linked
    assert all((SERVER / capability / link).exists() for link in linked)
