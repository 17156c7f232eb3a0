"""The state hash is the one of the specification, however it was arrived at."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.facts import state_hash
from drillcore_server.facts.model import Fact, FactStatus, fact_hash
from drillcore_server.facts.state_hash import StateHash, combined_hash
from drillcore_server.storage.ids import FactId, PrincipalId, SourceId

AT = datetime(2026, 1, 1, tzinfo=UTC)
IDS = st.integers(0, 40).map(lambda number: FactId(UUID(int=number << 100)))
STATUSES = st.sampled_from(FactStatus)
CONTENTS = st.sampled_from(["one", "two", "three"])


def fact(fact: FactId, content: str = "content", status: FactStatus = FactStatus.ACTIVE) -> Fact:
    by = PrincipalId("somebody")
    return Fact(fact, content, fact_hash(content), 10, SourceId("s"), "", 0.5, AT, AT, by, {}, status)


def by_the_book(facts: dict[FactId, Fact]) -> str:
    """Seed 000, section 6.1."""
    active = [f for f in facts.values() if f.status.name == "ACTIVE"]
    components = sorted(f"{f.id}:{hashlib.sha256(f.content.encode()).hexdigest()}:{f.status.name}" for f in active)
    return hashlib.sha256("|".join(components).encode()).hexdigest()


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_hash, "BLOCK_FACTS", 3)
        yield


def test_without_facts_it_is_the_hash_of_nothing() -> None:
    assert StateHash().hexdigest() == hashlib.sha256(b"").hexdigest() == StateHash.of([]).hexdigest()


Made = tuple[str, FactStatus] | None
CHANGES = st.dictionaries(IDS, st.none() | st.tuples(CONTENTS, STATUSES), max_size=12)


@settings(max_examples=300)
@given(st.lists(CHANGES, max_size=8))
def test_after_any_changes_it_is_the_hash_by_the_book(
    rounds: list[dict[FactId, tuple[str, FactStatus] | None]],
) -> None:
    model: dict[FactId, Fact] = {}
    kept = StateHash()
    for changes in rounds:
        now = {one: None if made is None else fact(one, *made) for one, made in changes.items()}
        before, digest = kept, kept.hexdigest()
        kept = kept.changed(now)
        model = {one: made for one, made in {**model, **now}.items() if made is not None}
        assert kept.hexdigest() == by_the_book(model)
        assert before.hexdigest() == digest, "what others hold has changed"
        assert kept.count == sum(one.status is FactStatus.ACTIVE for one in model.values())
        assert kept.hexdigest() == StateHash.of(model[one] for one in sorted(model)).hexdigest()


def test_new_facts_are_hashed_from_the_last_block_on() -> None:
    made = [FactId(UUID(int=number)) for number in range(30)]
    kept = StateHash.of(fact(one) for one in made)
    after = kept.changed({FactId(UUID(int=99)): fact(FactId(UUID(int=99)))})
    assert all(one is other for one, other in zip(kept.states[:-1], after.states, strict=False))


def test_the_combined_hash_does_not_depend_on_the_order_and_tells_corpora_apart() -> None:
    one, other = (UUID(int=1), 3, "a" * 64), (UUID(int=2), 4, "b" * 64)
    assert combined_hash([one, other]) == combined_hash([other, one])
    assert len({combined_hash([one]), combined_hash([other]), combined_hash([one, other]), combined_hash([])}) == 4
