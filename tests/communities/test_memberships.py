"""Memberships: which community each fact is in, kept as arrays in memory that follow changes of facts."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from drillcore_server.communities.memberships import ID, Memberships
from drillcore_server.storage.ids import CommunityId, FactId
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex

FACTS = [FactId(UUID(int=number << 8)) for number in (3, 1, 4, 15, 9, 2, 6)]
"""The last byte of each id is zero, which numpy would cut off."""
ONE, OTHER = CommunityId(UUID(int=1 << 16)), CommunityId(UUID(int=2 << 16))


@pytest.fixture
def found() -> Memberships:
    order = sorted(FACTS)
    communities = np.array([ONE.bytes, OTHER.bytes], ID)
    places = np.array([0, 0, 1, 1, 1, 0, 1], np.int32)
    return Memberships(communities, np.array([fact.bytes for fact in order], ID), places, np.ones(7, np.bool_))


def test_facts_and_communities_lead_to_each_other(found: Memberships) -> None:
    order = sorted(FACTS)
    assert found.members(ONE) == [order[0], order[1], order[5]]
    assert found.members(OTHER) == [order[2], order[3], order[4], order[6]]
    assert found.communities_of([order[6], order[0]]) == [OTHER, ONE]
    assert found.by_size() == [(OTHER, 4), (ONE, 3)]


def test_unknown_facts_are_in_no_community(found: Memberships) -> None:
    nobody = [FactId(UUID(int=number)) for number in (0, 5 << 8, 1 << 100)]
    assert found.communities_of(nobody) == [None, None, None]
    assert found.members(CommunityId(UUID(int=7))) == []
    assert found.members(CommunityId(UUID(int=1 << 120))) == []


def test_facts_out_of_the_index_are_in_no_community_until_they_are_back(found: Memberships) -> None:
    fact = sorted(FACTS)[2]
    place = found.at([fact])[fact]
    without = found.changed({place: False})
    assert without.communities_of([fact]) == [None]
    assert fact not in without.members(OTHER)
    assert without.by_size() == [(ONE, 3), (OTHER, 3)]
    assert without.at([fact]) == {fact: place}
    assert found.communities_of([fact]) == [OTHER], "earlier memberships do not change"
    assert without.changed({place: True}).communities_of([fact]) == [OTHER]


def test_memberships_without_facts_have_no_communities() -> None:
    nothing = Memberships(np.array([], ID), np.array([], ID), np.array([], np.int32), np.array([], np.bool_))
    assert nothing.by_size() == []
    assert nothing.communities_of([FACTS[0]]) == [None]
    assert nothing.members(ONE) == []


def test_members_are_found_in_each_index_that_has_them(found: Memberships) -> None:
    order = sorted(FACTS)
    rows = np.eye(7, dtype=np.float32)
    index = VectorIndex[FactId].of(zip(order, rows, strict=True), VectorSettings())
    fewer = index.changed({order[0]: None, order[1]: rows[3]})
    for searched in (index, fewer, index):
        for _ in range(2):
            labels = found.labels_in(searched, [OTHER, ONE])
            assert [searched.ids_at(row) for row in labels] == [
                _there(found, searched, OTHER),
                _there(found, searched, ONE),
            ]
    assert found.labels_in(fewer, [ONE])[0].tolist() == [5, 7], "the second fact has a new place"


def _there(found: Memberships, index: VectorIndex[FactId], community: CommunityId) -> list[FactId]:
    present = [member for member in found.members(community) if member in index]
    return index.ids_at(index.labels([member.bytes for member in present]))
