"""Key quotes: the sentences of a chunk that somebody would cite word for word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from drillcore_server.ingest.processing.units import Unit

QUOTES_MAX: Final = 3
QUOTE_CHARACTERS: Final = range(40, 421)
_FIRST: Final = itemgetter(0)


def key_quotes(found: Sequence[Unit], ranked: Sequence[int]) -> list[int]:
    """Places of the heaviest units that oblige, forbid, define or set a figure, and are of a quotable length.

    `ranked` are the places of units, heaviest first.
    """
    return list(islice((place for place in ranked if _is_quotable(found[place])), QUOTES_MAX))


def _is_quotable(unit: Unit) -> bool:
    if unit.end - unit.start not in QUOTE_CHARACTERS or unit.fragment:
        return False
    return bool(unit.kinds) or any(map(str.isdigit, map(_FIRST, unit.tokens)))
