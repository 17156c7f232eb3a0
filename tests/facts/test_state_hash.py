"""The state hash is that of the specification, whatever changes led to it."""

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


def specified_hash(facts: dict[FactId, Fact]) -> str:
    """The state hash as seed 000, section 6.1 defines it."""
    active = [f for f in facts.values() if f.status.name == "ACTIVE"]
    components = sorted(f"{f.id}:{hashlib.sha256(f.content.encode()).hexdigest()}:{f.status.name}" for f in active)
    return hashlib.sha256("|".join(components).encode()).hexdigest()


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_hash, "BLOCK_FACTS", 3)
        yield


def test_the_state_hash_without_facts_is_the_hash_of_nothing() -> None:
    assert StateHash().hexdigest() == hashlib.sha256(b"").hexdigest() == StateHash.of([]).hexdigest()


Made = tuple[str, FactStatus] | None
CHANGES = st.dictionaries(IDS, st.none() | st.tuples(CONTENTS, STATUSES), max_size=12)


@settings(max_examples=300)
@given(st.lists(CHANGES, max_size=8))
def test_after_any_changes_the_state_hash_is_that_of_the_specification(
    rounds: list[dict[FactId, tuple[str, FactStatus] | None]],
) -> None:
    model: dict[FactId, Fact] = {}
    kept = StateHash()
    for changes in rounds:
        now = {fact_id: None if made is None else fact(fact_id, *made) for fact_id, made in changes.items()}
        before, digest = kept, kept.hexdigest()
        kept = kept.changed(now)
        model = {fact_id: made for fact_id, made in {**model, **now}.items() if made is not None}
        assert kept.hexdigest() == specified_hash(model)
        assert before.hexdigest() == digest, "an earlier state hash has changed"
        assert kept.count == sum(present.status is FactStatus.ACTIVE for present in model.values())
        assert kept.hexdigest() == StateHash.of(model[fact_id] for fact_id in sorted(model)).hexdigest()


def test_new_facts_are_hashed_from_the_last_block_on() -> None:
    made = [FactId(UUID(int=number)) for number in range(30)]
    kept = StateHash.of(fact(fact_id) for fact_id in made)
    after = kept.changed({FactId(UUID(int=99)): fact(FactId(UUID(int=99)))})
    assert all(old is new for old, new in zip(kept.states[:-1], after.states, strict=False))


def test_the_combined_hash_is_independent_of_order_and_distinguishes_corpora() -> None:
    first, second = (UUID(int=1), 3, "a" * 64), (UUID(int=2), 4, "b" * 64)
    assert combined_hash([first, second]) == combined_hash([second, first])
    assert (
        len({combined_hash([first]), combined_hash([second]), combined_hash([first, second]), combined_hash([])}) == 4
    )
