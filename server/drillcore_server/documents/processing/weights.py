"""Weighs how much a unit is worth quoting.

    weight = (position + cues + keywords + headings + entities) x length x form        0 to 1

- position: the first unit of a chunk states its subject; later units count less and less.
- cues: each kind of cue counts once (obligation, prohibition, definition, deadline, threshold).
- keywords: how much of the unit consists of what the chunk is about.
- headings: whether it takes up words of the headings above.
- entities: dates, amounts, references and names make a statement precise.
- length: very short units say nothing, very long ones too much.
- form: fragments, headings and table rows do not stand alone.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from drillcore_server.documents.processing.sentences import Unit
from drillcore_server.hierarchy.digests import FindingKind

POSITION: Final = 0.12
CUES: Final = {
    FindingKind.OBLIGATION: 0.20,
    FindingKind.PROHIBITION: 0.22,
    FindingKind.DEFINITION: 0.18,
    FindingKind.DEADLINE: 0.12,
    FindingKind.THRESHOLD: 0.08,
}
CUES_MAX: Final = 0.40
KEYWORDS: Final = 0.28
HEADINGS: Final = 0.08
ENTITY: Final = 0.04
ENTITIES_MAX: Final = 0.12

SHORT_CHARACTERS: Final = 40
SHORT: Final = 0.4
LONG_CHARACTERS: Final = 400
LONG: Final = 0.85

FRAGMENT: Final = 0.5
UNFINISHED: Final = 0.45
"""The factor for a unit without a mark at its end: a heading or a label."""
TABLE: Final = 0.3

_ENDS: Final = frozenset('.!?;:)"”\u2019»。\uff01\uff1f।؟')
_DECIMALS: Final = 4


def unit_weights(
    text: str,
    found: Sequence[Unit],
    scores: dict[str, int],
    headings: frozenset[str],
    mention_starts: Sequence[int],
) -> list[float]:
    """Returns one weight for each unit. `mention_starts` must be sorted."""
    best = max(scores.values(), default=1)
    return [
        round(
            (
                POSITION / (1 + place)
                + _cues(unit.kinds)
                + KEYWORDS * _density(unit.tokens, scores, best)
                + (0.0 if headings.isdisjoint(unit.tokens) else HEADINGS)
                + min(ENTITIES_MAX, ENTITY * _between(mention_starts, unit))
            )
            * _length(unit.end - unit.start)
            * _form(text, unit),
            _DECIMALS,
        )
        for place, unit in enumerate(found)
    ]


@functools.cache
def _cues(kinds: frozenset[FindingKind]) -> float:
    return min(CUES_MAX, sum([weight for kind, weight in CUES.items() if kind in kinds], 0.0))


def _density(tokens: Sequence[str], scores: dict[str, int], best: int) -> float:
    """Returns the score of an average word in this unit as a share of the best word's, doubled since half of the words
    are small."""
    if not tokens:
        return 0.0
    total = sum(map(scores.get, tokens, repeat(0)))
    return min(1.0, 2 * total / (best * len(tokens)))


def _between(starts: Sequence[int], unit: Unit) -> int:
    return bisect_left(starts, unit.end) - bisect_left(starts, unit.start)


def _length(characters: int) -> float:
    if characters < SHORT_CHARACTERS:
        return SHORT
    return LONG if characters > LONG_CHARACTERS else 1.0


def _form(text: str, unit: Unit) -> float:
    if text.count("\t", unit.start, unit.end) > 1 or "|" in unit.tokens:
        return TABLE
    if text[unit.end - 1] not in _ENDS:
        return UNFINISHED
    return FRAGMENT if unit.fragment else 1.0
