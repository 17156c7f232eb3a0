"""The life of facts: whatever happens to one, it goes only the ways that are drawn, and its index entries follow."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_server.facts import model as facts
from drillcore_server.facts.model import FOUND, Fact, FactStatus, after, check_duration, fact_hash
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import FactId, PrincipalId, SourceId

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ARROWS = re.compile(r"^ +([A-Z]+) ──> ([A-Z]+) ", re.MULTILINE)
UNITS = ("Y", "M", "W", "D")
TIME_UNITS = ("H", "M", "S")
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))


def drawn() -> set[tuple[str, str]]:
    """The transitions that the picture in the module's own text shows."""
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
    """A duration; its last number may have a fraction."""
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
def test_a_fact_goes_only_the_ways_that_are_drawn(wanted: list[FactStatus]) -> None:
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


def test_the_ways_are_those_of_the_specification() -> None:
    seed = {("ACTIVE", one) for one in ("STALE", "DELETED", "QUARANTINED")}
    assert drawn() == seed | {("STALE", "ACTIVE"), ("STALE", "DELETED"), ("QUARANTINED", "ACTIVE")}


@given(st.sampled_from(FactStatus), st.booleans())
def test_only_what_may_be_found_and_is_not_archived_is_searched(status: FactStatus, archived: bool) -> None:
    fact = make_fact(status=status, archived_at=AT if archived else None)
    assert fact.is_searched == (status in {FactStatus.ACTIVE, FactStatus.STALE} and not archived)
    assert frozenset({FactStatus.ACTIVE, FactStatus.STALE}) == FOUND


@given(TIMES, durations())
def test_a_time_to_live_ends_later_than_it_begins(start: datetime, duration: str) -> None:
    if is_taken(duration):
        assert after(start, duration) > start


@given(durations())
def test_a_duration_is_taken_unless_it_says_nothing(duration: str) -> None:
    assert is_taken(duration) == any(digit in duration for digit in "123456789")


@given(TIMES, st.integers(1, 1_000_000), st.sampled_from(["PT{}S", "PT{}M", "PT{}H", "P{}D", "P{}W", "P{}M", "P{}Y"]))
def test_a_longer_duration_does_not_end_earlier(start: datetime, number: int, form: str) -> None:
    assert after(start, form.format(number)) <= after(start, form.format(number + 1))


@given(st.text(max_size=30))
def test_no_text_is_taken_for_a_duration_by_mistake(text: str) -> None:
    if is_taken(text):
        assert text.isascii()
        assert after(AT, text) > AT
