"""`drillcore fact`, `community`, `source` and `embeddings` against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore import Client, NewDocument
from drillcore.cli import main
from tests.support.servers.running import ACME, Running, create_tenants, running

Run = Callable[..., Result]
Answer = Callable[..., Any]

KEPT = "The sponsor keeps the training records of every site for {} years after the end of the trial."
STORED = "Vials of the vaccine are stored in freezer {} at eighty degrees below zero until they are used."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def acme(server: Running) -> Client:
    client = server.client(ACME)
    client.create_corpus("rules")
    return client


@pytest.fixture
def run(server: Running, acme: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    environment = {"HOME": str(here), "NO_COLOR": "1", "DRILLCORE_CLIENT_ADDRESS": server.address}

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env={**environment, "DRILLCORE_CLIENT_TOKEN": ACME}).invoke(main, arguments, input=text)

    return run


@pytest.fixture
def answer(run: Run) -> Answer:
    def answer(*arguments: str, **options: Any) -> Any:
        result = run(*arguments, "--json", **options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return answer


def reason(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return str(json.loads(result.stdout)["error"]["reason"])


def put(answer: Answer, *contents: str) -> list[str]:
    lines = "".join(json.dumps({"content": content, "sourceId": "sop-7"}) + "\n" for content in contents)
    return list(answer("fact", "put", "-", "--corpus", "rules", text=lines)["fact_ids"])


def test_a_fact_is_put_found_updated_and_deleted(run: Run, answer: Answer) -> None:
    kept, stored = put(answer, KEPT.format("five"), STORED.format("twelve"))
    listed = answer("fact", "list", "--corpus", "rules", "--source", "sop-7", "--all")["facts"]
    assert {fact["id"] for fact in listed} == {kept, stored}
    found = answer("fact", "search", "how long are training records kept", "--corpus", "rules", "--exact")
    assert (found["hits"][0]["fact"]["id"], found["exact"]) == (kept, True)
    changed = answer("fact", "update", kept, "--content", KEPT.format("ten"), "--set", "checked=yes", "--ttl", "P1Y")
    (shown,) = answer("fact", "get", kept)["facts"]
    assert (shown["content"], shown["metadata"], shown["ttl"]) == (KEPT.format("ten"), {"checked": "yes"}, "P1Y")
    assert (shown["version"], shown["revision"]) == (changed["version"], changed["revision"])
    assert answer("fact", "status", "stale", kept)["changed"] == 1
    assert reason(run("fact", "status", "quarantined", kept, "--reason", "no", "--json")) == "ILLEGAL_TRANSITION"
    assert run("fact", "status", "deleted", kept).stdout.startswith("1 fact now deleted; revision ")
    hits = answer("fact", "search", "how long are training records kept", "--corpus", "rules")["hits"]
    assert [hit["fact"]["id"] for hit in hits] == [stored]


def test_restored_facts_are_found_again(run: Run, answer: Answer) -> None:
    (fact,) = put(answer, KEPT.format("five"))
    assert answer("fact", "archive", fact)["changed"] == 1
    assert run("fact", "search", "training records").stdout == "no hits\n"
    assert "archived" in run("fact", "list", "--corpus", "rules").stdout
    assert answer("fact", "restore", fact)["changed"] == 1
    assert fact in run("fact", "search", "training records").stdout


def test_the_state_changes_with_every_change(answer: Answer) -> None:
    (fact,) = put(answer, KEPT.format("five"))
    before = answer("fact", "state", "rules")
    assert before["corpora"][0]["facts"] == 1
    assert answer("fact", "state", "rules") == before
    answer("fact", "update", fact, "--content", KEPT.format("ten"))
    after = answer("fact", "state", "rules")
    assert after["corpora"][0]["revision"] > before["corpora"][0]["revision"]
    assert after["corpora"][0]["hash"] != before["corpora"][0]["hash"]
    assert after["combined_hash"] != before["combined_hash"]


def test_a_refused_put_says_why_and_can_be_repeated(run: Run, answer: Answer) -> None:
    assert reason(run("fact", "put", "--corpus", "rules", "--content", "Short.", "--source", "s", "--json")) == (
        "FACT_TOO_SHORT"
    )
    text = json.dumps({"content": KEPT.format("five"), "sourceId": "s"}) + "\n"
    again = [answer("fact", "put", "-", "--corpus", "rules", "--request-id", "r", text=text) for _ in range(2)]
    assert again[0] == again[1]
    assert len(answer("fact", "list", "--corpus", "rules")["facts"]) == 1


def test_communities_are_computed_listed_and_shown(run: Run, answer: Answer) -> None:
    put(answer, *(KEPT.format(number) for number in range(5)), *(STORED.format(number) for number in range(4)))
    assert run("community", "list", "--corpus", "rules").stdout == "no communities\n"
    done = answer("community", "recompute", "--corpus", "rules")
    assert (done["changed"], done["run"]["facts"], done["run"]["communities"]) == (True, 9, 2)
    listed = answer("community", "list", "--corpus", "rules")
    assert [community["size"] for community in listed["communities"]] == [5, 4]
    largest = listed["communities"][0]
    shown = answer("community", "show", largest["id"], "--corpus", "rules", "--all")
    assert {fact["content"] for fact in shown["facts"]} == {KEPT.format(number) for number in range(5)}
    assert largest["label"] in run("community", "show", largest["id"], "--corpus", "rules").stdout
    assert answer("community", "recompute", "--corpus", "rules")["changed"] is False
    found = answer("fact", "search", "training records", "--community", largest["id"])["hits"]
    assert {hit["fact"]["community_label"] for hit in found} == {largest["label"]}


def test_a_source_is_listed_shown_and_erased(run: Run, answer: Answer, acme: Client) -> None:
    corpus = acme.get_corpus(name="rules").id
    texts = {"kept.txt": KEPT.format("five"), "stored.txt": STORED.format("twelve")}
    acme.add_documents(corpus, [NewDocument(name, text.encode()) for name, text in texts.items()])
    listed = answer("source", "list", "--corpus", "rules")["sources"]
    assert sorted((source["id"], source["fact_count"]) for source in listed) == [("kept.txt", 1), ("stored.txt", 1)]
    assert answer("source", "show", "kept.txt", "--corpus", "rules")["title"] == "kept"
    refused = run("source", "erase", "kept.txt", "--corpus", "rules", "--reason", "Art. 17", text="n\n")
    assert refused.exit_code == 1
    assert len(answer("source", "list", "--corpus", "rules")["sources"]) == 2
    erased = answer("source", "erase", "kept.txt", "--corpus", "rules", "--reason", "Art. 17", "--yes")
    assert (erased["documents"], erased["facts"], erased["purged_at"]) == (1, 1, None)
    assert reason(run("source", "erase", "kept.txt", "--corpus", "rules", "--reason", "x", "--yes", "--json")) == (
        "SOURCE_ERASED"
    )
    assert "five" not in run("fact", "search", "training records").stdout
    assert answer("source", "purge", "--corpus", "rules")["erasures"] == 1
    (listed,) = answer("source", "erasures", "--corpus", "rules")["erasures"]
    assert (listed["id"], listed["purged_at"] is None) == (erased["id"], False)
    again = run("source", "erase", "stored.txt", "--corpus", "rules", "--reason", "Art. 17", "--now", text="y\n")
    assert again.stdout.startswith("erased 1 document, 1 chunk, 1 fact: revision ")


def test_the_model_of_a_corpus_is_shown_and_a_migration_to_it_does_nothing(run: Run, answer: Answer) -> None:
    put(answer, KEPT.format("five"))
    shown = answer("embeddings", "show", "--corpus", "rules")
    assert (shown["current"]["dimensions"] > 0, shown["next"]) == (True, None)
    done = answer("embeddings", "migrate", "--corpus", "rules")
    assert (done["finished"], done["migration"]["current"]) == (True, shown["current"])
    assert shown["current"]["name"] in run("embeddings", "migrate", "--corpus", "rules").stdout
