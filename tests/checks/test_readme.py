"""The README's sessions, snippets and settings are run as they stand, and its tables name what exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from drillcore._client_settings import load_client_settings
from drillcore_server.config import load_settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SERVE = "drillcore serve --data-dir ./data &"


@dataclass
class Site:
    """A directory with a server in it, as a reader of the README has it."""

    directory: Path
    address: str

    def run(self, arguments: list[str]) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DRILLCORE_")}
        environment |= {
            "DRILLCORE_CLIENT_ADDRESS": self.address,
            "DRILLCORE_CLIENT_TOKEN_FILE": "data/operator.token",
            "TZ": "UTC",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        ).stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("readme")
    flags = [*shlex.split(SERVE)[1:-1], "--listen", "127.0.0.1:0", "--metrics-listen", "", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "drillcore", *flags], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    document = b""
    while not document.endswith(b"\n}\n"):
        line = process.stdout.readline()
        assert line, "the server ended before it was ready"
        document += line
    yield Site(directory, f"127.0.0.1:{json.loads(document)['serving']['port']}")
    process.terminate()
    assert process.wait(timeout=30) == 0
    process.stdout.close()


def normalised(text: str) -> str:
    """Without what differs from run to run: ids, times, and hashes of what has them in it."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?\+00:00", "<time>", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def run_session(site: Site, session: str) -> int:
    """Runs the commands and compares what they print; how many there were."""
    checked = 0
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", session, re.MULTILINE):
        if command == SERVE or command.startswith("export "):
            continue
        assert command.startswith("drillcore ")
        output = site.run(["-m", "drillcore", *shlex.split(command)[1:]])
        assert normalised(output) == normalised(shown), command
        checked += 1
    return checked


def test_the_session_and_the_snippets_print_what_the_readme_shows(site: Site) -> None:
    checked = 0
    for place, (kind, text) in enumerate(BLOCKS):
        if kind == "console" and "$ drillcore " in text:
            checked += run_session(site, text)
        if kind == "jsonl":
            (site.directory / "hierarchy.jsonl").write_text(text, encoding="utf-8")
        if kind == "python":
            following, expected = BLOCKS[place + 1]
            assert following == "text", "a snippet is followed by its output"
            output = site.run(["-c", text.replace("127.0.0.1:7600", site.address)])
            assert normalised(output) == normalised(expected), text
            checked += 1
    assert checked == 22


def test_the_settings_shown_are_accepted(tmp_path: Path) -> None:
    documents = [text for kind, text in BLOCKS if kind == "toml"]
    assert documents
    for document in documents:
        file = tmp_path / "drillcore.toml"
        file.write_text(document)
        load_settings(file, {})
        load_client_settings(file, {})


def test_every_test_named_as_a_proof_exists() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", README)
    assert len(named) >= 8
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documents = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"[`$ ]make ([a-z]+)(?=`| +#)", documents))
    assert {"run", "test"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
