"""Money as "EUR 20000000" and shares as "15%", however the text writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from drillcore_server.ingest.processing.entities.mentions import Mention, around, holds_any

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
    """Without an exponent and without noughts after the point."""
    written = f"{size:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
