"""fsck finds damaged records of communities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_proto.v1 import facts_pb2
from drillcore_server.communities.model import Community
from drillcore_server.communities.store import COMMUNITY
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.kernel import revisions
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CommunityId, Revision
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import SealedRecords, keys_of
from drillcore_server.storage.store import open_store
from tests.support.callers.communities import CommunityCaller, draft, fact_of, topic_drafts
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.stores.aged import keys_of as keys_in
from tests.support.stores.aged import keyspace

COUNTS = {"salmon": 9, "turbine": 7}


class Damage:
    """Rewrites records of communities in place, as only a defect would."""

    def __init__(self, server: Running, corpus: str) -> None:
        self.server = server
        self.keys = keys_in(server, corpus)
        self.sealed = SealedRecords(server.server.keyring)
        self.revision: Revision = server.engine.run(lambda tr: revisions.head(tr, self.keys))

    def view(self, key: bytes) -> versioned.Entry:
        found = self.server.engine.run(lambda tr: versioned.get(tr, key, self.revision))
        assert found is not None
        return found

    def record(self, community: str, change: Callable[[Community], Community]) -> None:
        key = self.keys.community(CommunityId(UUID(community)))
        stored = self.view(key)
        changed = COMMUNITY.encode(change(COMMUNITY.decode(self.sealed.opened(stored).value)))
        self.put(key, keys_of(stored.value), changed)

    def members(self, community: str, change: Callable[[bytes], bytes]) -> None:
        key = self.keys.community_page(CommunityId(UUID(community)), 0)
        stored = self.view(key)
        self.put(key, keys_of(stored.value), change(self.sealed.opened(stored).value))

    def put(self, key: bytes, numbers: tuple[KeyNumber, ...], value: bytes) -> None:
        self.server.engine.run(lambda tr: self.sealed.put(tr, key, self.revision, numbers, value))

    def remove(self, key: bytes) -> None:
        self.server.engine.run(lambda tr: versioned.remove(tr, key, self.revision))


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[CommunityCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with CommunityCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: CommunityCaller) -> str:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(**COUNTS))
    caller.recompute(corpus)
    return corpus


def problems(caller: CommunityCaller) -> list[str]:
    """The problems of communities that fsck finds, without those of manifests, which it finds too."""
    server = caller.server
    _, header = open_store(server.engine)
    found = Fsck(server.engine, keyspace(server), server.server.keyring, header.store_id).run().problems
    return [problem for problem in found if "communit" in problem]


def test_sound_communities_have_no_problems_whatever_became_of_their_facts(
    caller: CommunityCaller, corpus: str
) -> None:
    assert problems(caller) == []
    caller.set_status(str(fact_of("salmon", 0)), facts_pb2.FACT_STATUS_DELETED)
    caller.set_status(str(fact_of("turbine", 0)), facts_pb2.FACT_STATUS_QUARANTINED, reason="it made things up")
    caller.update(str(fact_of("turbine", 1)), importance_weight=0.99)
    assert problems(caller) == []
    caller.recompute(corpus)
    assert problems(caller) == []


@pytest.mark.parametrize(
    ("said", "damage"),
    [
        (
            "counts 8 facts but has 9",
            lambda damage, first, _: damage.record(first, lambda community: replace(community, size=8)),
        ),
        ("is not named after its first", lambda damage, first, _: damage.members(first, lambda ids: ids[16:])),
        (
            "counts 9 facts but has 10",
            lambda damage, first, _: damage.members(first, lambda ids: ids + bytes([7] * 16)),
        ),
        (
            "is not a fact that is searched",
            lambda damage, first, _: damage.members(first, lambda ids: ids[:-16] + bytes([9] * 16)),
        ),
        (
            "and in",
            lambda damage, first, second: damage.members(first, lambda ids: ids[:-16] + _first(damage, second)),
        ),
        (
            "not made from its most important",
            lambda damage, first, _: damage.record(
                first, lambda community: replace(community, drawn_from=community.drawn_from[1:])
            ),
        ),
        (
            "not made from the content of its facts",
            lambda damage, first, _: damage.record(first, lambda community: replace(community, label="other words")),
        ),
        (
            "not made from the content of its facts",
            lambda damage, first, _: damage.record(
                first, lambda community: replace(community, keywords=("other", "words"))
            ),
        ),
        (
            "the missing community",
            lambda damage, first, _: damage.remove(damage.keys.community(CommunityId(UUID(first)))),
        ),
    ],
    ids=["size", "name", "more", "stranger", "two", "drawn", "label", "keywords", "gone"],
)
def test_fsck_describes_the_damage(
    caller: CommunityCaller, corpus: str, said: str, damage: Callable[[Damage, str, str], None]
) -> None:
    first, second = (community.id for community in caller.all_communities(corpus))
    damage(Damage(caller.server, corpus), first, second)
    assert any(said in problem for problem in problems(caller)), problems(caller)


def _first(damage: Damage, community: str) -> bytes:
    stored = damage.view(damage.keys.community_page(CommunityId(UUID(community)), 0))
    return damage.sealed.opened(stored).value[:16]


def test_a_label_that_the_erasure_of_one_of_its_sources_would_leave_is_found(caller: CommunityCaller) -> None:
    corpus = caller.corpus("several")
    caller.plant(corpus, *(draft("salmon", number, source_id=f"source {number}") for number in range(6)))
    caller.recompute(corpus)
    (community,) = caller.all_communities(corpus)
    assert problems(caller) == []
    damage = Damage(caller.server, corpus)
    key = damage.keys.community(CommunityId(UUID(community.id)))
    stored = damage.view(key)
    assert len(keys_of(stored.value)) == 5
    damage.put(key, keys_of(stored.value)[:2], damage.sealed.opened(stored).value)
    assert any("not sealed under the keys of all" in problem for problem in problems(caller))
