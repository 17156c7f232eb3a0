"""Communities after an erasure contain none of the erased facts and none of their words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import sources_pb2, sources_pb2_grpc
from tests.support.callers.communities import CommunityCaller, draft, fact_of, planted, vector
from tests.support.callers.erasures import problems, sealed_under
from tests.support.callers.knowledge import at_revision, refused
from tests.support.servers.running import ACME, Running, create_tenants, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[CommunityCaller]:
    with CommunityCaller(server, ACME) as found:
        yield found


def erase(caller: CommunityCaller, corpus: str, source: str, **fields: Any) -> sources_pb2.Erasure:
    request = sources_pb2.EraseSourceRequest(corpus_id=corpus, source_id=source, **fields)
    return sources_pb2_grpc.SourceServiceStub(caller._channel).EraseSource(request, **caller.options()).erasure


def test_a_purge_removes_the_labels_made_from_the_erased_source_and_no_others(
    server: Running, caller: CommunityCaller
) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *planted("salmon", 6, source_id="erased"), *planted("turbine", 6))
    caller.recompute(corpus)
    key, _ = erase(caller, corpus, "erased").erased_keys
    assert sealed_under(server, corpus, key) > 0
    before = caller.all_communities(corpus)
    assert len(before) == 1
    caller.sources.PurgeErased(sources_pb2.PurgeErasedRequest(corpus_id=corpus), **caller.options())
    assert sealed_under(server, corpus, key) == 0
    assert caller.all_communities(corpus) == before
    assert problems(server) == ()


def test_a_label_is_made_anew_from_the_remaining_facts(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    erased = [
        draft("violin", number, embedding=vector("salmon", 20 + number), importance_weight=0.95, source_id="erased")
        for number in range(5)
    ]
    caller.plant(corpus, *planted("salmon", 12), *erased, *planted("turbine", 6))
    caller.recompute(corpus)
    labels = {community.label for community in caller.all_communities(corpus)}
    assert any("violin" in label for label in labels)
    head = caller.state(corpus).states[0].state_revision
    erase(caller, corpus, "erased")
    found = caller.all_communities(corpus)
    assert sorted(community.size for community in found) == [6, 12]
    assert not any("violin" in str(community) for community in found)
    assert any("salmon" in community.label for community in found)
    gone = {str(fact_of("violin", number)) for number in range(5)}
    assert not any(gone & members for members in caller.members(corpus).values())
    assert not any("violin" in community.label for community in caller.all_communities(corpus, as_of=at_revision(head)))
    assert problems(server) == ()


def test_a_community_without_facts_is_gone_and_the_others_stay(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *planted("salmon", 6, source_id="erased"), *planted("turbine", 6))
    caller.recompute(corpus)
    before = caller.members(corpus)
    assert sorted(map(len, before.values())) == [6, 6]
    caller.set_status(str(fact_of("turbine", 5)), 2)
    caller.set_status(str(fact_of("turbine", 4)), 3)
    erase(caller, corpus, "erased")
    (left,) = caller.members(corpus).values()
    assert left == {str(fact_of("turbine", number)) for number in (0, 1, 2, 3, 5)}
    (old,) = [community for community, members in before.items() if str(fact_of("salmon", 0)) in members]
    with refused(Reason.COMMUNITY_NOT_FOUND, Reason.ERASED):
        caller.community(corpus, old)
    assert problems(server) == ()


def test_facts_that_no_label_is_made_from_leave_their_community_without_a_write(
    server: Running, caller: CommunityCaller
) -> None:
    corpus = caller.corpus()
    erased = planted("salmon", 3, start=20, importance_weight=0.05, source_id="erased")
    caller.plant(corpus, *planted("salmon", 12), *erased)
    caller.recompute(corpus)
    (before,) = caller.all_communities(corpus)
    erase(caller, corpus, "erased", purge_now=True)
    (after,) = caller.all_communities(corpus)
    assert (before.size, after.size) == (15, 12)
    assert (after.id, after.label, after.keywords) == (before.id, before.label, before.keywords)
    assert caller.members(corpus)[after.id] == {str(fact_of("salmon", number)) for number in range(12)}
    assert problems(server) == ()


def test_a_label_is_not_made_from_facts_that_were_erased_before(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    first = planted("salmon", 5, start=20, importance_weight=0.95, source_id="first")
    second = planted("salmon", 5, start=30, importance_weight=0.9, source_id="second")
    caller.plant(corpus, *planted("salmon", 6), *first, *second, *planted("turbine", 6))
    caller.recompute(corpus)
    erase(caller, corpus, "second")
    assert problems(server) == ()
    erase(caller, corpus, "first")
    members = caller.members(corpus)
    assert {str(fact_of("salmon", number)) for number in range(6)} in members.values()
    assert sorted(map(len, members.values())) == [6, 6]
    assert problems(server) == ()


def test_a_fact_that_has_left_its_community_stays_out_when_another_community_is_written_anew(
    server: Running, caller: CommunityCaller
) -> None:
    corpus = caller.corpus()
    erased = planted("salmon", 5, start=20, importance_weight=0.95, source_id="erased")
    caller.plant(corpus, *planted("salmon", 6), *erased, *planted("turbine", 7))
    caller.recompute(corpus)
    caller.set_status(str(fact_of("turbine", 6)), 3)
    assert sorted(community.size for community in caller.all_communities(corpus)) == [6, 11]
    erase(caller, corpus, "erased")
    assert [community.size for community in caller.all_communities(corpus)] == [6, 6]
    assert problems(server) == ()
