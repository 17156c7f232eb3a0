"""Whether a query asks for what holds now: then newer facts weigh more.

Found by words ("current", "latest", "this year") and by this year or the one before it as a number. Words between
quotation marks are what is asked about, and do not count. Nor do years that are part of a name or of a number: of a
regulation (2025/1234), a section (21 CFR 2026.5), an edition (ISO 27001:2025), an act (Data Act 2025), an amount.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

CHARACTERS_MAX: Final = 20_000
"""Of a query that are looked at."""

_QUOTED: Final = re.compile(r'"[^"]{0,500}"|“[^”]{0,500}”|«[^»]{0,500}»|„[^“”]{0,500}[“”]')
_NOT_NOW: Final = re.compile(
    r"\bat the latest\b"
    r"|\b(?:electric(?:al)?|alternating|direct|eddy|leakage|inrush|rated)[ -]currents?\b"
    r"|\bcurrent (?:accounts?|assets?|liabilit(?:y|ies))\b"
    r"|\b(?:keep|keeps|keeping|kept|stay|stays|staying|remain|remains|remaining|maintain|maintains|maintained"
    r"|maintaining|is|are|be|being)\b(?: [^ ,.;?]+){0,4} (?:current|up[ -]to[ -]date)(?=$|[,.;?]| with\b)"
)
"""What has the words and means something else: deadlines, physics, book-keeping, and a duty to keep things so."""
_NOW: Final = re.compile(
    r"\b(?:current|currently|latest|recent|recently|newest|nowadays|today|now|up[ -]to[ -]date)\b"
    r"|\b(?:this|the present) (?:year|quarter|month|week)\b"
    r"|\blast (?:year|quarter|month|week)\b(?! of\b)"
    r"|\bat (?:present|the moment)\b"
    r"|\b(?:aktuell(?:e[mnrs]?)?|derzeit(?:ig(?:e[mnrs]?)?)?|heute|neueste[mnrs]?|dieses jahr)\b"
    r"|\b(?:actuel(?:le)?s?|actuellement|récente?s?|aujourd['\u2019]hui|cette année)(?!\w)"
)
_AS_OF: Final = re.compile(r"\bas of (?P<when>(?:[^ ]+ ?){1,4})")
_YEAR: Final = re.compile(r"(?<![\w$€£§.,:/+#])(?P<year>(?:19|20)[0-9]{2})(?![\w%€]|[/.,:][0-9])")
_ANY_YEAR: Final = re.compile(r"\b(?:19|20)[0-9]{2}\b")
_NAMED_BEFORE: Final = re.compile(
    r"(?:\b(?:cfr|usc|article|art|section|sec|paragraph|para|rule|clause|page|no|number|nr|item|line|version|iso|iec"
    r"|act|bill|ordinance|directive|regulations?|order)\.?|§|[$€£]|[a-z]-)\s*\(?$"
)
_COUNTED_AFTER: Final = re.compile(
    r"\s?(?:tokens?|facts?|documents?|items?|records?|people|persons?|employees|customers|clients|euros?|dollars?|eur"
    r"|usd|gbp|aed|mg|kg|g|ml|mm|cm|km|m|hours?|days?|minutes?|seconds?|units?|times|bytes?)\b"
)


def is_time_sensitive(query: str, today: date) -> bool:
    """By the query alone and the day: the same query on the same day gives the same answer."""
    text = _NOT_NOW.sub(" ", _plain(query))
    return bool(_NOW.search(text)) or _is_as_of_now(text, today) or _names_a_recent_year(text, today)


def _plain(query: str) -> str:
    return " ".join(_QUOTED.sub(" ", query[:CHARACTERS_MAX]).lower().split())


def _is_as_of_now(text: str, today: date) -> bool:
    """As of a day of long ago is no wish for news."""
    for found in _AS_OF.finditer(text):
        years = [int(year) for year in _ANY_YEAR.findall(found["when"])]
        if all(_is_recent(year, today) for year in years):
            return True
    return False


def _names_a_recent_year(text: str, today: date) -> bool:
    for found in _YEAR.finditer(text):
        before, after = text[max(found.start() - 20, 0) : found.start()], text[found.end() : found.end() + 12]
        counted = _COUNTED_AFTER.match(after)
        if _is_recent(int(found["year"]), today) and not counted and not _NAMED_BEFORE.search(before):
            return True
    return False


def _is_recent(year: int, today: date) -> bool:
    return today.year - 1 <= year <= today.year
