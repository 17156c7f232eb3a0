"""The life of facts: a fact makes only the transitions that are drawn, and its index entries follow."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_server.facts import model as facts
from drillcore_server.facts.model import SEARCHED_STATUSES, Fact, FactStatus, add_duration, check_duration, fact_hash
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import FactId, PrincipalId, SourceId

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ARROWS = re.compile(r"^ +([A-Z]+) ──> ([A-Z]+) ", re.MULTILINE)
UNITS = ("Y", "M", "W", "D")
TIME_UNITS = ("H", "M", "S")
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))


def drawn() -> set[tuple[str, str]]:
    """The transitions in the drawing of the module's docstring."""
    return set(ARROWS.findall(facts.__doc__ or ""))


def make_fact(**more: object) -> Fact:
    content = "The notified body shall keep a record of ten tokens at least."
    return Fact(
        FactId(UUID(int=1)),
        content,
        fact_hash(content),
        12,
        SourceId("source"),
        "",
        0.5,
        AT,
        AT,
        PrincipalId("ann"),
        {},
        **more,  # type: ignore[arg-type]
    )


@st.composite
def durations(draw: st.DrawFn) -> str:
    """A duration, whose last number may have a fraction."""
    dates = [unit for unit in UNITS if draw(st.booleans())]
    times = [unit for unit in TIME_UNITS if draw(st.booleans())]
    numbers = [str(draw(st.integers(0, 999_999_999))) for _ in (*dates, *times)]
    if numbers and draw(st.booleans()):
        numbers[-1] += draw(st.sampled_from(".,")) + str(draw(st.integers(1, 999_999)))
    date = "".join(map("".join, zip(numbers, dates, strict=False)))
    time = "".join(map("".join, zip(numbers[len(dates) :], times, strict=True)))
    return "P" + date + ("T" + time if time else "")


def is_taken(duration: str) -> bool:
    try:
        check_duration(duration, "ttl")
    except BadInput:
        return False
    return True


@given(st.lists(st.sampled_from(FactStatus), max_size=12))
def test_a_fact_makes_only_the_transitions_that_are_drawn(wanted: list[FactStatus]) -> None:
    fact, legal = make_fact(), drawn()
    for step, status in enumerate(wanted):
        before, at = fact, AT + timedelta(seconds=step)
        if (fact.status.name, status.name) not in legal:
            with pytest.raises(NotReady, match=f"^{Reason.ILLEGAL_TRANSITION.name}:"):
                fact.moved(status, f"step {step}", at)
            continue
        fact = fact.moved(status, f"step {step}", at)
        assert (fact.status, fact.status_reason, fact.modified_at) == (status, f"step {step}", at)
        assert (fact.version, fact.ingested_at) == (before.version + 1, before.ingested_at)


def test_the_transitions_are_those_of_the_specification() -> None:
    seed = {("ACTIVE", status) for status in ("STALE", "DELETED", "QUARANTINED")}
    assert drawn() == seed | {("STALE", "ACTIVE"), ("STALE", "DELETED"), ("QUARANTINED", "ACTIVE")}


@given(st.sampled_from(FactStatus), st.booleans())
def test_only_findable_facts_that_are_not_archived_are_searched(status: FactStatus, archived: bool) -> None:
    fact = make_fact(status=status, archived_at=AT if archived else None)
    assert fact.is_searched == (status in {FactStatus.ACTIVE, FactStatus.STALE} and not archived)
    assert frozenset({FactStatus.ACTIVE, FactStatus.STALE}) == SEARCHED_STATUSES


@given(TIMES, durations())
def test_a_time_to_live_ends_later_than_it_begins(start: datetime, duration: str) -> None:
    if is_taken(duration):
        assert add_duration(start, duration) > start


@given(durations())
def test_a_duration_is_accepted_unless_it_is_zero(duration: str) -> None:
    assert is_taken(duration) == any(digit in duration for digit in "123456789")


@given(TIMES, st.integers(1, 1_000_000), st.sampled_from(["PT{}S", "PT{}M", "PT{}H", "P{}D", "P{}W", "P{}M", "P{}Y"]))
def test_a_longer_duration_does_not_end_earlier(start: datetime, number: int, form: str) -> None:
    assert add_duration(start, form.format(number)) <= add_duration(start, form.format(number + 1))


@given(st.text(max_size=30))
def test_any_text_accepted_as_a_duration_is_ascii_and_ends_later(text: str) -> None:
    if is_taken(text):
        assert text.isascii()
        assert add_duration(AT, text) > AT
