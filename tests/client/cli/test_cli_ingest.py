"""`drillcore ingest`: which files it takes, how it sends them, and its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore import DocumentOutcome, OutcomeKind, Progress
from drillcore.cli import main
from drillcore.cli.commands.ingest import IngestProgress
from drillcore.cli.commands.ingest_files import DOCUMENTS_MAX, Given, InputFile, Item, batches, request_id
from drillcore_proto.reasons import Reason
from tests.support.processes.children import gone_afterwards
from tests.support.servers.in_memory_server import Hierarchy, Peer, because, running

TENANT = "11111111-1111-1111-1111-111111111111"
CORPUS = "22222222-2222-2222-2222-222222222222"

Run = Callable[..., Result]
Ingest = Callable[..., Any]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def environment(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of commands that call the peer, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    address = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "DRILLCORE_CLIENT_TENANT_ID": TENANT}
    return {**address, "HOME": str(tmp_path), "NO_COLOR": "1"}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, ["ingest", *arguments, "--corpus", CORPUS], input=stdin)

    return run


@pytest.fixture
def ingest(run: Run) -> Ingest:
    """Ingests with --json and returns the document."""

    def ingest(*arguments: str, stdin: bytes | None = None) -> Any:
        result = run(*arguments, "--json", stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    return ingest


def corpus(peer: Peer) -> Hierarchy:
    return peer.hierarchy(CORPUS)


def write(*paths: str, text: str = "text of {}") -> None:
    for path in map(Path, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(path.name))


def uploads(peer: Peer) -> list[str]:
    """The request ids of the uploads."""
    return [metadata["drillcore-request-id"] for path, metadata in peer.seen if path.endswith("AddDocuments")]


def test_a_folder_is_taken_with_everything_below_it_except_hidden_files(ingest: Ingest, peer: Peer) -> None:
    write("docs/b.txt", "docs/deep/er/a.txt", "docs/.hidden.txt", "docs/.git/config", "other.txt")
    result = ingest("docs")
    assert list(corpus(peer).documents) == ["docs/b.txt", "docs/deep/er/a.txt"]
    assert (result["added"], result["revision"], result["batches"]) == (2, 1, 1)
    assert [document["name"] for document in result["documents"]] == ["docs/b.txt", "docs/deep/er/a.txt"]


def test_a_hidden_file_is_taken_if_it_is_named(ingest: Ingest, peer: Peer) -> None:
    write(".notes.txt")
    ingest(".notes.txt")
    assert list(corpus(peer).documents) == [".notes.txt"]


def test_a_pattern_stands_for_the_files_that_it_matches(ingest: Ingest, peer: Peer) -> None:
    write("docs/a.txt", "docs/b.md", "docs/deep/c.txt", "docs/.d.txt")
    ingest("docs/**/*.txt")
    assert list(corpus(peer).documents) == ["docs/a.txt", "docs/deep/c.txt"]


def test_a_file_given_twice_is_sent_once(ingest: Ingest, peer: Peer, tmp_path: Path) -> None:
    write("docs/a.txt")
    assert ingest("docs", "docs/a.txt", "./docs/../docs/*.txt", str(tmp_path / "docs"))["added"] == 1


def test_documents_are_named_by_their_path_below_the_base(ingest: Ingest, peer: Peer, tmp_path: Path) -> None:
    write("base/docs/a.txt", "outside.txt")
    ingest("base/docs", "outside.txt", "--base", "base")
    assert sorted(corpus(peer).documents) == sorted([f"{tmp_path.as_posix()}/outside.txt", "docs/a.txt"])


def test_stdin_is_taken_under_its_name(ingest: Ingest, peer: Peer) -> None:
    ingest("-", "--name", "report.txt", stdin=b"from a pipe")
    (document,) = corpus(peer).documents.values()
    assert (document.source_id, corpus(peer).texts[document.id]) == ("report.txt", "from a pipe")


def test_media_type_and_metadata_are_sent(ingest: Ingest, peer: Peer) -> None:
    write("a")
    ingest("a", "--media-type", "text/html", "--set", "phase=2")
    (document,) = corpus(peer).documents.values()
    assert (document.media_type, dict(document.metadata)) == ("text/html", {"phase": "2"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.txt"], "no file or folder matches 'missing.txt'"),
        (["*.nothing"], "no file or folder matches '*.nothing'"),
        (["-"], "--name"),
        (["a.txt", "--name", "x"], "--name is for the document from stdin"),
        (["a.txt", "--batch-mb", "0"], "--batch-mb"),
    ],
)
def test_wrong_usage_makes_no_call(run: Run, peer: Peer, arguments: list[str], message: str) -> None:
    write("a.txt")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert peer.seen == []


def test_each_batch_is_a_revision_and_atomic_makes_a_single_revision(ingest: Ingest, peer: Peer) -> None:
    write(*(f"docs/{name}.txt" for name in "abcde"), text="x" * 400)
    assert ingest("docs", "--batch-mb", "0.001")["batches"] == 3
    assert [revision.documents_added for revision in corpus(peer).history] == [2, 2, 1]
    write(*(f"docs/{name}.txt" for name in "abcde"), text="y" * 400)
    assert ingest("docs", "--batch-mb", "0.001", "--atomic")["batches"] == 1
    assert corpus(peer).history[-1].documents_added == 5


def items(sizes: list[int]) -> list[Item]:
    return [Item(InputFile(str(number), size, Path()), b"") for number, size in enumerate(sizes)]


def test_batches_keep_order_and_size_and_a_large_file_is_its_own_batch() -> None:
    found = batches(items([3, 3, 4, 20, 1, 1]), 10)
    assert [[item.file.size_bytes for item in batch] for batch in found] == [[3, 3, 4], [20], [1, 1]]
    assert [len(batch) for batch in batches(items([0] * (DOCUMENTS_MAX + 1)), 10)] == [DOCUMENTS_MAX, 1]
    assert [len(batch) for batch in batches(items([9] * (DOCUMENTS_MAX + 1)), None)] == [DOCUMENTS_MAX + 1]
    assert list(batches([], 10)) == []


def test_a_request_is_named_by_corpus_state_and_content() -> None:
    file, given = InputFile("a", 1, Path()), Given("", {})
    name = request_id(uuid.UUID(CORPUS), 1, (Item(file, b"1"),), given)
    assert name == request_id(uuid.UUID(CORPUS), 1, (Item(file, b"1"),), given)
    changed = [
        request_id(uuid.UUID(TENANT), 1, (Item(file, b"1"),), given),
        request_id(uuid.UUID(CORPUS), 2, (Item(file, b"1"),), given),
        request_id(uuid.UUID(CORPUS), 1, (Item(file, b"2"),), given),
        request_id(uuid.UUID(CORPUS), 1, (Item(InputFile("b", 1, Path()), b"1"),), given),
        request_id(uuid.UUID(CORPUS), 1, (Item(file, b"1"),), Given("text/html", {})),
        request_id(uuid.UUID(CORPUS), 1, (Item(file, b"1"),), Given("", {"k": "v"})),
    ]
    assert len({name, *changed}) == 7


def test_an_unanswered_batch_is_sent_again_under_its_request_id_and_added_once(
    ingest: Ingest, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    write("docs/a.txt", "docs/b.txt")
    unavailable = because(Reason.OUTCOME_UNKNOWN)
    calls = iter([unavailable, unavailable])
    peer.on_part = lambda part, context: next(calls, lambda _: None)(context) if part.data else None
    assert ingest("docs")["added"] == 2
    assert len(uploads(peer)) == 3
    assert len(set(uploads(peer))) == 1
    assert corpus(peer).revision == 1


def test_a_second_run_sends_only_changed_files(ingest: Ingest, peer: Peer) -> None:
    write("docs/a.txt", "docs/b.txt")
    ingest("docs")
    again = ingest("docs")
    assert (again["unchanged"], again["added"], again["revision"]) == (2, 0, 1)
    write("docs/b.txt", "docs/c.txt", text="changed")
    changed = ingest("docs")
    assert (changed["unchanged"], changed["updated"], changed["added"], changed["revision"]) == (1, 1, 1, 2)


def test_a_removed_document_is_added_again(ingest: Ingest, peer: Peer) -> None:
    write("a.txt")
    ingest("a.txt")
    corpus(peer).documents.clear()
    corpus(peer).commit("", "RemoveDocuments", 0, 1)
    assert ingest("a.txt")["added"] == 1
    assert list(corpus(peer).documents) == ["a.txt"]


def test_people_see_outcomes_and_the_reasons_of_failures(run: Run) -> None:
    write("docs/a.txt", "docs/b.txt")
    write("docs/empty.txt", text="")
    result = run("docs")
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        "failed: docs/empty.txt: EMPTY: there is nothing in it",
        "2 added, 0 updated, 0 unchanged, 1 failed; revision 1",
    ]


def test_names_of_files_cannot_control_the_terminal(run: Run) -> None:
    write("\x1b[31mred.txt", text="")
    shown = run("\x1b[31mred.txt").stdout
    assert "\\x1b[31mred.txt" in shown
    assert "\x1b" not in shown


def test_files_that_cannot_be_sent_are_reported_and_the_others_are_added(run: Run, peer: Peer) -> None:
    write("docs/a.txt")
    Path("docs/dangling.txt").symlink_to("nowhere")
    Path(os.fsdecode(b"docs/\xff.txt")).write_text("text")
    os.mkfifo("docs/pipe")
    result = run("docs", "--json")
    assert result.exit_code == 1
    failed = [document for document in json.loads(result.stdout)["documents"] if document["kind"] == "failed"]
    assert sorted(document["reason"] for document in failed) == ["INVALID_NAME", "UNREADABLE"]
    assert list(corpus(peer).documents) == ["docs/a.txt"]


def test_a_failure_says_what_is_stored_and_how_to_continue(run: Run, peer: Peer) -> None:
    write(*(f"docs/{name}.txt" for name in "abc"), text="x" * 800)
    full = because(Reason.STORE_FULL, "no room")
    peer.on_part = lambda part, context: full(context) if part.header.name == "docs/c.txt" else None
    result = run("docs", "--batch-mb", "0.001")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "STORE_FULL: no room (batches stored before it: 2, up to revision 2; to continue, run "
    )
    assert uploads(peer)[-1] in result.stderr
    peer.on_part = lambda _part, _context: None
    assert "1 added, 0 updated, 2 unchanged" in run("docs", "--batch-mb", "0.001").stdout


def test_a_file_that_changes_while_it_is_sent_is_not_added(
    run: Run, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.txt")
    monkeypatch.setattr(InputFile, "digest", lambda _: b"what it held before")
    result = run("a.txt")
    assert (result.exit_code, corpus(peer).documents) == (1, {})
    assert result.stderr.startswith("FILE_CHANGED: a.txt changed while it was being sent")


def test_a_file_that_vanishes_before_it_is_sent_is_reported_without_a_traceback(
    run: Run, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.txt")
    digest = InputFile.digest

    def vanish(file: InputFile) -> bytes:
        found = digest(file)
        Path("a.txt").unlink()
        return found

    monkeypatch.setattr(InputFile, "digest", vanish)
    result = run("a.txt")
    assert (result.exit_code, corpus(peer).documents) == (1, {})
    assert result.stderr.startswith("UNREADABLE: a file can no longer be read")


def test_an_unknown_corpus_is_reported_plainly(environment: dict[str, str]) -> None:
    write("a.txt")
    result = CliRunner(env=environment).invoke(main, ["ingest", "a.txt", "--corpus", "nothing"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("CORPUS_NOT_FOUND: there is no such thing (request ")


def test_an_interruption_leaves_a_clear_message_and_no_traceback(environment: dict[str, str], peer: Peer) -> None:
    write("docs/a.txt", "docs/b.txt", text="x" * 800)
    program = Path(sys.executable).with_name("drillcore")
    command = [program, "ingest", "docs", "--corpus", CORPUS, "--batch-mb", "0.001"]
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def interrupt(part: Any, _context: object) -> None:
        if part.header.name == "docs/b.txt":
            started.send_signal(signal.SIGINT)
            started.wait(30)

    peer.on_part = interrupt
    with gone_afterwards(started) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.startswith("ABORTED: you stopped it; the batch that was being sent may be stored or not")
    assert "batches stored before it: 1," in stderr
    assert "run the same command again" in stderr
    assert "Traceback" not in stderr


def test_progress_counts_finished_documents_and_never_more_than_were_sent() -> None:
    batch = tuple(Item(InputFile(name, 100, Path()), b"") for name in "ab")
    progress = IngestProgress(400, 4, shown=False)
    task = progress._progress.tasks[0]
    progress.begin(batch)
    progress.sent(150)
    assert task.completed == 0
    progress.event(DocumentOutcome("a", OutcomeKind.UNCHANGED, None, "", ""))
    assert task.completed == 100
    progress.event(Progress(1, 70))
    assert task.completed == 150
    progress.end(batch)
    assert (task.completed, task.fields["documents"]) == (200, 2)
