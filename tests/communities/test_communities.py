"""Communities through the real server: found, listed, read as of earlier revisions, and forgotten."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2, sources_pb2
from tests.support.callers.communities import (
    TOPICS,
    CommunityCaller,
    draft,
    fact_of,
    ids_of,
    planted,
    topic_drafts,
    vector,
)
from tests.support.callers.knowledge import at_revision, refused
from tests.support.servers.running import ACME, GLOBEX, OPERATOR, Running, create_tenants, running

COUNTS = {"salmon": 9, "turbine": 7, "orchard": 5}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        create_tenants(found.client(OPERATOR))
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[CommunityCaller]:
    with CommunityCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: CommunityCaller) -> str:
    """A corpus with three topics, whose communities were not computed yet."""
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(**COUNTS))
    return corpus


def test_each_group_of_similar_facts_is_a_community(caller: CommunityCaller, corpus: str) -> None:
    done = caller.recompute(corpus)
    assert (done.changed, done.running) == (True, False)
    assert (done.run.facts, done.run.communities, done.run.trigger) == (21, 3, "request")
    assert (done.run.of_revision, done.run.revision) == (1, 2)
    found = caller.members(corpus)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, ids_of(COUNTS).values()))
    listed = caller.page(corpus)
    assert [community.size for community in listed.communities] == [9, 7, 5]
    assert listed.last_run == done.run
    assert listed.revision == 2


def test_a_community_is_named_by_its_smallest_fact_and_the_corpus(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    expected = {str(uuid5(UUID(corpus), str(fact_of(topic, 0)))) for topic in COUNTS}
    assert set(caller.members(corpus)) == expected


def test_labels_are_words_of_the_most_important_facts(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    others = planted("salmon", 12)
    important = [
        draft("violin", number, embedding=vector("salmon", 20 + number), importance_weight=0.95) for number in range(5)
    ]
    caller.plant(corpus, *others, *important)
    caller.recompute(corpus)
    (found,) = caller.all_communities(corpus)
    assert found.keywords
    assert found.label == ", ".join(found.keywords[:3])
    said = " ".join(fact.content.lower() for fact in important)
    assert all(word in said for word in found.keywords)
    first = caller.community(corpus, found.id, page_size=5).facts
    assert [fact.fact_id for fact in first] == [str(fact_of("violin", number)) for number in range(5)]


def test_keywords_come_from_the_five_most_important_facts_only(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    animals = ["aardvark", "buffalo", "cormorant", "dromedary", "elephant", "flamingo"]
    said = "The {0} of the old zoo is fed by the keeper of the {0} in the morning of each day."
    drafts = [
        draft("salmon", number, content=said.format(animal), importance_weight=0.9 - number / 10)
        for number, animal in enumerate(animals)
    ]
    caller.plant(corpus, *drafts)
    caller.recompute(corpus)
    (found,) = caller.all_communities(corpus)
    assert set(animals) & set(found.keywords) == set(animals[:5])


def test_labels_of_a_corpus_differ(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    drafts = topic_drafts(**dict.fromkeys(TOPICS, 4))
    for fact_draft in drafts:
        fact_draft.content = "The same words are said of every topic in this corpus, whatever its vectors may tell."
    caller.plant(corpus, *drafts)
    caller.recompute(corpus)
    labels = [community.label for community in caller.all_communities(corpus)]
    assert len(set(labels)) == len(labels) == 4


def test_the_same_facts_have_the_same_communities_whatever_their_history(tmp_path: Path) -> None:
    def found(path: Path, seed: int) -> dict[str, tuple[str, list[str], list[str]]]:
        order = random.Random(seed)
        with running(path) as server:
            create_tenants(server.client(OPERATOR))
            with CommunityCaller(server, ACME) as caller:
                corpus = str(server.client(ACME).create_corpus("plan", corpus_id=UUID(int=7)).id)
                drafts = topic_drafts(salmon=12, turbine=12, orchard=12, violin=2)
                order.shuffle(drafts)
                for start in range(0, len(drafts), 5 + seed):
                    caller.plant(corpus, *drafts[start : start + 5 + seed])
                    if seed:
                        caller.recompute(corpus)
                caller.recompute(corpus)
                listed = caller.all_communities(corpus)
                return {
                    community.id: (
                        community.label,
                        list(community.keywords),
                        list(caller.facts_of(corpus, community.id)),
                    )
                    for community in listed
                }

    assert found(tmp_path / "a", 0) == found(tmp_path / "b", 3)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_facts_are_in_no_community(caller: CommunityCaller, count: int) -> None:
    corpus = caller.corpus()
    if count:
        caller.plant(corpus, *planted("salmon", count))
    done = caller.recompute(corpus)
    assert (done.changed, done.run.facts, done.run.communities) == (False, count, 0)
    assert caller.all_communities(corpus) == []
    assert caller.page(corpus).last_run == done.run


def test_equal_vectors_are_one_community_and_isolated_vectors_are_in_none(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    equal = [draft("orchard", number, embedding=[*[0.0] * 15, 1.0]) for number in range(30)]
    lone = planted("salmon", 1) + planted("turbine", 2) + planted("violin", 1)
    caller.plant(corpus, *equal, *lone)
    done = caller.recompute(corpus)
    assert done.run.communities == 1
    (members,) = caller.members(corpus).values()
    assert members == {fact.fact_id for fact in equal}
    assert not caller.get(lone[0].fact_id).community_id


def test_unchanged_communities_make_no_revision_and_only_changed_ones_are_written(
    caller: CommunityCaller, corpus: str
) -> None:
    caller.recompute(corpus)
    before = {community.id: community for community in caller.all_communities(corpus)}
    again = caller.recompute(corpus)
    assert (again.changed, again.run.of_revision, again.run.revision) == (False, 2, 2)
    caller.plant(corpus, *planted("salmon", 2, start=50))
    more = caller.recompute(corpus)
    assert (more.changed, more.run.revision) == (True, 4)
    after = {community.id: community for community in caller.all_communities(corpus)}
    changed = [community for community in after if after[community] != before[community]]
    assert [after[community].size for community in changed] == [11]
    assert caller.history(corpus_id=corpus)[0].action == "RecomputeCommunities"


def test_earlier_revisions_have_the_communities_they_had(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    before = caller.members(corpus)
    caller.plant(corpus, *planted("violin", 5))
    caller.recompute(corpus)
    assert len(caller.members(corpus)) == 4
    assert caller.members(corpus, as_of=at_revision(2)) == before
    assert caller.members(corpus, as_of=at_revision(1)) == {}
    earlier = caller.page(corpus, as_of=at_revision(2))
    assert not earlier.HasField("last_run")
    (violins,) = set(caller.members(corpus)) - set(before)
    with refused(Reason.COMMUNITY_NOT_FOUND):
        caller.community(corpus, violins, as_of=at_revision(3))


def test_a_fact_names_its_community_and_is_found_by_it(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    community = next(community for community in caller.all_communities(corpus) if community.size == 5)
    fact = caller.get(str(fact_of("orchard", 0)))
    assert (fact.community_id, fact.community_label) == (community.id, community.label)
    filters = facts_pb2.FactFilters(community_ids=[community.id])
    assert {listed.fact_id for listed in caller.list(corpus, filters=filters)} == ids_of(COUNTS)["orchard"]
    request = facts_pb2.SearchFactsRequest(
        corpus_ids=[corpus], vector=[1.0] * 16, embedding_model="planted", filters=filters, limit=50
    )
    hits = caller.facts.SearchFacts(request, **caller.options()).hits
    assert {hit.fact.fact_id for hit in hits} == ids_of(COUNTS)["orchard"]
    assert {hit.fact.community_label for hit in hits} == {community.label}


def test_facts_that_leave_the_index_leave_their_community_at_once(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    community = next(community for community in caller.all_communities(corpus) if community.size == 9)
    gone, stale = str(fact_of("salmon", 3)), str(fact_of("salmon", 4))
    caller.set_status(gone, facts_pb2.FACT_STATUS_DELETED)
    caller.set_status(stale, facts_pb2.FACT_STATUS_STALE)
    left = caller.community(corpus, community.id)
    assert left.community.size == 8
    ids = {fact.fact_id for fact in left.facts}
    assert gone not in ids
    assert stale in ids
    assert not caller.get(gone).community_id
    assert caller.get(stale).community_id == community.id
    assert caller.community(corpus, community.id, as_of=at_revision(2)).community.size == 9
    assert caller.recompute(corpus).changed
    assert caller.community(corpus, community.id).community.size == 8


def test_a_community_that_became_too_small_dissolves(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    for number in range(3):
        caller.set_status(str(fact_of("orchard", number)), facts_pb2.FACT_STATUS_DELETED)
    assert [community.size for community in caller.all_communities(corpus)] == [9, 7, 2]
    caller.recompute(corpus)
    assert [community.size for community in caller.all_communities(corpus)] == [9, 7]
    assert not caller.get(str(fact_of("orchard", 4))).community_id


def test_communities_and_their_facts_come_in_pages(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    whole = [community.id for community in caller.all_communities(corpus)]
    assert [community.id for community in caller.all_communities(corpus, page_size=1)] == whole
    first = caller.community(corpus, whole[0], page_size=4)
    rest = caller.community(corpus, whole[0], page_size=4, page_token=first.next_page_token)
    caller.plant(corpus, *planted("violin", 5))
    caller.recompute(corpus)
    again = caller.community(corpus, whole[0], page_size=4, page_token=first.next_page_token)
    assert again == rest, "later pages are of the revision of the first"
    assert len(list(caller.facts_of(corpus, whole[0], page_size=2))) == 9
    with refused(Reason.INVALID_PAGE_TOKEN):
        caller.page(corpus, page_token=first.next_page_token)


def test_reading_communities_is_no_access_of_their_facts(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    community = caller.all_communities(corpus)[0]
    caller.community(corpus, community.id)
    assert {fact.access_count for fact in caller.list(corpus)} == {0}


def test_a_repeated_request_is_answered_as_before(caller: CommunityCaller, corpus: str) -> None:
    done = caller.recompute(corpus, request_id="once")
    caller.plant(corpus, *planted("violin", 5))
    assert caller.recompute(corpus, request_id="once") == done
    assert len(caller.all_communities(corpus)) == 3


def test_another_tenant_has_no_such_corpus(server: Running, caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    community = caller.all_communities(corpus)[0].id
    with CommunityCaller(server, GLOBEX) as stranger:
        own = stranger.corpus()
        for call in (
            lambda: stranger.recompute(corpus),
            lambda: stranger.page(corpus),
            lambda: stranger.community(corpus, community),
        ):
            with refused(Reason.CORPUS_NOT_FOUND):
                call()
        with refused(Reason.COMMUNITY_NOT_FOUND):
            stranger.community(own, community)


def test_unknown_communities_and_corpora_are_not_found(caller: CommunityCaller, corpus: str) -> None:
    with refused(Reason.COMMUNITY_NOT_FOUND):
        caller.community(corpus, str(uuid4()))
    with refused(Reason.CORPUS_NOT_FOUND):
        caller.recompute(str(uuid4()))
    with refused(Reason.INVALID_ID, field="id"):
        caller.community(corpus, "violin")


def erase(caller: CommunityCaller, corpus: str, source: str) -> None:
    request = sources_pb2.EraseSourceRequest(corpus_id=corpus, source_id=source)
    caller.sources.EraseSource(request, **caller.options())


def test_an_erased_source_is_in_no_community_and_no_label_at_any_revision(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    secret = [
        draft("violin", number, embedding=vector("salmon", 20 + number), importance_weight=0.95) for number in range(3)
    ]
    caller.plant(corpus, *topic_drafts(salmon=9, turbine=5), *secret)
    caller.recompute(corpus)
    before = {community.id: community for community in caller.all_communities(corpus)}
    named = next(community for community in before.values() if community.size == 12)
    assert "violin" in named.label
    erase(caller, corpus, "about violin")
    after = {community.id: community for community in caller.all_communities(corpus)}
    assert [community.size for community in after.values()] == [9, 5]
    assert after.keys() == before.keys()
    assert not any("violin" in word for community in after.values() for word in (community.label, *community.keywords))
    assert next(community for community in after.values() if community.size == 5) == next(
        community for community in before.values() if community.size == 5
    )
    assert caller.get(str(fact_of("salmon", 0))).community_label == after[named.id].label
    with refused(Reason.ERASED):
        caller.community(corpus, named.id, as_of=at_revision(2))
    assert [community.size for community in caller.all_communities(corpus, as_of=at_revision(2))] == [5]
    assert not caller.recompute(corpus).changed


def test_a_community_with_facts_of_only_an_erased_source_is_gone(caller: CommunityCaller, corpus: str) -> None:
    caller.recompute(corpus)
    erase(caller, corpus, "about salmon")
    assert [community.size for community in caller.all_communities(corpus)] == [7, 5]
    assert caller.members(corpus, as_of=at_revision(2)).keys() == caller.members(corpus).keys()
