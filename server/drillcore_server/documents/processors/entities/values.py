"""Finds addresses, amounts and dates in a text, and writes each in one normal form.

Amounts of money become "EUR 20000000", and shares "15%". Dates become ISO 8601, as precise as the text: 2024-03-12,
2024-03 or 2023-Q3.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NamedTuple

UPPER: Final = "A-ZÀ-ÖØ-Þ"
"""Capital letters, for character classes in patterns."""
GAP: Final = r"[\s\u200e\u200f]{1,4}"
"""Matches the gap between two words of a mention: white space, and the invisible marks of word processors."""

_CAPITALS: Final = re.compile(r"[A-Z]{3,}")
_GAPS: Final = re.compile(r"[\s\u200e\u200f]+")


class Mention(NamedTuple):
    start: int
    type: str
    value: str


def tidy(name: str) -> str:
    """Returns a name on one line, without invisible marks and without punctuation at its ends."""
    return _GAPS.sub(" ", name).strip(" ,;:-\u2013—")


def around(anchor: re.Pattern[str], text: str, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of a text around the anchors, without overlaps.

    To search only there is several times faster, since anchors are rare and quick to find.
    """
    start = end = -1
    for found in anchor.finditer(text):
        if found.start() - before > end:
            if end >= 0:
                yield start, end
            start = max(0, found.start() - before)
        end = found.end() + after
    if end >= 0:
        yield start, end


def holds_any(text: str, words: tuple[str, ...]) -> bool:
    """Tells whether the text contains one of the words. Much faster than a pattern, so it comes before one."""
    return any(map(text.__contains__, words))


def capitals_of(text: str) -> str:
    """Returns all runs of three or more capitals, which is much shorter than the text and faster to search."""
    return " ".join(_CAPITALS.findall(text))


def inside_a_word(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")


_EMAIL: Final = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_URL: Final = re.compile(
    r"(?:https?|ftp)://[^\s<>\"'“”\u2018\u2019{}|\\^`]{1,2000}|\bwww\.[^\s<>\"'“”\u2018\u2019{}|\\^`]{3,2000}"
)
_NOT_AT_THE_END: Final = ".,;:!?)]*_"


def addresses(text: str) -> Iterator[Mention]:
    if "@" in text:
        for found in _EMAIL.finditer(text):
            yield Mention(found.start(), "email", found[0].lower())
    if "://" in text or "www." in text:
        for found in _URL.finditer(text):
            yield Mention(found.start(), "url", _url(found[0]))


def _url(written: str) -> str:
    """Returns the address with scheme and host in lower case, without the punctuation of the sentence around it."""
    address = written.rstrip(_NOT_AT_THE_END)
    scheme, there, rest = address.partition("://")
    if not there:
        scheme, rest = "http", address
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")


_SYMBOLS: Final = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_NAMES: Final = {
    "dollar": "USD", "dollars": "USD", "euro": "EUR", "euros": "EUR", "pounds sterling": "GBP", "dirhams": "AED",
}  # fmt: skip
_CODES: Final = "USD|EUR|GBP|AED|CHF|JPY|CNY|INR|AUD|CAD|NZD|SGD|HKD|SAR|SEK|NOK|DKK|PLN|CZK|HUF|ZAR|BRL|KRW"
_SCALES: Final = {
    "thousand": 10**3, "k": 10**3, "million": 10**6, "m": 10**6, "mn": 10**6, "billion": 10**9, "bn": 10**9,
    "trillion": 10**12,
}  # fmt: skip

_NUMBER: Final = (
    r"[0-9]{1,3}(?:[,'\u2019 \u00a0\u202f][0-9]{3}){1,5}(?![0-9])(?:\.[0-9]{1,4})?(?![0-9])"
    r"|[0-9]{1,15}(?:\.[0-9]{1,4})?(?![0-9])"
)
_SCALE: Final = r"(?:[ \u00a0-]?(?P<scale>thousand|million|billion|trillion|mn|bn|m|k)\b)?"
_CURRENCY_FIRST: Final = re.compile(
    rf"(?:(?P<symbol>(?:US)?\$|[€£¥])|\b(?P<code>{_CODES}))[ \u00a0]?(?P<number>{_NUMBER}){_SCALE}"
)
_NUMBER_BEFORE: Final = rf"(?<![\w.,$€£¥])(?P<number>{_NUMBER}){_SCALE}[ \u00a0]?"
_CURRENCY_CODE_LAST: Final = re.compile(rf"{_NUMBER_BEFORE}(?:(?P<symbol>[€£])|(?P<code>{_CODES})\b)")
_CURRENCY_NAME_LAST: Final = re.compile(
    rf"{_NUMBER_BEFORE}(?P<name>{'|'.join(sorted(_NAMES, key=len, reverse=True))})\b"
)
_SHARE: Final = re.compile(
    rf"(?<![\w.,$€£¥])(?P<number>{_NUMBER})(?:[ \u00a0]?%|[\s-]?(?:percent|per[ \u00a0]cent)(?:um|age)?\b)"
)
_CURRENCY_SIGNS: Final = ("$", "€", "£", "¥")
_CURRENCY_CODES: Final = tuple(_CODES.split("|"))
_CURRENCY: Final = re.compile("|".join(map(re.escape, (*_CURRENCY_SIGNS, *_CURRENCY_CODES))))
_CURRENCY_NAMES: Final = ("dollar", "euro", "pounds", "dirham")
_CURRENCY_NAME: Final = re.compile("|".join(_CURRENCY_NAMES))
_PERCENTS: Final = ("%", "percent", "per cent", "per\u00a0cent")
_PERCENT: Final = re.compile("|".join(_PERCENTS))
_BEFORE: Final = 40
_AFTER: Final = 40


def amounts(text: str, capitals: str) -> Iterator[Mention]:
    if holds_any(text, _CURRENCY_SIGNS) or holds_any(capitals, _CURRENCY_CODES):
        for found in _near(_CURRENCY, text, _CURRENCY_FIRST, _CURRENCY_CODE_LAST):
            yield Mention(found.start(), "amount", _money(found.groupdict()))
    if holds_any(text, _CURRENCY_NAMES):
        for found in _near(_CURRENCY_NAME, text, _CURRENCY_NAME_LAST):
            yield Mention(found.start(), "amount", _money(found.groupdict()))
    if holds_any(text, _PERCENTS):
        for found in _near(_PERCENT, text, _SHARE):
            yield Mention(found.start(), "amount", f"{_plain(_decimal(found['number']))}%")


def _near(anchor: re.Pattern[str], text: str, *patterns: re.Pattern[str]) -> Iterator[re.Match[str]]:
    for start, end in around(anchor, text, _BEFORE, _AFTER):
        for pattern in patterns:
            yield from pattern.finditer(text, start, end)


def _money(named: dict[str, str | None]) -> str:
    currency = named.get("code") or _SYMBOLS.get(named.get("symbol") or "") or _NAMES[named["name"] or ""]
    size = _decimal(named["number"] or "0") * _SCALES.get(named["scale"] or "", 1)
    return f"{currency} {_plain(size)}"


def _decimal(number: str) -> Decimal:
    return Decimal("".join(character for character in number if character in "0123456789."))


def _plain(size: Decimal) -> str:
    """Writes a number without an exponent and without zeros at the end of its fraction."""
    written = f"{size:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


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
                ends.add(found.end())  # "March 2024" is not another date in "12 March 2024"
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
    """Returns the date in ISO 8601. Returns None for a date that no calendar has, such as 31 June."""
    if not 1 <= month <= 12:
        return None
    if day is None:
        return f"{year}-{month:02}"
    return f"{year}-{month:02}-{day:02}" if 1 <= day <= calendar.monthrange(year, month)[1] else None


_FORMS: Final = ((_NUMBER_FIRST, _number_first), (_MONTH_FIRST, _month_first), (_QUARTER, _quarter))
