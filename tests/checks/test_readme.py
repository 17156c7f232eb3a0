"""The sessions, snippets and settings of README and guides run as printed, and all that documents name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from drillcore._transport.client_settings import load_client_settings
from drillcore_server.app.config import load_settings
from tests.support.paths import ROOT
from tests.support.processes.children import gone_afterwards

GUIDES = (
    "getting-started",
    "ingesting",
    "querying",
    "python-client",
    "facts",
    "erasure-and-retention",
    "envelopes",
    "quads-cores-slices",
    "signatures-and-exports",
    "audit",
    "tenants",
    "operations",
    "command-line",
)
"""In the order in which they run: each continues with the store that the guides before it left."""
PAGES = [ROOT / "README.md", *(ROOT / "docs" / "guides" / f"{guide}.md" for guide in GUIDES)]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SERVE = "drillcore serve --data-dir ./data &"


class Block(NamedTuple):
    file: str
    """The name of the file that the block shows, if the line before it says so."""
    kind: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    pattern = r"(?:^`([\w.-]+)`:\n\n)?^```(\w+)\n(.*?)^```$"
    return [Block(*found) for found in re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)]


@dataclass
class Site:
    """A directory with a server in it, as a reader of the pages has it."""

    directory: Path
    address: str
    exported: dict[str, str] = field(default_factory=dict)

    def run(self, arguments: list[str]) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DRILLCORE_")}
        environment |= {"DRILLCORE_CLIENT_ADDRESS": self.address, "TZ": "UTC"} | self.exported
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        ).stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("readme")
    flags = [*shlex.split(SERVE)[1:-1], "--listen", "127.0.0.1:0", "--metrics-listen", "", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "drillcore", *flags], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with gone_afterwards(process):
        assert process.stdout is not None
        document = b""
        while not document.endswith(b"\n}\n"):
            line = process.stdout.readline()
            assert line, "the server ended before it was ready"
            document += line
        yield Site(directory, f"127.0.0.1:{json.loads(document)['serving']['port']}")
        process.terminate()
        assert process.wait(timeout=30) == 0


def normalised(text: str) -> str:
    """The text without parts that differ from run to run: ids, times, and hashes of texts that contain them."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?\+00:00", "<time>", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def commands_of(session: str) -> list[tuple[str, str]]:
    """Each command of a session, with its output."""
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", session, re.MULTILINE)


def run_session(site: Site, session: str) -> int:
    """Runs the commands and compares their output. Returns how many commands there were."""
    checked = 0
    for command, shown in commands_of(session):
        if command == SERVE:
            continue
        if command.startswith("export "):
            site.exported |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            continue
        assert command.startswith("drillcore ")
        output = site.run(["-m", "drillcore", *shlex.split(command)[1:]])
        assert normalised(output) == normalised(shown), command
        checked += 1
    return checked


def run_page(site: Site, blocks: list[Block]) -> int:
    checked = 0
    for place, block in enumerate(blocks):
        if block.file:
            (site.directory / block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "console" and "$ drillcore " in block.text:
            checked += run_session(site, block.text)
        if block.kind == "python":
            following = blocks[place + 1]
            assert following.kind == "text", "a snippet is followed by its output"
            output = site.run(["-c", block.text.replace("127.0.0.1:7600", site.address)])
            assert normalised(output) == normalised(following.text), block.text
            checked += 1
    return checked


def test_the_sessions_and_snippets_print_what_their_pages_show(site: Site) -> None:
    assert sum(run_page(site, blocks_of(page)) for page in PAGES) == 30


def test_every_guide_is_run() -> None:
    assert {ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")} == set(PAGES)


def test_the_settings_on_the_pages_are_accepted(tmp_path: Path) -> None:
    documents = [block.text for page in DOCUMENTS for block in blocks_of(page) if block.kind == "toml"]
    assert len(documents) >= 2
    for document in documents:
        file = tmp_path / "drillcore.toml"
        file.write_text(document)
        load_settings(file, {})
        load_client_settings(file, {})


def test_every_test_named_as_a_proof_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "reference" / "promises.md"):
        named = re.findall(r"`(tests/[\w/.]+)`", page.read_text("utf-8"))
        assert len(named) >= 8
        assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documents = "".join(page.read_text("utf-8") for page in DOCUMENTS)
    targets = set(re.findall(r"[`$ ]make ([a-z]+)(?=`| +#)", documents))
    assert {"run", "test"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
