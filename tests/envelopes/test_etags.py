"""Etags of envelopes: exactly as the specification computes them, and keyed where a session asks for it."""

from __future__ import annotations

import hashlib
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.envelopes.headers import etag
from drillcore_server.storage.ids import FactId

IDS = [FactId(UUID(int=number)) for number in (3, 1, 2)]
ANY_IDS = st.lists(st.uuids().map(FactId), unique=True, max_size=20)


def specified(ids: list[FactId]) -> str:
    """The etag as the specification words it."""
    fact_ids_sorted = sorted([str(fact_id) for fact_id in ids])
    etag_input = "|".join(fact_ids_sorted) + "|" + str(len(ids))
    return "sha256:" + hashlib.sha256(etag_input.encode()).hexdigest()


def test_an_etag_is_known_by_its_digits() -> None:
    assert etag(IDS) == "sha256:" + hashlib.sha256(
        b"00000000-0000-0000-0000-000000000001|00000000-0000-0000-0000-000000000002"
        b"|00000000-0000-0000-0000-000000000003|3"
    ).hexdigest()  # fmt: skip


def test_no_facts_have_an_etag_too() -> None:
    assert etag([]) == "sha256:" + hashlib.sha256(b"|0").hexdigest()


@given(ANY_IDS)
def test_the_etag_is_the_specified_one_in_any_order(ids: list[FactId]) -> None:
    assert etag(ids) == etag(reversed(ids)) == specified(ids)


@given(ANY_IDS, ANY_IDS)
def test_other_facts_have_another_etag(facts: list[FactId], others: list[FactId]) -> None:
    assert (etag(facts) == etag(others)) == (set(facts) == set(others))
    assert (etag(facts, b"salt") == etag(others, b"salt")) == (set(facts) == set(others))


@given(ANY_IDS)
def test_a_salt_gives_each_session_an_etag_of_its_own(ids: list[FactId]) -> None:
    assert len({etag(ids), etag(ids, b"one"), etag(ids, b"other")}) == 3
    assert etag(ids, b"one") == etag(reversed(ids), b"one")
    assert etag(ids, b"one").startswith("sha256:")
    assert len(etag(ids, b"one")) == len(etag(ids))
