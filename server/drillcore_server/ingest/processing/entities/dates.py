"""Dates, as ISO 8601 writes them and only as precise as the text is: 2024-03-12, 2024-03, and 2023-Q3 for quarters."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from typing import Final

from drillcore_server.ingest.processing.entities.mentions import GAP, Mention, around

_MONTH_NAMES: Final = (
    ("January", "Jan", "Januar", "janvier"),
    ("February", "Feb", "Februar", "février"),
    ("March", "Mar", "März", "mars"),
    ("April", "Apr", "avril"),
    ("May", "Mai", "mai"),
    ("June", "Jun", "Juni", "juin"),
    ("July", "Jul", "Juli", "juillet"),
    ("August", "Aug", "août"),
    ("September", "Sept", "Sep", "septembre"),
    ("October", "Oct", "Oktober", "octobre"),
    ("November", "Nov", "novembre"),
    ("December", "Dec", "Dezember", "décembre"),
)
_MONTHS: Final = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names}
_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_QUARTERS: Final = {"first": 1, "second": 2, "third": 3, "fourth": 4}

_YEAR: Final = re.compile(r"[12][0-9]{3}(?![0-9])")
_BEFORE_YEAR: Final = 40
_AFTER_YEAR: Final = 6
_NUMBER_FIRST: Final = re.compile(
    rf"(?<![\w.,/-])(?:"
    rf"(?P<y>[12][0-9]{{3}})-(?P<m>[0-9]{{2}})-(?P<d>[0-9]{{2}})(?![0-9-])"
    rf"|(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th|\.)?{GAP}(?:(?:day{GAP})?of{GAP})?"
    rf"(?P<month>{_MONTH})\.?,?{GAP}(?P<year>[12][0-9]{{3}})(?![0-9])"
    rf"|(?P<dd>[0-9]{{1,2}})\.(?P<mm>[0-9]{{1,2}})\.(?P<yyyy>[12][0-9]{{3}})(?![0-9.])"
    rf"|(?P<qy>[12][0-9]{{3}})[ -]?Q(?P<q>[1-4])(?![0-9])"
    rf")"
)
_MONTH_FIRST: Final = re.compile(
    rf"\b(?P<month>{_MONTH})\.?{GAP}"
    rf"(?:(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?,?{GAP})?(?P<year>[12][0-9]{{3}})(?![0-9])"
)
_QUARTER: Final = re.compile(
    rf"\bQ(?P<q>[1-4])[ /-]?(?P<year>[12][0-9]{{3}})(?![0-9])"
    rf"|\b(?P<word>first|second|third|fourth){GAP}quarter{GAP}of{GAP}(?P<wordyear>[12][0-9]{{3}})(?![0-9])"
)


def dates(text: str) -> Iterator[Mention]:
    for start, end in around(_YEAR, text, _BEFORE_YEAR, _AFTER_YEAR):
        ends: set[int] = set()
        for pattern, read in _FORMS:
            for found in pattern.finditer(text, start, end):
                value = read(found) if found.end() not in ends else None
                ends.add(found.end())  # "March 2024" is not one more date in "12 March 2024"
                if value is not None:
                    yield Mention(found.start(), "date", value)


def _number_first(found: re.Match[str]) -> str | None:
    if found["y"]:
        return _iso(int(found["y"]), int(found["m"]), int(found["d"]))
    if found["month"]:
        return _iso(int(found["year"]), _MONTHS[found["month"]], int(found["day"]))
    if found["dd"]:
        return _iso(int(found["yyyy"]), int(found["mm"]), int(found["dd"]))
    return f"{found['qy']}-Q{found['q']}"


def _month_first(found: re.Match[str]) -> str | None:
    return _iso(int(found["year"]), _MONTHS[found["month"]], int(found["day"]) if found["day"] else None)


def _quarter(found: re.Match[str]) -> str:
    if found["word"]:
        return f"{found['wordyear']}-Q{_QUARTERS[found['word']]}"
    return f"{found['year']}-Q{found['q']}"


def _iso(year: int, month: int, day: int | None) -> str | None:
    """None for what no calendar has, as the 31st of June."""
    if not 1 <= month <= 12:
        return None
    if day is None:
        return f"{year}-{month:02}"
    return f"{year}-{month:02}-{day:02}" if 1 <= day <= calendar.monthrange(year, month)[1] else None


_FORMS: Final = ((_NUMBER_FIRST, _number_first), (_MONTH_FIRST, _month_first), (_QUARTER, _quarter))
