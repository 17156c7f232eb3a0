"""The command line against a real server: its output in any terminal, and after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.callers.knowledge import Caller, File
from tests.support.data.texts import notice
from tests.support.fixtures import new_corpus
from tests.support.processes.children import gone_afterwards
from tests.support.servers.running import ACME, ACME_ID, create_tenants, running

DOCUMENTS = 60


@dataclass(frozen=True)
class Terminal:
    """Runs commands in a directory of its own, against a server with an empty corpus."""

    directory: Path
    caller: Caller
    corpus: str
    environment: Mapping[str, str]

    @contextmanager
    def started(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "drillcore", *arguments, "--corpus", self.corpus],
            cwd=self.directory,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with gone_afterwards(process):
            yield process

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        """Runs a command and returns its exit code, stdout and stderr."""
        with self.started(*arguments, **environment) as process:
            out, err = process.communicate(stdin.encode(), timeout=300)
        return process.returncode, out.decode(environment.get("PYTHONIOENCODING", "utf-8")), err.decode()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    directory = tmp_path / "here"
    directory.mkdir()
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DRILLCORE_")}
        settings = {
            "DRILLCORE_CLIENT_ADDRESS": server.address,
            "DRILLCORE_CLIENT_TOKEN": ACME,
            "DRILLCORE_CLIENT_TENANT_ID": str(ACME_ID),
        }
        yield Terminal(directory, caller, new_corpus(server), {**kept, **settings, "HOME": str(directory)})
        caller.close()


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_stopped_ingestion_continues_where_it_was(terminal: Terminal, how: signal.Signals) -> None:
    folder = terminal.directory / "notices"
    folder.mkdir()
    for number in range(DOCUMENTS):
        (folder / f"{number:02}.txt").write_text(notice(number))
    command = ["ingest", "notices", "--batch-mb", "0.002"]
    with terminal.started(*command) as stopped:
        assert eventually(lambda: terminal.caller.head(terminal.corpus) >= 2)
        stopped.send_signal(how)
        _, err = stopped.communicate(timeout=60)
    before = len(terminal.caller.list_documents(terminal.corpus))
    assert 0 < before < DOCUMENTS
    assert stopped.returncode == (1 if how is signal.SIGINT else -signal.SIGKILL)
    assert how is signal.SIGKILL or b"run the same command again" in err
    code, out, _ = terminal.run(*command, "--json")
    done = json.loads(out)
    assert (code, done["added"] + done["unchanged"], done["updated"], done["failed"]) == (0, DOCUMENTS, 0, 0)
    sources = [document.source_id for document in terminal.caller.list_documents(terminal.corpus)]
    assert sorted(sources) == [f"notices/{number:02}.txt" for number in range(DOCUMENTS)]


@pytest.mark.parametrize("encoding", ["latin-1", "koi8-r", "utf-8"])
def test_a_character_that_the_terminal_lacks_is_shown_by_its_number(terminal: Terminal, encoding: str) -> None:
    terminal.caller.add(terminal.corpus, File("ü.txt", "Über die Prüfung von 薬 shall be kept — always."))
    for command in (["documents"], ["query", "薬"], ["query", "薬", "--json"]):
        code, out, err = terminal.run(*command, PYTHONIOENCODING=encoding)
        assert (code, err) == (0, ""), command
        assert len(out.splitlines()) > 1


def test_a_reader_who_closes_the_pipe_sees_no_error(terminal: Terminal) -> None:
    terminal.caller.add(terminal.corpus, *(File(f"{number}.txt", notice(number)) for number in range(30)))
    with terminal.started("documents", "--all") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.wait(timeout=60)


def test_a_list_without_entries_says_so(terminal: Terminal) -> None:
    assert terminal.run("documents") == (0, "no documents\n", "")
    assert terminal.run("query", "anything") == (0, "no hits\n", "")


def test_a_document_is_updated_from_a_file_or_stdin(terminal: Terminal) -> None:
    terminal.caller.add(terminal.corpus, File("a.txt", notice(1), metadata={"k": "v"}))
    (terminal.directory / "new.txt").write_text(notice(2))
    code, out, _ = terminal.run("update", "new.txt", "--source", "a.txt", "--expected-version", "1")
    assert (code, out.split(":")[0]) == (0, "updated")
    code, out, _ = terminal.run("update", "new.txt", "--source", "a.txt")
    assert (code, out.split(":")[0]) == (0, "unchanged")
    (document,) = terminal.caller.list_documents(terminal.corpus)
    assert (document.metadata, terminal.caller.text(terminal.corpus, document.id)) == ({"k": "v"}, notice(2))
    code, out, _ = terminal.run("update", "-", "--document", document.id, "--set", "k=w", "--json", stdin=notice(3))
    assert (code, json.loads(out)["source_version"]) == (0, 3)
    (document,) = terminal.caller.list_documents(terminal.corpus)
    assert (document.metadata, terminal.caller.text(terminal.corpus, document.id)) == ({"k": "w"}, notice(3))


def test_a_failed_update_says_why(terminal: Terminal) -> None:
    terminal.caller.add(terminal.corpus, File("a.txt", notice(1)))
    (terminal.directory / "new.txt").write_text(notice(2))
    (terminal.directory / "empty.txt").write_text("")
    for arguments, code, reason in (
        (["new.txt", "--source", "b.txt"], 1, "DOCUMENT_NOT_FOUND"),
        (["new.txt", "--source", "a.txt", "--expected-version", "7"], 1, "VERSION_MISMATCH"),
        (["empty.txt", "--source", "a.txt"], 1, "UNPARSABLE"),
        (["new.txt"], 2, "INVALID_USAGE"),
        (["new.txt", "--source", "a.txt", "--document", terminal.corpus], 2, "INVALID_USAGE"),
        (["missing.txt", "--source", "a.txt"], 2, "INVALID_USAGE"),
    ):
        done = terminal.run("update", *arguments, "--json")
        assert (done[0], json.loads(done[1])["error"]["reason"]) == (code, reason)
    assert terminal.caller.head(terminal.corpus) == 1
