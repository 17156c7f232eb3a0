"""ISO 8601 durations: which are accepted, and which moment they lead to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.facts.model import add_duration, check_duration
from drillcore_server.kernel.errors import BadInput

START = datetime(2024, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("duration", "until"),
    [
        ("P90D", START + timedelta(days=90)),
        ("PT12H", START + timedelta(hours=12)),
        ("P2W", START + timedelta(weeks=2)),
        ("P1DT2H3M4.5S", START + timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0,5H", START + timedelta(minutes=30)),
        ("PT0.000001S", START + timedelta(microseconds=1)),
        ("P1M", START.replace(month=2, day=29)),
        ("P13M", START.replace(year=2025, month=2, day=28)),
        ("P1Y6M", START.replace(year=2025, month=7)),
        ("P0.5Y", START.replace(month=7)),
        ("P0.5M", START + timedelta(days=14.5)),
        ("PT0M1S", START + timedelta(seconds=1)),
        ("P8000Y", LAST),
        ("P999999999Y999999999M", LAST),
        ("P999999999W", LAST),
        ("PT999999999H", LAST),
    ],
)
def test_a_duration_leads_to_a_moment(duration: str, until: datetime) -> None:
    check_duration(duration, "ttl")
    assert add_duration(START, duration) == until


def test_a_year_after_a_leap_day_ends_on_the_last_of_february() -> None:
    assert add_duration(datetime(2024, 2, 29, tzinfo=UTC), "P1Y") == datetime(2025, 2, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1D",
        "P1",
        "PD",
        "P1S",
        "PT1D",
        "P1D2Y",
        "-P1D",
        "P-1D",
        "+P1D",
        "P 1D",
        " P1D",
        "P1D ",
        "P1D\n",
        "P\n",
        "p1d",
        "P1.D",
        "P.5D",
        "P1.2.3D",
        "P1.5Y6M",
        "P1.5DT1H",
        "P1e3D",
        "PinfD",
        "PnanD",
        "P1_0D",
        "P٣D",
        "P1234567890D",
        "PT0.1234567S",
        "P1Y2M10DT2H30M/P1D",
        "2024-01-01",
        "90 days",
        "P1D" * 1000,
    ],
)
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_duration(text, "ttl")
    assert (refused.value.reason, refused.value.details) == (Reason.INVALID_DURATION, {"field": "ttl"})


@pytest.mark.parametrize("text", ["P0D", "PT0S", "P0Y0M0DT0H0M0.000000S", "P0W"])
def test_a_duration_of_zero_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="longer than nothing"):
        check_duration(text, "ttl")
