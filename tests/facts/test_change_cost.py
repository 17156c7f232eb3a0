"""A change of facts takes two transactions, one to plan and one to write, and few round trips, however many facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_fdb.round_trips import counted
from drillcore_server.facts.archive import archive_facts, restore_facts
from drillcore_server.facts.put import PUT_FACTS, FactDraft, PutFacts, put_facts
from drillcore_server.facts.update import FactUpdate, update_fact
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.revise import NothingToChange, Overtaken
from drillcore_server.storage.ids import FactId, SourceId
from tests.support.stores.archive import Archive, opened_archive
from tests.support.stores.archive_migrations import fact_planner, fact_text, put

TRIPS_MAX = 10


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as opened:
        put(opened, [fact_text(0)])
        yield opened


def put_new(archive: Archive, facts: list[FactId]) -> object:
    texts = [fact_text(1_000 + number) for number in range(len(facts))]
    drafts = [FactDraft(text, SourceId("handbook")) for text in texts]
    return put_facts(fact_planner(archive), archive.call("PutFacts"), archive.target, drafts)


def update_first(archive: Archive, facts: list[FactId]) -> object:
    call, tenant = archive.call("UpdateFact"), archive.corpus.tenant_id
    return update_fact(fact_planner(archive), call, tenant=tenant, fact=facts[0], update=FactUpdate(fact_text(2_000)))


def move_out(archive: Archive, facts: list[FactId]) -> object:
    call, tenant = archive.call("ArchiveFacts"), archive.corpus.tenant_id
    return archive_facts(fact_planner(archive), call, tenant=tenant, facts=facts)


def move_back(archive: Archive, facts: list[FactId]) -> object:
    call, tenant = archive.call("RestoreFacts"), archive.corpus.tenant_id
    return restore_facts(fact_planner(archive), call, tenant=tenant, facts=facts)


@pytest.mark.parametrize("count", [1, 40])
def test_a_change_of_facts_takes_two_transactions(archive: Archive, count: int) -> None:
    facts = list(put(archive, [fact_text(number) for number in range(1, count + 1)]))
    for change in (put_new, update_first, move_out, move_back):
        head = archive.head()
        with counted() as total:
            change(archive, facts)
        assert archive.head() == head + 1
        assert total.transactions == 2, change.__name__
        assert total.count <= TRIPS_MAX, change.__name__


def test_an_overtaken_plan_is_made_again_on_a_newer_read(archive: Archive) -> None:
    """The transaction of the first plan is still young, but it would show the same head again."""
    seen: list[int] = []

    def plan(base: BatchedReads) -> NothingToChange[PutFacts]:
        seen.append(base.revision)
        if len(seen) == 1:
            put(archive, [fact_text(7)])
            raise Overtaken
        return NothingToChange(PutFacts((), base.revision), archive.planner.reviser.make_keys(base.corpus, []))

    archive.planner.reviser.revise(archive.call("PutFacts"), archive.target, PUT_FACTS, plan)
    assert seen[1] == seen[0] + 1


def test_a_plan_that_goes_on_with_earlier_reads_is_made_again_on_a_newer_read(archive: Archive) -> None:
    seen: list[int] = []
    reviser, call = archive.planner.reviser, archive.call("PutFacts")

    def plan(base: BatchedReads) -> NothingToChange[PutFacts]:
        seen.append(base.revision)
        if len(seen) == 1:
            raise Overtaken
        return NothingToChange(PutFacts((), base.revision), reviser.make_keys(base.corpus, []))

    with archive.engine.reads() as reads:
        reviser.begin(call, archive.target, PUT_FACTS, reads)
        put(archive, [fact_text(7)])
        reviser.revise(call, archive.target, PUT_FACTS, plan, reads)
    assert seen[1] == seen[0] + 1
