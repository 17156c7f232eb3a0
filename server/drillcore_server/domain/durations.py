"""ISO 8601 durations, as in `P90D`, `PT12H` or `P1Y6M`. Years and months are counted by the calendar."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput

_WHOLE: Final = "[0-9]{1,9}"
_NUMBER: Final = rf"({_WHOLE}(?:[.,][0-9]{{1,6}})?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_FRACTION_BEFORE_THE_LAST: Final = re.compile(r"[.,][0-9]+[A-Z].")
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MICROSECONDS: Final = (604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
"""Of a week, a day, an hour, a minute and a second."""


def check_duration(text: str, field: str) -> None:
    """Refuses what is no duration, none at all, or less than none. Only the last number may have a fraction."""
    if not _DURATION.fullmatch(text) or _FRACTION_BEFORE_THE_LAST.search(text):
        message = f"{field} must be an ISO 8601 duration such as P90D or PT12H, and not negative"
        raise BadInput(Reason.INVALID_DURATION, message, field=field)
    if not any(_numbers(text)):
        raise BadInput(Reason.INVALID_DURATION, f"{field} must be longer than nothing", field=field)


def after(start: datetime, duration: str) -> datetime:
    """The moment a duration after another; the last one there is if it would be later. Always a later one."""
    years, months, *shorter = _numbers(duration)
    microseconds = sum(number * unit for number, unit in zip(shorter, _MICROSECONDS, strict=True))
    try:
        moved = _months_later(start, 12 * years + months)
        return moved + timedelta(microseconds=round(microseconds))
    except (OverflowError, ValueError):
        return _LAST


def _months_later(start: datetime, months: Fraction) -> datetime:
    """Whole months by the calendar; of the rest, its share of the month that follows."""
    whole = int(months)
    moved = _whole_months_later(start, whole)
    if months == whole:
        return moved
    return moved + (_whole_months_later(start, whole + 1) - moved) * float(months - whole)


def _whole_months_later(start: datetime, months: int) -> datetime:
    """The same day of a later month, or the last one that month has."""
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)


def _numbers(text: str) -> list[Fraction]:
    """Years, months, weeks, days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, "checked when it came"
    return [Fraction((one or "0").replace(",", ".")) for one in found.groups()]
