"""Commands that read a corpus's hierarchy or remove documents, with output for people and as JSON."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore import Client, NewDocument
from drillcore.cli import main
from tests.support.servers.in_memory_server import Hierarchy, Peer, running

TENANT = "11111111-1111-1111-1111-111111111111"
TEXTS = {"a.txt": "Keep the\naudit trail.", "b.txt": "Sign the record.", "c.txt": "Report within 15 days."}

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def rules(peer: Peer) -> Hierarchy:
    """A corpus named rules with three documents."""
    with Client(peer.address, tenant_id=TENANT) as client:
        corpus = client.create_corpus("rules")
        client.add_documents(corpus.id, [NewDocument(name, text.encode()) for name, text in TEXTS.items()])
    peer.seen.clear()
    peer.requests.clear()
    return peer.hierarchy(str(corpus.id))


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    address = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "DRILLCORE_CLIENT_TENANT_ID": TENANT}
    environment = {**address, "HOME": str(tmp_path), "NO_COLOR": "1", "TZ": "UTC"}

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=text)

    return run


@pytest.fixture
def answer(run: Run) -> Answer:
    def answer(*arguments: str) -> Any:
        result = run(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    return answer


def chunk_of(rules: Hierarchy, source: str) -> str:
    return rules.id(f"chunk {rules.documents[source].id}")


def test_documents_are_listed(run: Run, answer: Answer, rules: Hierarchy) -> None:
    first = answer("documents", "--corpus", "rules")
    assert ([document["source_id"] for document in first["documents"]], first["next_page_token"]) == (
        ["a.txt", "b.txt"],
        "2",
    )
    every = answer("documents", "--corpus", rules.corpus_id, "--all")
    assert [document["source_id"] for document in every["documents"]] == list(TEXTS)
    shown = run("documents", "--corpus", "rules").stdout
    assert shown.splitlines()[1].split()[:5] == [rules.documents["a.txt"].id, "a.txt", "1", "text/plain", "1"]


def test_documents_are_removed_after_a_confirmation(run: Run, rules: Hierarchy) -> None:
    ids = [rules.documents[name].id for name in ("a.txt", "b.txt")]
    refused = run("remove", *ids, "--corpus", "rules", text="n\n")
    assert (refused.exit_code, len(rules.documents)) == (1, 3)
    assert "Remove 2 documents from rules?" in refused.stderr
    done = run("remove", *ids, "--corpus", "rules", "--yes")
    assert (done.exit_code, done.stdout) == (0, "removed 2 documents: revision 2\n")
    assert list(rules.documents) == ["c.txt"]


def test_a_removal_sends_its_request_id(answer: Answer, rules: Hierarchy, peer: Peer) -> None:
    found = rules.documents["a.txt"].id
    removed = answer("remove", found, "--corpus", rules.corpus_id, "--yes", "--request-id", "r1")
    assert removed == {"revision": 2, "removed": 1}
    assert peer.request_ids() == ["r1"]


def test_a_query_finds_chunks_by_text(run: Run, answer: Answer, rules: Hierarchy) -> None:
    found = answer("query", "Sign", "--corpus", "rules")
    assert [(hit["score"], hit["node"]["content"]["source_id"]) for hit in found["hits"]] == [(0.5, "b.txt")]
    assert found["revisions"] == {rules.corpus_id: 1}
    lines = run("query", "Sign").stdout.splitlines()
    assert lines[0].split() == ["id", "score", "chunk"]
    assert lines[1].split(maxsplit=2) == [chunk_of(rules, "b.txt"), "0.500", "b.txt: Sign the record."]


def test_a_query_sends_its_filters(answer: Answer, rules: Hierarchy, peer: Peer) -> None:
    document = str(uuid.uuid4())
    answer(
        *("query", "--level", "2", "--corpus", rules.corpus_id, "--category", "records", "--category", "audit"),
        *("--entity", "date", "--entity", "regulation=21 CFR 11=x", "--document", document, "--source", "a.txt"),
        *("--created-after", "2026-01-02T03:04:05+02:00", "--as-of", "7"),
    )
    (request,) = peer.requests
    assert (request.level, request.text, request.as_of.revision) == (3, "", 7)
    filters = request.filters
    assert (filters.categories, filters.document_ids, filters.source_ids) == (
        ["records", "audit"],
        [document],
        ["a.txt"],
    )
    assert [(entity.type, entity.value) for entity in filters.entities] == [("date", ""), ("regulation", "21 CFR 11=x")]
    assert filters.created_after.ToJsonString() == "2026-01-02T01:04:05Z"


@pytest.mark.parametrize(("level", "number"), [("raw", 1), ("0", 1), ("Chunk", 2), ("SECTION", 3), ("3", 4)])
def test_a_level_is_given_by_name_or_number(
    answer: Answer, rules: Hierarchy, peer: Peer, level: str, number: int
) -> None:
    answer("query", "--level", level)
    assert peer.requests[-1].level == number


def test_a_moment_is_a_revision_or_a_time_that_is_local_by_default(
    answer: Answer, peer: Peer, rules: Hierarchy
) -> None:
    answer("query", "--as-of", "3")
    answer("query", "--as-of", "2026-01-31T12:00:00Z")
    answer("query", "--as-of", "2026-01-31")
    by_revision, by_time, by_day = (request.as_of for request in peer.requests)
    assert by_revision.revision == 3
    assert by_time.time.ToDatetime(UTC) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert by_day.time.ToDatetime(UTC) == datetime(2026, 1, 31).astimezone(UTC)


def test_drilling_lists_the_nodes_below(run: Run, answer: Answer, rules: Hierarchy) -> None:
    master = rules.id("master")
    every = answer("drill", master, "--to", "raw", "--all")
    assert [node["content"]["content"] for node in every["nodes"]] == list(TEXTS.values())
    page = run("drill", master, "--to", "chunk").stdout
    assert page.splitlines()[1] == f"{chunk_of(rules, 'a.txt')}  a.txt: Keep the audit trail."
    assert "There are more: --page-token 2, or --all" in page


def test_rolling_up_lists_the_ancestors_and_the_common_one(run: Run, answer: Answer, rules: Hierarchy) -> None:
    chunks = [chunk_of(rules, name) for name in ("a.txt", "b.txt")]
    up = answer("rollup", *chunks, "--to", "section")
    assert ([node["id"] for node in up["nodes"]], up["common"]["id"]) == ([rules.id("section")], rules.id("section"))
    lines = run("rollup", *chunks, "--to", "2").stdout.splitlines()
    assert lines[1] == f"{rules.id('section')}  Records [records] (3 documents, 3 chunks)"
    assert lines[-1].startswith(f"in common: section {rules.id('section')} Records")


def test_the_tree_shows_every_level_with_its_main_fields(run: Run, rules: Hierarchy) -> None:
    lines = run("tree", "rules", "--depth", "4").stdout.splitlines()
    assert lines[0].startswith("rules, revision 1: 3 documents, 1 section, 3 chunks, 11 tokens")
    assert "Records [records] (3 documents, 3 chunks)" in lines[1]
    assert "a.txt: Keep the audit trail." in lines[2]
    assert "Keep the audit trail." in lines[3]
    assert len(lines) == 2 + 2 * 3


def test_the_tree_is_of_a_single_revision_and_within_bounds(
    run: Run, answer: Answer, rules: Hierarchy, peer: Peer
) -> None:
    found = answer("tree", "rules", "--chunks", "2")
    assert {request.as_of.revision for request in peer.requests if hasattr(request, "target")} == {1}
    (section,) = found["children"]
    assert ([child["node"]["content"]["source_id"] for child in section["children"]], section["more"]) == (
        ["a.txt", "b.txt"],
        True,
    )
    assert not found["more"]
    shown = run("tree", "rules", "--chunks", "2").stdout
    assert f"… more: drillcore drill {rules.id('section')} --to chunk" in shown
    assert len(run("tree", "rules", "--depth", "1").stdout.splitlines()) == 1


def test_the_tree_of_an_empty_corpus_says_how_to_fill_it(run: Run, answer: Answer) -> None:
    run("corpus", "create", "empty")
    assert "drillcore ingest PATH... --corpus empty" in run("tree", "empty").stdout
    assert answer("tree", "empty") is None


def test_a_node_is_shown_with_all_its_fields(run: Run, answer: Answer, rules: Hierarchy) -> None:
    rows = [line.split(maxsplit=1) for line in run("show", chunk_of(rules, "a.txt")).stdout.splitlines()]
    shown = {row[0]: row[-1] for row in rows}
    assert (shown["level"], shown["span"], shown["headings"]) == ("chunk (1)", "0-21", "Part A")
    assert ["summary", "Keep the"] in rows
    assert any(row == ["audit", "trail."] for row in rows)
    assert shown["quotes"].startswith("Keep the\\naudit trail. [document ")
    assert shown["entities"] == "date: 2026-01-02"
    assert shown["processing"] == "processor built-in, version 1"
    master = run("show", rules.id("master")).stdout
    assert "obligation: keep it [document " in master
    assert "documents 3, sections 1, chunks 3, raws 3" in master
    assert re.search("^parent id +-$", master, re.MULTILINE)
    raw = answer("show", rules.id(f"raw {rules.documents['a.txt'].id}"))
    assert (raw["level"], raw["content"]["content"]) == (0, TEXTS["a.txt"])
    assert answer("show", chunk_of(rules, "a.txt"), "--embedding")["content"]["embedding"] == [0.5, -0.25]


def test_history_lists_revisions_newest_first(run: Run, answer: Answer, rules: Hierarchy, peer: Peer) -> None:
    run("remove", rules.documents["a.txt"].id, "--corpus", "rules", "--yes")
    found = answer("history", "rules")["revisions"]
    assert [
        (revision["revision"], revision["documents_added"], revision["documents_removed"]) for revision in found
    ] == [
        (2, 0, 1),
        (1, 3, 0),
    ]
    lines = run("history", "--node", rules.id("section")).stdout.splitlines()
    assert lines[0].split() == ["revision", "at", "by", "action", "added", "removed", "sections", "request", "trimmed"]
    assert lines[2].split()[0] == "1"
    assert peer.requests[-1].node_id == rules.id("section")


def test_history_says_which_revisions_are_trimmed(run: Run, answer: Answer, rules: Hierarchy) -> None:
    run("remove", rules.documents["a.txt"].id, "--corpus", "rules", "--yes")
    rules.history[0].trimmed = True
    assert [line.split()[-1] == "yes" for line in run("history", "rules").stdout.splitlines()] == [False, False, True]
    found = answer("history", "rules")
    assert [revision["trimmed"] for revision in found["revisions"]] == [False, True]
    assert found["oldest_revision"] == 2


def test_stored_content_cannot_control_the_terminal(run: Run, rules: Hierarchy, peer: Peer) -> None:
    evil = "\x1b[31mred [bold]x[/bold] :smile:\u202e"
    with Client(peer.address, tenant_id=TENANT) as client:
        client.add_documents(rules.corpus_id, [NewDocument(evil, evil.encode())])
    chunk = chunk_of(rules, evil)
    commands = [
        ["documents", "--corpus", "rules", "--all"],
        ["query", "--all"],
        ["drill", rules.id("master"), "--to", "raw", "--all"],
        ["rollup", chunk, "--to", "chunk"],
        ["tree", "rules", "--depth", "4"],
        ["show", chunk],
        ["show", rules.id("master")],
    ]
    for command in commands:
        result = run(*command)
        assert result.exit_code == 0, command
        assert "\\x1b[31mred [bold]x[/bold] :smile:\\u202e" in result.stdout, command
        assert "\x1b" not in result.stdout, command


@pytest.mark.parametrize(
    "wrong",
    [
        ["query", "--level", "4"],
        ["query", "--level", "page"],
        ["query", "--as-of", "yesterday"],
        ["query", "--as-of", "-1"],
        ["query", "--entity", "=value"],
        ["query", "--entity", "type="],
        ["query", "--document", "no-uuid"],
        ["drill", "no-uuid", "--to", "raw"],
        ["drill", "85c431a6-21db-4e03-a6ae-80662f88f605"],
        ["rollup", "--to", "section"],
        ["show", "no-uuid"],
        ["remove", "--corpus", "rules"],
        ["remove", "85c431a6-21db-4e03-a6ae-80662f88f605"],
        ["documents"],
        ["tree", "rules", "--depth", "5"],
        ["tree", "rules", "--sections", "0"],
        ["history", "--node", "no-uuid"],
        ["history", "rules", "--node", "85c431a6-21db-4e03-a6ae-80662f88f605"],
        ["history"],
    ],
    ids=" ".join,
)
def test_wrong_usage_makes_no_call_and_exits_with_2(run: Run, peer: Peer, wrong: list[str]) -> None:
    plain, as_json = run(*wrong), run(*wrong, "--json")
    assert (plain.exit_code, plain.stdout, as_json.exit_code) == (2, "", 2)
    assert json.loads(as_json.stdout)["error"]["reason"] == "INVALID_USAGE"
    assert peer.seen == []


def test_a_missing_node_is_reported_in_one_line(run: Run) -> None:
    result = run("show", str(uuid.uuid4()))
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert result.stderr.startswith("NODE_NOT_FOUND: there is no node")
