"""Times as numbers: microseconds since 1970, exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def from_microseconds(number: int) -> datetime:
    return _EPOCH + number * _MICROSECOND


def to_microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND
