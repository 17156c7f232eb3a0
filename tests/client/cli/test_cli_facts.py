"""`drillcore fact`, `community`, `source`, `watch` and `embeddings`: their requests and their output."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_proto.reasons import REASON_HEADER, Reason
from drillcore_proto.v1 import communities_pb2, embeddings_pb2, events_pb2, facts_pb2, sources_pb2
from tests.support.data.fact_messages import (
    AT,
    COMMUNITY,
    CORPUS,
    FACT,
    LATER,
    RECORD,
    RUN,
    STOPS,
    Script,
    answer,
    community,
    erasure,
    fact,
    progress,
    stamp,
    stored,
)
from tests.support.servers.in_memory_server import Peer, because, running

Run = Callable[..., Result]
IN = ("--corpus", str(CORPUS))


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the peer, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    environment = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path), "NO_COLOR": "1"}

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=text)

    return run


def local(time: datetime) -> str:
    """A time as people see it."""
    return time.astimezone().isoformat(sep=" ", timespec="seconds")


def json_of(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_facts_are_put_from_json_lines(run: Run, peer: Peer, tmp_path: Path) -> None:
    peer.answers["PutFacts"] = stored
    lines = [
        {"content": "Keep it.", "sourceId": "sop-7", "importanceWeight": 0, "ttl": "P1D", "metadata": {"k": "v"}},
        {"content": "Sign it.", "chunkId": str(FACT), "span": {"start": 1, "end": 2}, "embedding": [0.5]},
    ]
    text = "\n\n".join(map(json.dumps, lines)) + "\n"
    (tmp_path / "facts.jsonl").write_text(text)
    done = json_of(run("fact", "put", "facts.jsonl", *IN, "--embedding-model", "mine", "--json"))
    assert (len(done["fact_ids"]), done["revisions"]) == (2, [2])
    assert run("fact", "put", "-", *IN, text=text).stdout == "stored 2 facts: revision 2\n"
    first, second = peer.requests
    assert first.facts == second.facts
    assert first.embedding_model == "mine"
    assert (first.facts[0].source_id, first.facts[0].HasField("importance_weight")) == ("sop-7", True)
    assert (first.facts[1].chunk_id, first.facts[1].span.end, list(first.facts[1].embedding)) == (str(FACT), 2, [0.5])


def test_a_fact_is_put_by_flags(run: Run, peer: Peer) -> None:
    peer.answers["PutFacts"] = stored
    flags = ["--source", "sop-7", "--location", "page 3", "--weight", "0.5", "--ttl", "P1D", "--set", "k=v"]
    ids = ["--id", str(FACT), "--chunk", str(RECORD), "--session", "s", "--request-id", "r"]
    result = run("fact", "put", *IN, "--content", "Keep it.", *flags, *ids)
    assert result.stdout.splitlines()[0] == f"fact {FACT}"
    assert result.stdout.splitlines()[1].startswith("kept 1 fact only in session s;")
    (request,) = peer.requests
    assert list(request.facts) == [
        facts_pb2.FactDraft(
            fact_id=str(FACT),
            content="Keep it.",
            source_id="sop-7",
            source_location="page 3",
            importance_weight=0.5,
            ttl="P1D",
            metadata={"k": "v"},
            chunk_id=str(RECORD),
        )
    ]
    assert (request.cache_control, request.session_id, peer.request_ids()) == ("no-store", "s", ["r.0"])


@pytest.mark.parametrize(
    "arguments",
    [[], ["facts.jsonl", "--content", "x"], ["facts.jsonl", "--source", "s"], ["facts.jsonl", "--set", "k=v"]],
    ids=["nothing", "both", "a source beside a file", "metadata beside a file"],
)
def test_a_put_needs_either_a_file_or_flags(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "facts.jsonl").write_text('{"content": "x"}\n')
    assert run("fact", "put", *arguments, *IN).exit_code == 2


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"nobody": "knows this"}', '{"content": 7}'])
def test_a_wrong_line_is_named_and_its_revision_is_not_stored(run: Run, peer: Peer, tmp_path: Path, line: str) -> None:
    (tmp_path / "facts.jsonl").write_text(f'{{"content": "x"}}\n{line}\n')
    result = run("fact", "put", "facts.jsonl", *IN)
    assert (result.exit_code, peer.requests) == (1, [])
    assert result.stderr.startswith("INVALID_LINE: line 2: ")
    assert "stored before it: 0 facts" in result.stderr


def test_a_put_that_stops_halfway_says_what_is_stored_and_how_to_continue(run: Run, peer: Peer, tmp_path: Path) -> None:
    peer.answers["PutFacts"] = stored
    peer.failures = [lambda _: None, because(Reason.STORE_FULL, "no room")]
    (tmp_path / "facts.jsonl").write_text('{"content": "x"}\n' * 2_500)
    result = run("fact", "put", "facts.jsonl", *IN, "--request-id", "r")
    assert result.exit_code == 1
    assert "STORE_FULL: no room (stored before it: 1,000 facts, up to revision 1000; to continue" in result.stderr
    assert "--request-id r" in result.stderr
    assert peer.request_ids() == ["r.0", "r.1"]


def test_facts_are_shown_with_every_field(run: Run, peer: Peer) -> None:
    peer.answers["GetFacts"] = facts_pb2.GetFactsResponse(facts=[fact()], revisions={str(CORPUS): 9})
    document = json_of(run("fact", "get", str(FACT), "--embedding", "--as-of", "9", "--json"))
    (shown,) = document["facts"]
    assert (shown["id"], shown["status"], shown["span"]) == (str(FACT), "STALE", {"start": 3, "end": 9})
    assert (shown["embedding"], shown["revision"]) == ([0.5, -0.25], 9)
    lines = [line.split(maxsplit=1) for line in run("fact", "get", str(FACT)).stdout.splitlines()]
    for line in (["content", "Keep it."], ["status", "stale"], ["span", "3-9"], ["metadata", "k=v"]):
        assert line in lines


def test_facts_are_listed_by_filters(run: Run, peer: Peer) -> None:
    peer.answers["ListFacts"] = facts_pb2.ListFactsResponse(facts=[fact()], next_page_token="more", revision=9)
    filters = ["--source", "sop-7", "--status", "stale", "--status", "active", "--community", str(COMMUNITY)]
    more = ["--where", "k=v", "--ingested-after", "2026-01-02", "--document", str(FACT), "--chunk", str(RECORD)]
    result = run("fact", "list", *IN, *filters, *more)
    shown = f"{FACT} stale, archived, session only sop-7 Keep it."
    assert result.stdout.splitlines()[1].split() == shown.split()
    assert "There are more: --page-token more" in result.stdout
    (request,) = peer.requests
    assert list(request.filters.statuses) == [facts_pb2.FACT_STATUS_STALE, facts_pb2.FACT_STATUS_ACTIVE]
    assert (list(request.filters.source_ids), dict(request.filters.metadata)) == (["sop-7"], {"k": "v"})
    assert (list(request.filters.document_ids), list(request.filters.chunk_ids)) == ([str(FACT)], [str(RECORD)])
    assert request.filters.HasField("ingested_after")
    document = json_of(run("fact", "list", *IN, "--json"))
    assert (document["revision"], document["next_page_token"], len(document["facts"])) == (9, "more", 1)


def test_a_search_shows_scores_and_the_revisions_it_read(run: Run, peer: Peer) -> None:
    peer.answers["SearchFacts"] = facts_pb2.SearchFactsResponse(
        hits=[facts_pb2.FactHit(fact=fact(), score=0.5, stale=True)], revisions={str(CORPUS): 9}, exact=True
    )
    flags = ["--limit", "3", "--exact", "--cache-control", "max-age=60", "--session", "s", "--where", "k=v"]
    result = run("fact", "search", "who keeps it", *IN, *flags)
    assert result.stdout.splitlines()[1].split()[:4] == [str(FACT), "0.500", "stale", "sop-7"]
    (request,) = peer.requests
    assert (request.text, list(request.corpus_ids), request.limit) == ("who keeps it", [str(CORPUS)], 3)
    assert (request.exact, request.cache_control, request.session_id) == (True, "max-age=60", "s")
    document = json_of(run("fact", "search", "who keeps it", "--json"))
    assert (document["revisions"], document["exact"]) == ({str(CORPUS): 9}, True)
    peer.answers["SearchFacts"] = facts_pb2.SearchFactsResponse()
    assert run("fact", "search", "nothing").stdout == "no hits\n"


def test_an_update_sends_only_the_named_fields(run: Run, peer: Peer) -> None:
    peer.answers["UpdateFact"] = facts_pb2.UpdateFactResponse(version=2, revision=9)
    result = run("fact", "update", str(FACT), "--ttl", "", "--set", "a=b", "--unset", "c", "--expected-version", "1")
    assert result.stdout == f"fact {FACT} is at version 2; revision 9\n"
    (request,) = peer.requests
    assert (request.HasField("ttl"), request.HasField("content")) == (True, False)
    assert (dict(request.set_metadata), list(request.remove_metadata)) == ({"a": "b"}, ["c"])
    assert run("fact", "update", str(FACT)).exit_code == 2


def test_a_status_is_set_with_a_recorded_reason(run: Run, peer: Peer) -> None:
    peer.answers["SetFactStatus"] = facts_pb2.SetFactStatusResponse(changed=2, revision=9)
    result = run("fact", "status", "quarantined", str(FACT), str(RECORD), "--reason", "it is wrong")
    assert result.stdout == "2 facts now quarantined; revision 9\n"
    (request,) = peer.requests
    assert (request.status, request.reason) == (facts_pb2.FACT_STATUS_QUARANTINED, "it is wrong")
    assert peer.seen[0][1][REASON_HEADER] == b"it is wrong"
    run("fact", "status", "active", str(FACT), "--signature", str(RECORD))
    assert peer.requests[1].signature_id == str(RECORD)


def test_facts_are_archived_and_restored(run: Run, peer: Peer) -> None:
    peer.answers["ArchiveFacts"] = facts_pb2.ArchiveFactsResponse(archived=1, revision=9)
    peer.answers["RestoreFacts"] = facts_pb2.RestoreFactsResponse(restored=0, revision=9)
    assert run("fact", "archive", str(FACT)).stdout == "1 fact archived; revision 9\n"
    assert json_of(run("fact", "restore", str(FACT), "--json")) == {"changed": 0, "revision": 9}


def test_ending_a_session_ends_its_facts(run: Run, peer: Peer) -> None:
    peer.answers["EndSession"] = facts_pb2.EndSessionResponse(facts_forgotten=2)
    assert run("fact", "end-session", "s").stdout == "2 facts forgotten\n"
    assert json_of(run("fact", "end-session", "s", "--json")) == {"facts_forgotten": 2}
    assert {request.session_id for request in peer.requests} == {"s"}


def test_states_are_shown_with_their_joint_hash(run: Run, peer: Peer) -> None:
    state = facts_pb2.CorpusState(corpus_id=str(CORPUS), state_revision=9, state_hash="ab", facts=3, shared=True)
    peer.answers["GetState"] = facts_pb2.GetStateResponse(states=[state], combined_hash="cd")
    result = run("fact", "state", str(CORPUS))
    assert result.stdout.splitlines()[1].split() == [str(CORPUS), "9", "3", "yes", "ab"]
    assert result.stdout.splitlines()[2] == "combined: cd"
    assert json_of(run("fact", "state", "--revision-only", "--json"))["combined_hash"] == "cd"
    assert [request.revision_only for request in peer.requests] == [False, True]


def test_communities_are_listed_shown_and_computed(run: Run, peer: Peer) -> None:
    peer.answers["ListCommunities"] = communities_pb2.ListCommunitiesResponse(
        communities=[community()], revision=9, last_run=RUN
    )
    peer.answers["GetCommunity"] = communities_pb2.GetCommunityResponse(
        community=community(), facts=[fact()], revision=9
    )
    peer.answers["RecomputeCommunities"] = communities_pb2.RecomputeCommunitiesResponse(run=RUN, changed=True)
    assert run("community", "list", *IN).stdout.splitlines()[1].split() == [str(COMMUNITY), "5", "records,", "trails"]
    assert json_of(run("community", "list", *IN, "--json"))["last_run"]["communities"] == 3
    shown = run("community", "show", str(COMMUNITY), *IN).stdout.splitlines()
    assert shown[0] == f"records, trails: 5 facts, made {local(AT)}"
    assert shown[2].startswith(str(FACT))
    assert json_of(run("community", "show", str(COMMUNITY), *IN, "--json"))["community"]["size"] == 5
    assert run("community", "recompute", *IN).stdout == "3 communities of 20 facts: revision 9\n"
    peer.answers["RecomputeCommunities"].changed = False
    assert "nothing changed since revision 9" in run("community", "recompute", *IN).stdout


def test_sources_are_listed_and_shown(run: Run, peer: Peer) -> None:
    source = sources_pb2.Source(
        source_id="sop-7",
        corpus_id=str(CORPUS),
        title="SOP 7",
        ingested_at=stamp(AT),
        changed_at=stamp(AT),
        fact_count=12,
        status=sources_pb2.SOURCE_STATUS_UPDATED,
        version=2,
        source_type="internal",
    )
    peer.answers["ListSources"] = sources_pb2.ListSourcesResponse(sources=[source], revision=9)
    peer.answers["GetSource"] = sources_pb2.GetSourceResponse(source=source, revision=9)
    listed = run("source", "list", *IN).stdout.splitlines()[1].split()
    assert listed[:5] == ["sop-7", "internal", "updated", "2", "12"]
    lines = [line.split(maxsplit=2) for line in run("source", "show", "sop-7", *IN).stdout.splitlines()]
    assert ["fact", "count", "12"] in lines
    assert ["source", "type", "internal"] in lines
    assert json_of(run("source", "show", "sop-7", *IN, "--as-of", "9", "--json"))["status"] == "updated"
    assert peer.requests[-1].as_of.revision == 9


def test_an_erasure_asks_for_confirmation_and_needs_a_reason(run: Run, peer: Peer) -> None:
    peer.answers["EraseSource"] = sources_pb2.EraseSourceResponse(erasure=erasure(), revision=9)
    reason = ("--reason", "request 17")
    assert run("source", "erase", "sop-7", *IN, "--yes").exit_code == 2
    refused = run("source", "erase", "sop-7", *IN, *reason, text="n\n")
    assert (refused.exit_code, refused.stdout, peer.requests) == (1, "", [])
    assert "Erase the source sop-7" in refused.stderr
    assert run("source", "erase", "sop-7", *IN, *reason, "--json").exit_code == 2, "--json asks no question"
    done = run("source", "erase", "sop-7", *IN, *reason, "--request-id", "r", text="y\n")
    assert f"erased 1 document, 2 chunks, 5 facts: revision 9, purged by {local(LATER)}" in done.stdout
    assert f"erasure {FACT}, audit record {RECORD}" in done.stdout
    assert (peer.requests[-1].reason, peer.requests[-1].purge_now) == ("request 17", False)
    assert peer.seen[-1][1][REASON_HEADER] == b"request 17"


def test_an_erasure_can_purge_at_once(run: Run, peer: Peer) -> None:
    purged = erasure(purged_at=stamp(AT))
    peer.answers["EraseSource"] = sources_pb2.EraseSourceResponse(erasure=purged, revision=9)
    peer.answers["ListErasures"] = sources_pb2.ListErasuresResponse(erasures=[purged, erasure()])
    done = json_of(run("source", "erase", "sop-7", *IN, "--reason", "r", "--now", "--yes", "--json"))
    assert (done["purged_at"], peer.requests[0].purge_now) == ("2026-01-02T03:04:05+00:00", True)
    first, second = run("source", "erasures", *IN).stdout.splitlines()[1:]
    assert first.endswith(local(AT))
    assert second.endswith(f"by {local(LATER)}")


def test_a_purge_is_repeated_until_it_is_finished(run: Run, peer: Peer) -> None:
    answers = [(1, 10, False), (0, 5, False), (1, 1, True)]

    def purge(_request: Any) -> sources_pb2.PurgeErasedResponse:
        erasures, removed, finished = answers.pop(0)
        return sources_pb2.PurgeErasedResponse(erasures=erasures, records_removed=removed, finished=finished)

    peer.answers["PurgeErased"] = purge
    assert run("source", "purge", *IN).stdout == "2 erasures purged, 16 records removed\n"


def test_each_event_is_printed_as_a_line_when_it_comes(run: Run, peer: Peer) -> None:
    quarantined = events_pb2.Event(
        kind=events_pb2.EVENT_KIND_FACT_QUARANTINED,
        corpus_id=str(CORPUS),
        revision=9,
        at=stamp(AT),
        fact_id=str(FACT),
        fact_status="QUARANTINED",
        resume_token="t",
    )
    source = events_pb2.Event(
        kind=events_pb2.EVENT_KIND_SOURCE_CHANGED, corpus_id=str(CORPUS), at=stamp(AT), document_id=str(RECORD)
    )
    both = events_pb2.WatchEventsResponse(events=[quarantined, source], resume_token="u")
    script = peer.streams["WatchEvents"] = Script([both], [both])
    result = run("watch", *IN, "--kind", "fact-quarantined", "--from-beginning", "--count", "2")
    assert result.stdout.splitlines() == [
        f"{local(AT)}  fact quarantined  corpus {CORPUS} revision 9  fact {FACT}  quarantined",
        f"{local(AT)}  source changed  corpus {CORPUS} revision 0  document {RECORD}",
    ]
    lines = run("watch", "--after", "s", "--count", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["resume_token"] for line in lines] == ["t", ""]
    first, second = script.firsts
    assert (list(first.kinds), first.from_beginning) == ([events_pb2.EVENT_KIND_FACT_QUARANTINED], True)
    assert second.resume_token == "s"
    assert run("watch", "--after", "s", "--from-beginning").exit_code == 2


def test_a_watch_continues_after_a_lost_connection(run: Run, peer: Peer) -> None:
    peer.streams["WatchEvents"] = Script([answer(1), STOPS], [answer(2)])
    lines = run("watch", "--count", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["revision"] for line in lines] == [1, 2]


def test_a_migration_names_the_model_in_use_afterwards(run: Run, peer: Peer) -> None:
    peer.streams["MigrateEmbeddings"] = Script([progress(1), progress(3, finished=True)])
    assert run("embeddings", "migrate", *IN).stdout == f"{CORPUS} uses static (256 dimensions); revision 3\n"


def test_the_model_of_a_corpus_is_shown(run: Run, peer: Peer) -> None:
    migration = embeddings_pb2.Migration(
        corpus_id=str(uuid.uuid4()),
        current=embeddings_pb2.EmbeddingModel(name="static", dimensions=256),
        next=embeddings_pb2.EmbeddingModel(name="minilm", dimensions=384),
        done=5,
        total=2_000,
    )
    peer.answers["GetMigration"] = embeddings_pb2.GetMigrationResponse(migration=migration)
    lines = [line.split(maxsplit=1) for line in run("embeddings", "show", *IN).stdout.splitlines()]
    assert ["next", "minilm (384 dimensions)"] in lines
    assert ["done", "5 of 2,000"] in lines
    assert json_of(run("embeddings", "show", *IN, "--json"))["total"] == 2_000
