"""The life of facts: they become stale, are archived and restored, and the server never does the same work twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.app.config import FactSettings
from drillcore_server.app.keepers import FactHousekeeper
from drillcore_server.facts.keeper import EXPIRED_REASON, FactKeeper
from drillcore_server.kernel.access import SERVER
from tests.support.callers.erasures import problems
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import at_revision, refused
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.stores.trails import records

TEXT = "The firm must keep records of every transaction for at least {} years after it was made."
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ACTIVE, STALE = pb.FACT_STATUS_ACTIVE, pb.FACT_STATUS_STALE


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with FactCaller(server, ACME) as found:
            yield found


def put(caller: FactCaller, corpus: str, count: int = 1, **fields: Any) -> list[str]:
    drafts = [pb.FactDraft(content=TEXT.format(number), source_id="manual", **fields) for number in range(count)]
    return list(caller.put(corpus, *drafts).fact_ids)


def keep(server: Running, after: timedelta = timedelta()) -> None:
    """Does the work of the server's background thread as if it were later by the given time."""
    server.server.fact_housekeeper.keep(datetime.now(UTC) + after)


def another_housekeeper(server: Running, **settings: Any) -> FactHousekeeper:
    """The housekeeper of a second server on the same store."""
    keeper: FactKeeper = server.server.fact_housekeeper._keeper
    return FactHousekeeper(keeper, FactSettings(**settings), server.server.log, threading.Event())


def head(caller: FactCaller, corpus: str) -> int:
    (state,) = caller.state(corpus, revision_only=True).states
    return state.state_revision


def statuses(caller: FactCaller, corpus: str) -> list[int]:
    return [fact.status for fact in caller.list(corpus)]


def test_a_fact_becomes_stale_when_its_time_to_live_is_over_and_not_before(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (short,) = put(caller, corpus, ttl="PT1H")
    (long,) = put(caller, corpus, ttl="P2D")
    (for_ever,) = put(caller, corpus)
    keep(caller.server)
    assert head(caller, corpus) == 3, "no fact was due"
    keep(caller.server, 2 * HOUR)
    assert [caller.get(fact_id).status for fact_id in (short, long, for_ever)] == [STALE, ACTIVE, ACTIVE]
    assert (caller.get(short).version, caller.get(short).status_reason) == (2, EXPIRED_REASON)
    assert caller.get(short, as_of=at_revision(3)).status == ACTIVE
    assert {hit.fact.fact_id: hit.stale for hit in caller.search("records", corpus).hits}[short]
    keep(caller.server, 3 * DAY)
    assert [caller.get(fact_id).status for fact_id in (short, long, for_ever)] == [STALE, STALE, ACTIVE]
    assert head(caller, corpus) == 5, "each sweep that found facts made one revision, and no other did"


def test_the_sweep_is_on_the_record_as_the_servers_own(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = put(caller, corpus, 3, ttl="PT1H")
    keep(caller.server, 2 * HOUR)
    (record,) = records(caller.server, call="Housekeeping")
    assert record["operator"] == SERVER.id
    assert record["detail"]["upkeep"] == "facts made stale"
    assert record["detail"]["facts_changed"] == 3
    assert set(record["nodes"]) == set(ids)


def test_a_sweep_is_done_in_revisions_of_bounded_size(caller: FactCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore_server.facts.keeper.BATCH_MAX", 4)
    corpus = caller.corpus()
    put(caller, corpus, 10, ttl="PT1H")
    keep(caller.server, 2 * HOUR)
    assert statuses(caller, corpus) == [STALE] * 10
    assert head(caller, corpus) == 1 + 3


def test_several_servers_that_sweep_at_once_do_it_once(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus, 20, ttl="PT1H")
    keepers = [another_housekeeper(caller.server) for _ in range(4)]
    later = datetime.now(UTC) + 2 * HOUR
    concurrently(4, lambda number: keepers[number].keep(later))
    assert statuses(caller, corpus) == [STALE] * 20
    assert head(caller, corpus) == 2
    assert {fact.version for fact in caller.list(corpus)} == {2}
    assert len(records(caller.server, call="Housekeeping")) == 1


def test_quarantined_archived_and_deleted_facts_are_left_alone(caller: FactCaller) -> None:
    corpus = caller.corpus()
    quarantined, archived, deleted = put(caller, corpus, 3, ttl="PT1H")
    caller.set_status(quarantined, pb.FACT_STATUS_QUARANTINED, reason="it led to a fabrication")
    caller.set_status(deleted, pb.FACT_STATUS_DELETED)
    caller.archive(archived)
    before = head(caller, corpus)
    keep(caller.server, 2 * HOUR)
    assert head(caller, corpus) == before
    caller.update(archived, source_location="page 3")
    keep(caller.server, 2 * HOUR)
    assert caller.get(archived).status == ACTIVE, "the sweep leaves it, though the feed of changes names it"
    caller.restore(archived)
    keep(caller.server, 2 * HOUR)
    assert caller.get(archived).status == STALE, "its time to live was over when it was restored"


def test_a_shortened_time_to_live_is_seen_by_a_sweep_that_was_past_it(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (long_lived,) = put(caller, corpus, ttl="P30D")
    (short_lived,) = put(caller, corpus, ttl="PT1H")
    keep(caller.server, 10 * DAY)
    assert caller.get(long_lived).status == ACTIVE
    caller.update(long_lived, ttl="P1D")
    caller.set_status(short_lived, ACTIVE)
    keep(caller.server, 10 * DAY + HOUR)
    assert [caller.get(fact).status for fact in (long_lived, short_lived)] == [STALE, STALE]


def test_a_fact_that_expired_before_it_was_stored_is_found(caller: FactCaller) -> None:
    corpus = caller.corpus()
    keep(caller.server, timedelta(minutes=30))
    (fact_id,) = put(caller, corpus, ttl="PT1S")
    keep(caller.server, timedelta(minutes=40))
    assert caller.get(fact_id).status == STALE


def test_a_fact_whose_time_to_live_is_removed_does_not_become_stale(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus, ttl="PT1H")
    caller.update(fact_id, ttl="")
    keep(caller.server, 2 * HOUR)
    assert caller.get(fact_id).status == ACTIVE


def test_a_time_to_live_set_later_is_seen_by_a_server_that_has_just_started(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    caller.update(fact_id, ttl="PT1H")
    another_housekeeper(caller.server).keep(datetime.now(UTC) + 2 * HOUR)
    assert caller.get(fact_id).status == STALE


def test_a_fact_that_was_stored_long_after_it_expired_is_found_within_a_day(caller: FactCaller) -> None:
    corpus = caller.corpus()
    keep(caller.server, 3 * HOUR)
    (fact_id,) = put(caller, corpus, ttl="PT1S")
    keep(caller.server, 4 * HOUR)
    assert caller.get(fact_id).status == ACTIVE, "the fact expired longer ago than a sweep looks back"
    keep(caller.server, 28 * HOUR)
    assert caller.get(fact_id).status == STALE


def test_deleted_corpora_are_passed_over(caller: FactCaller) -> None:
    gone, kept = caller.corpus("gone"), caller.corpus("kept")
    put(caller, gone, ttl="PT1H")
    (fact_id,) = put(caller, kept, ttl="PT1H")
    caller.server.client(ACME).delete_corpus(gone)
    keep(caller.server, 2 * HOUR)
    assert caller.get(fact_id).status == STALE
    assert not [line for line in caller.server.log_lines() if "not kept" in line["event"]]


def test_facts_that_nobody_reads_are_archived_when_due(caller: FactCaller) -> None:
    corpus = caller.corpus()
    read, unread = put(caller, corpus, 2)
    keep(caller.server, 179 * DAY)
    assert head(caller, corpus) == 1
    keep(caller.server, 181 * DAY)
    assert [fact.archived for fact in caller.list(corpus)] == [True, True]
    assert caller.search("records", corpus).hits == []
    assert caller.get(unread).archived, "an archived fact is readable by its id"
    assert caller.get(unread).status == ACTIVE
    assert len(caller.search("records", corpus, as_of=at_revision(1)).hits) == 2
    assert caller.restore(read).restored == 1
    assert [hit.fact.fact_id for hit in caller.search("records", corpus).hits] == [read]


def test_an_access_keeps_a_fact_from_the_archive(caller: FactCaller) -> None:
    corpus = caller.corpus()
    read, unread = put(caller, corpus, 2)
    caller.get(read)
    accessed = caller.get(read).last_accessed_at.ToDatetime(UTC)
    another_housekeeper(caller.server).keep(accessed + 180 * DAY)
    assert [caller.get(fact_id).archived for fact_id in (read, unread)] == [False, True]


def test_a_fact_that_is_read_just_before_it_would_be_archived_stays(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = caller.corpus()
    read, unread = put(caller, corpus, 2)
    ingested = max(fact.ingested_at.ToDatetime(UTC) for fact in caller.list(corpus))
    plan = FactKeeper._plan

    def plan_then_read(keeper: FactKeeper, *planned: Any) -> object:
        made = plan(keeper, *planned)
        monkeypatch.setattr(FactKeeper, "_plan", plan)
        caller.get(read)
        return made

    monkeypatch.setattr(FactKeeper, "_plan", plan_then_read)
    another_housekeeper(caller.server).keep(ingested + 180 * DAY + timedelta(microseconds=1))
    assert {fact.fact_id: fact.archived for fact in caller.list(corpus)} == {read: False, unread: True}


def test_the_time_until_archiving_begins_anew_when_a_fact_is_restored(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    caller.archive(fact_id)
    caller.restore(fact_id)
    restored = caller.get(fact_id)
    assert (restored.archived, restored.version, restored.access_count) == (False, 3, 1)
    caller.server.server.fact_housekeeper.keep(restored.last_accessed_at.ToDatetime(UTC) + 180 * DAY)
    assert not caller.get(fact_id).archived


def test_the_time_until_archiving_begins_anew_when_a_fact_is_changed(caller: FactCaller) -> None:
    corpus = caller.corpus()
    changed, unchanged = put(caller, corpus, 2)
    caller.update(changed, source_location="page 3")
    modified = {fact.fact_id: fact.modified_at.ToDatetime(UTC) for fact in caller.list(corpus)}
    another_housekeeper(caller.server).keep(modified[changed] + 180 * DAY)
    archived = {fact.fact_id: fact.archived for fact in caller.list(corpus)}
    assert archived == {changed: False, unchanged: True}


def test_archiving_goes_on_where_it_was_stopped(caller: FactCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore_server.facts.archive._KEYS_MAX", 4)
    corpus = caller.corpus()
    for _ in range(10):
        put(caller, corpus, 1)  # each in a block of its own
    later = datetime.now(UTC) + 181 * DAY
    stopped = another_housekeeper(caller.server)
    monkeypatch.setattr(stopped._stopping, "is_set", iter([False] * 7 + [True] * 100).__next__)
    stopped.keep(later)
    first = sum(fact.archived for fact in caller.list(corpus))
    assert 0 < first < 10
    before = head(caller, corpus)
    another_housekeeper(caller.server).keep(later)
    assert [fact.archived for fact in caller.list(corpus)] == [True] * 10
    assert {fact.version for fact in caller.list(corpus)} == {2}
    assert head(caller, corpus) > before


def test_a_walk_is_made_once_a_day(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    accessed = caller.get(fact_id).ingested_at.ToDatetime(UTC)
    keeper = another_housekeeper(caller.server)
    keeper.keep(accessed + 180 * DAY - HOUR)
    keeper.keep(accessed + 180 * DAY + 2 * HOUR)
    assert not caller.get(fact_id).archived, "the last walk was three hours ago"


def test_nothing_is_archived_where_the_settings_say_so(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus)
    another_housekeeper(caller.server, archive_after_days=0).keep(datetime.now(UTC) + 10_000 * DAY)
    assert head(caller, corpus) == 1


def test_fsck_finds_nothing_after_sweeps_archiving_and_restoring(caller: FactCaller) -> None:
    corpus = caller.corpus()
    short, restored, *_ = put(caller, corpus, 4, ttl="PT1H")
    put(caller, corpus, 2)
    keep(caller.server, 2 * HOUR)
    caller.set_status(short, ACTIVE)
    keep(caller.server, 181 * DAY)
    caller.restore(restored)
    assert {fact.archived for fact in caller.list(corpus)} == {True, False}
    assert problems(caller.server) == ()


def test_archiving_by_hand_makes_a_revision_and_repeating_it_makes_none(caller: FactCaller) -> None:
    corpus = caller.corpus()
    first, second = put(caller, corpus, 2)
    assert (caller.archive(first).archived, head(caller, corpus)) == (1, 2)
    again = caller.archive(first, second)
    assert (again.archived, again.revision) == (1, 3)
    none = caller.archive(first, second)
    assert (none.archived, none.revision, head(caller, corpus)) == (0, 3, 3)
    assert [hit.fact.fact_id for hit in caller.search("records", corpus).hits] == []
    done = caller.restore(first, second)
    assert (done.restored, done.revision) == (2, 4)
    assert caller.restore(first).restored == 0
    assert len(records(caller.server, call="ArchiveFacts")) == 3


def test_a_retried_archiving_gets_the_first_answer(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    first = caller.archive(fact_id, request_id="once")
    caller.restore(fact_id)
    assert caller.archive(fact_id, request_id="once") == first
    assert not caller.get(fact_id).archived


def test_a_fact_outside_the_index_cannot_be_archived(caller: FactCaller) -> None:
    corpus = caller.corpus()
    first, second = put(caller, corpus, 2)
    caller.set_status(first, pb.FACT_STATUS_DELETED)
    with refused(Reason.ILLEGAL_TRANSITION):
        caller.archive(second, first)
    assert not caller.get(second).archived, "either all facts are archived or none"
    with refused(Reason.FACT_NOT_FOUND):
        caller.archive("00000000-0000-4000-8000-000000000001")


def accesses(caller: FactCaller, corpus: str) -> list[int]:
    """The access counts of all facts. A listing itself counts no access."""
    return [fact.access_count for fact in caller.list(corpus)]


def test_reading_counts_and_changes_neither_revision_nor_state(caller: FactCaller) -> None:
    corpus = caller.corpus()
    first, second = sorted(put(caller, corpus, 2))
    before = caller.state(corpus)
    caller.get(first)
    caller.get(first)
    caller.search("records", corpus, limit=2)
    assert accesses(caller, corpus) == [3, 1]
    assert accesses(caller, corpus) == [3, 1]
    assert caller.state(corpus) == before
    assert caller.get(second, as_of=at_revision(1)).access_count == 1


def test_a_call_that_is_refused_is_no_access(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    request = pb.GetFactsRequest(fact_ids=[fact_id, "00000000-0000-4000-8000-000000000001"])
    with refused(Reason.FACT_NOT_FOUND):
        caller.facts.GetFacts(request, **caller.options())
    with refused(Reason.MODEL_MISMATCH):
        caller.search("", corpus, vector=[1.0, 2.0], embedding_model="another")
    assert accesses(caller, corpus) == [0]


def test_the_same_request_again_is_no_further_access(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus)
    for _ in range(3):
        caller.facts.GetFacts(pb.GetFactsRequest(fact_ids=[fact_id]), **caller.options("once"))
    assert accesses(caller, corpus) == [1]


def test_many_readers_at_once_are_all_counted(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = put(caller, corpus, 3)
    request = pb.GetFactsRequest(fact_ids=ids)
    concurrently(6, lambda _: [caller.facts.GetFacts(request, **caller.options()) for _ in range(10)])
    assert accesses(caller, corpus) == [60, 60, 60]
