"""Events: watchers get every event they may see, once and in order, from wherever they resume."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest

from drillcore import Grant, Level, Role
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import events_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import refused
from tests.support.round_trips.measured import cost_of
from tests.support.servers.concurrently import concurrently
from tests.support.servers.people import age_session, make_person, make_service
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, create_tenants, running
from tests.support.servers.watcher import Watcher, all_events
from tests.support.stores.trails import records

TEXT = "The firm must keep records of every transaction for at least {} years after it was made."
DOCUMENT = "Records are kept.\n\nThe firm keeps the records of every transaction for at least seven years."
ADDED, CHANGED, QUARANTINED = pb.EVENT_KIND_FACT_ADDED, pb.EVENT_KIND_FACT_CHANGED, pb.EVENT_KIND_FACT_QUARANTINED
SOURCE, STATE = pb.EVENT_KIND_SOURCE_CHANGED, pb.EVENT_KIND_STATE_CHANGED


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with FactCaller(server, ACME) as found:
            yield found


def put(caller: FactCaller, corpus: str, count: int = 1, **fields: Any) -> list[str]:
    drafts = [facts_pb2.FactDraft(content=TEXT.format(n), source_id="manual", **fields) for n in range(count)]
    return list(caller.put(corpus, *drafts).fact_ids)


def watch(caller: FactCaller, **wanted: Any) -> Watcher:
    return Watcher(caller.server.address, caller.token, **wanted)


def everything(caller: FactCaller, **wanted: Any) -> list[pb.Event]:
    return all_events(caller.server.address, caller.token, **{"from_beginning": True, **wanted})


def rest(caller: FactCaller, token: str) -> list[pb.Event]:
    return everything(caller, from_beginning=False, resume_token=token)


def brief(events: list[pb.Event]) -> list[tuple[int, int, str]]:
    return [(event.revision, event.kind, event.fact_id or event.document_id) for event in events]


def test_each_change_of_a_fact_is_an_event_of_its_kind_followed_by_the_state(caller: FactCaller) -> None:
    corpus = caller.corpus()
    with watch(caller) as watcher:
        first, second = sorted(put(caller, corpus, 2))
        caller.update(first, source_location="page 3")
        caller.set_status(first, facts_pb2.FACT_STATUS_QUARANTINED, reason="why not")
        caller.set_status(second, facts_pb2.FACT_STATUS_STALE)
        caller.archive(second)
        caller.restore(second)
        heard = watcher.up_to(6)
    assert brief(heard) == [
        (1, ADDED, first),
        (1, ADDED, second),
        (1, STATE, ""),
        (2, CHANGED, first),
        (2, STATE, ""),
        (3, QUARANTINED, first),
        (3, STATE, ""),
        (4, CHANGED, second),
        (4, STATE, ""),
        (5, CHANGED, second),
        (5, STATE, ""),
        (6, CHANGED, second),
        (6, STATE, ""),
    ]
    assert {event.corpus_id for event in heard} == {corpus}
    assert [event.fact_status for event in heard if event.fact_id == second] == ["ACTIVE", "STALE", "STALE", "STALE"]
    assert [event.at.ToMicroseconds() for event in heard] == sorted(event.at.ToMicroseconds() for event in heard)


def test_added_and_removed_documents_are_events(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = caller.add_texts(corpus, {"one.txt": DOCUMENT})
    caller.remove(corpus, ids["one.txt"])
    heard = [event for event in everything(caller) if event.kind in {SOURCE, STATE}]
    assert brief(heard) == [
        (1, SOURCE, ids["one.txt"]),
        (1, STATE, ""),
        (2, SOURCE, ids["one.txt"]),
        (2, STATE, ""),
    ]


def test_events_hold_no_content(caller: FactCaller) -> None:
    corpus = caller.corpus()
    caller.add_texts(corpus, {"one.txt": DOCUMENT})
    put(caller, corpus)
    for event in everything(caller):
        assert b"records" not in event.SerializeToString().lower()


def test_reading_is_no_event(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    with watch(caller) as watcher:
        caller.get(fact_id)
        caller.search("records", corpus)
        caller.update(fact_id, source_location="page 3")
        assert brief(watcher.up_to(2)) == [(2, CHANGED, fact_id), (2, STATE, "")]


def a_busy_corpus(caller: FactCaller) -> str:
    corpus = caller.corpus(f"busy {uuid4()}")
    ids = put(caller, corpus, 5)
    caller.add_texts(corpus, {f"{number}.txt": f"{DOCUMENT} Number {number}." for number in range(3)})
    caller.set_status(ids[0], facts_pb2.FACT_STATUS_QUARANTINED, reason="why not")
    caller.archive(*ids[1:4])
    return corpus


def test_a_watcher_that_resumes_from_any_event_gets_exactly_the_rest(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_busy_corpus(caller)
    a_busy_corpus(caller)
    whole = everything(caller)
    assert len(whole) > 25
    assert len({event.resume_token for event in whole}) == len(whole)
    for looked_at in (2_000, 3):
        monkeypatch.setattr("drillcore_server.events.watch._LOOKED_AT_MAX", looked_at)
        monkeypatch.setattr("drillcore_server.events.watch._CHANGES_MAX", min(looked_at, 50))
        monkeypatch.setattr("drillcore_server.events.store._BLOCKS_AHEAD", min(looked_at // 3, 8))
        assert everything(caller) == whole
        for place, event in enumerate(whole, 1):
            assert rest(caller, event.resume_token) == whole[place:]


def test_the_token_of_a_response_skips_events_that_were_not_for_the_caller(caller: FactCaller) -> None:
    corpus, other_corpus = caller.corpus("one"), caller.corpus("other")
    put(caller, corpus)
    put(caller, other_corpus, 3)
    with watch(caller, from_beginning=True, corpus_ids=[corpus]) as watcher:
        assert brief(watcher.drained())[-1] == (1, STATE, "")
    assert everything(caller, from_beginning=False, resume_token=watcher.token) == []


def test_only_the_requested_kinds_and_corpora_are_sent(caller: FactCaller) -> None:
    corpus, other_corpus = a_busy_corpus(caller), caller.corpus("other")
    put(caller, other_corpus)
    whole = everything(caller)
    of_kind = everything(caller, kinds=[QUARANTINED, STATE])
    assert of_kind == [event for event in whole if event.kind in {QUARANTINED, STATE}]
    assert everything(caller, corpus_ids=[other_corpus]) == [
        event for event in whole if event.corpus_id == other_corpus
    ]
    assert {event.corpus_id for event in whole} == {corpus, other_corpus}


def test_a_watcher_gets_only_later_events_unless_it_asks_otherwise(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus)
    with watch(caller) as watcher:
        put(caller, corpus)
        assert {event.revision for event in watcher.up_to(2)} == {2}


def test_no_event_is_lost_or_repeated_while_many_write(caller: FactCaller) -> None:
    corpora = [caller.corpus(f"corpus {number}") for number in range(4)]
    heard: list[pb.Event] = []
    with watch(caller) as watcher:
        listening = threading.Thread(target=lambda: heard.extend(_listen(watcher, 4 * 8)))
        listening.start()
        concurrently(4, lambda number: [put(caller, corpora[number], 2) for _ in range(8)])
        listening.join(timeout=30)
    assert heard == everything(caller)
    assert len(heard) == 4 * 8 * 3


def _listen(watcher: Watcher, revisions: int) -> Iterator[pb.Event]:
    while revisions:
        event = watcher.next()
        yield event
        revisions -= event.kind == STATE


def test_a_watcher_resumes_at_a_restarted_server(tmp_path: Path) -> None:
    heard: list[pb.Event] = []
    token = ""
    for first in (True, False, False):
        with running(tmp_path) as server, FactCaller(server, ACME) as caller:
            if first:
                create_tenants(server.client(OPERATOR))
            corpus = caller.corpus(f"corpus {uuid4()}")
            put(caller, corpus, 3)
            start = {"from_beginning": True} if first else {"resume_token": token}
            with watch(caller, **start) as watcher:
                heard += [watcher.next(), watcher.next()]
                token = heard[-1].resume_token
                put(caller, corpus, 3)
    with running(tmp_path) as server, FactCaller(server, ACME) as caller:
        heard += everything(caller, from_beginning=False, resume_token=token)
        assert heard == everything(caller)


def test_a_server_that_stops_ends_its_watchers_with_a_token(tmp_path: Path) -> None:
    with running(tmp_path, shutdown_grace_s=60.0) as server, FactCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        watcher = watch(caller)
        begun = time.monotonic()
    assert time.monotonic() - begun < 50, "the server did not wait for the grace period"
    for response in watcher.stream:
        watcher.token = response.resume_token
    assert watcher.stream.code() is grpc.StatusCode.OK
    assert watcher.token
    watcher.close()


def test_another_tenants_token_and_malformed_tokens_are_refused(caller: FactCaller) -> None:
    put(caller, caller.corpus())
    token = everything(caller)[0].resume_token
    with FactCaller(caller.server, GLOBEX) as globex:
        for wrong in (token, token[:-2], "x", "AAAA"):
            with refused(Reason.INVALID_PAGE_TOKEN):
                everything(globex, from_beginning=False, resume_token=wrong)
        assert everything(globex) == []


def test_an_unknown_corpus_cannot_be_watched(caller: FactCaller) -> None:
    corpus = caller.corpus()
    with FactCaller(caller.server, GLOBEX) as globex, refused(Reason.CORPUS_NOT_FOUND):
        everything(globex, corpus_ids=[corpus])
    with refused(Reason.INVALID_ARGUMENT):
        everything(caller, kinds=[99])
    with refused(Reason.INVALID_ARGUMENT):
        everything(caller, from_beginning=True, resume_token="x")


def test_events_of_a_corpus_end_when_access_to_it_is_revoked(caller: FactCaller) -> None:
    kept, taken = caller.corpus("kept"), caller.corpus("taken")
    reader = make_service(caller.server, Grant(Role.READER, corpus_id=kept), Grant(Role.READER, corpus_id=taken))
    with Watcher(caller.server.address, reader.token) as watcher:
        put(caller, taken)
        assert {event.corpus_id for event in watcher.up_to(1)} == {taken}
        caller.server.client().set_grants(reader.account.id, [Grant(Role.READER, corpus_id=kept)], tenant_id=ACME_ID)
        put(caller, taken)
        put(caller, kept)
        assert {event.corpus_id for event in watcher.up_to(1)} == {kept}
        caller.server.client().set_grants(reader.account.id, [], tenant_id=ACME_ID)
        with refused(Reason.PERMISSION_DENIED):
            watcher.next()


def test_a_caller_who_may_not_read_chunks_gets_only_state_events(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus)
    reader = make_service(caller.server, Grant(Role.READER, corpus_id=corpus, levels=(Level.SECTION,)))
    heard = all_events(caller.server.address, reader.token, from_beginning=True)
    assert brief(heard) == [(1, STATE, "")]


def test_a_deleted_corpus_is_skipped(caller: FactCaller) -> None:
    gone, kept = caller.corpus("gone"), caller.corpus("kept")
    put(caller, gone)
    put(caller, kept)
    caller.server.client(ACME).delete_corpus(gone)
    assert {event.corpus_id for event in everything(caller)} == {kept}


def test_the_end_of_a_session_ends_its_watch_and_a_watch_keeps_no_session_alive(caller: FactCaller) -> None:
    person = make_person(caller.server, Grant(Role.READER))
    with Watcher(caller.server.address, person.token) as watcher:
        age_session(caller.server, person.token, unused_for=timedelta(hours=2))
        with refused(Reason.SESSION_OVER):
            watcher.next()


def test_events_of_a_shared_corpus_come_in_commit_order(caller: FactCaller) -> None:
    operator = caller.server.client()
    with FactCaller(caller.server, GLOBEX) as globex:
        shared, own, secret = globex.corpus("shared"), caller.corpus("own"), globex.corpus("secret")
        operator.update_corpus(shared, tenant_id=GLOBEX_ID, share_with=[ACME_ID])
        for _ in range(3):
            put(globex, shared)
            put(globex, secret)
            put(caller, own)
        heard = everything(caller)
        assert [event.corpus_id for event in heard if event.kind == STATE] == [shared, own] * 3
        for place, event in enumerate(heard, 1):
            assert everything(caller, from_beginning=False, resume_token=event.resume_token) == heard[place:]


def test_events_of_a_corpus_shared_during_a_watch_come_from_then_on(caller: FactCaller) -> None:
    with FactCaller(caller.server, GLOBEX) as globex:
        shared = globex.corpus("shared")
        put(globex, shared)
        with watch(caller) as watcher:
            caller.server.client().update_corpus(shared, tenant_id=GLOBEX_ID, share_with=[ACME_ID])
            put(globex, shared)
            assert watcher.next().revision == 2, "the first revision was before the watch"


def test_corpora_of_a_region_that_is_not_allowed_send_no_events(caller: FactCaller) -> None:
    client = caller.server.client(ACME)
    inside, outside = (str(client.create_corpus(region, region=region).id) for region in ("eu-west-1", "us-east-1"))
    for corpus in (inside, outside):
        put(caller, corpus)
    assert {event.corpus_id for event in everything(caller)} == {inside, outside}
    caller.server.client().update_tenant(ACME_ID, allowed_regions=["eu-west-1"])
    assert {event.corpus_id for event in everything(caller)} == {inside}


def test_a_watch_has_one_record_made_when_it_begins(caller: FactCaller) -> None:
    corpus = caller.corpus()
    with watch(caller, corpus_ids=[corpus], kinds=[STATE]) as watcher:
        (record,) = records(caller.server, call="WatchEvents")
        put(caller, corpus)
        watcher.next()
    (again,) = records(caller.server, call="WatchEvents")
    assert again == record
    assert (record["action"], record["outcome"], record["corpora"]) == ("ACCESS", "OK", {corpus: 0})
    assert record["detail"] == {"since": "now", "kinds": ["STATE_CHANGED"]}


def test_the_number_of_watchers_is_limited_and_other_calls_are_still_served(tmp_path: Path) -> None:
    with running(tmp_path, workers=4, watchers_max=8) as server, FactCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        corpus = caller.corpus()
        with watch(caller), watch(caller) as second:
            with refused(Reason.TOO_MANY_WATCHERS):
                watch(caller)
            put(caller, corpus)
            second.up_to(1)
        wait_for_a_place(caller)


def wait_for_a_place(caller: FactCaller) -> None:
    """A stream that was cancelled is over on the server a moment later."""
    deadline_s = time.monotonic() + 10
    while True:
        try:
            return watch(caller).close()
        except grpc.RpcError:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_a_silent_watcher_is_ended_and_an_answering_watcher_is_not(tmp_path: Path) -> None:
    with running(tmp_path, stream_idle_s=0.6) as server, FactCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        with watch(caller, answers=False) as silent, refused(Reason.STREAM_IDLE):
            silent.next()
        with watch(caller) as answering:
            begun = time.monotonic()
            while time.monotonic() - begun < 2:
                assert answering.take() == [], "only keepalives come, without events"
            corpus = caller.corpus()
            put(caller, corpus)
            assert answering.up_to(1)


def test_recomputed_communities_are_sent_before_the_state(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus, 6)
    caller.server.client(OPERATOR).recompute_communities(corpus, tenant_id=ACME_ID, timeout_s=60)
    heard = [event for event in everything(caller) if event.revision == 2]
    assert [event.kind for event in heard] == [pb.EVENT_KIND_COMMUNITIES_RECOMPUTED, STATE]
    (first, _) = heard
    assert everything(caller, from_beginning=False, resume_token=first.resume_token) == heard[1:]


def test_erased_content_is_announced_by_its_ids(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = caller.add_texts(corpus, {"one.txt": DOCUMENT})
    (fact,) = put(caller, corpus)
    before = everything(caller)
    operator = caller.server.client(OPERATOR)
    operator.erase_source(corpus, "manual", reason="asked for", tenant_id=ACME_ID)
    operator.erase_source(corpus, "one.txt", reason="asked for", tenant_id=ACME_ID)
    after = everything(caller)
    assert after[: len(before)] == before, "events sent before do not change"
    heard = after[len(before) :]
    erased = [(pb.EVENT_KIND_FACT_ERASED, fact), (STATE, "")]
    assert [(kind, subject) for _, kind, subject in brief(heard)[: len(erased)]] == erased
    assert (SOURCE, ids["one.txt"]) in [(kind, subject) for _, kind, subject in brief(heard)]
    assert all(event.fact_status == "DELETED" for event in heard if event.kind == pb.EVENT_KIND_FACT_ERASED)


def test_what_many_revisions_did_takes_as_few_round_trips_as_what_one_did(caller: FactCaller) -> None:
    corpus = caller.corpus()
    costs: list[int] = []
    for revisions in (1, 20):
        with watch(caller) as watcher:
            token = watcher.token
        for _ in range(revisions):
            put(caller, corpus)
        cost = cost_of(caller.server, "WatchEvents", lambda: rest(caller, token))  # noqa: B023 - run at once
        costs.append(cost.round_trips)
    assert costs[1] == costs[0]
