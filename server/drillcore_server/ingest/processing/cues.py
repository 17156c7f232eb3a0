"""Words that tell what a sentence does: obliges, forbids, sets a deadline or a threshold, defines.

A table of single words, most with a condition on their neighbours: looking words up is many times faster than a
pattern, and every sentence of a corpus goes through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.digests import FindingKind
from drillcore_server.ingest.processing.words import lower, tokens_of, word_set

MOST_TELLING: Final = (
    FindingKind.DEFINITION,
    FindingKind.PROHIBITION,
    FindingKind.DEADLINE,
    FindingKind.THRESHOLD,
    FindingKind.OBLIGATION,
)
"""What forbids is also an obligation, but says more as a prohibition; what must be done by a date is a deadline."""

_NUMBER: Final = "0"
"""Stands for any number in the table."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """Of this kind if the neighbouring words are, or are not, among those named."""

    kind: FindingKind
    after: frozenset[str] | None = None
    before: frozenset[str] | None = None
    not_after: frozenset[str] = frozenset()
    not_before: frozenset[str] = frozenset()

    def holds(self, previous: str, following: str) -> bool:
        return (
            (self.after is None or previous in self.after)
            and (self.before is None or following in self.before)
            and previous not in self.not_after
            and following not in self.not_before
        )


_NOT: Final = word_set("not neither never")
_FIGURES: Final = word_set(f"{_NUMBER} $ € £")
_COUNTS: Final = word_set(
    f"{_NUMBER} one two three five seven ten fifteen thirty sixty ninety calendar business working"
)
_TABLE: Final = (
    ("shall must may should will", _Cue(FindingKind.PROHIBITION, before=_NOT)),
    ("shall must", _Cue(FindingKind.OBLIGATION, not_before=_NOT)),
    ("cannot prohibited prohibits forbidden", _Cue(FindingKind.PROHIBITION)),
    ("unlawful", _Cue(FindingKind.PROHIBITION, after=word_set("is are be"))),
    ("permitted allowed", _Cue(FindingKind.PROHIBITION, after=_NOT)),
    ("person firm one state", _Cue(FindingKind.PROHIBITION, after=word_set("no"), before=word_set("shall may must"))),
    ("required obliged responsible liable", _Cue(FindingKind.OBLIGATION, after=word_set("is are be remains"))),
    ("ensure", _Cue(FindingKind.OBLIGATION)),
    (
        "means",
        _Cue(FindingKind.DEFINITION, not_after=word_set("by the any other such"), not_before=word_set("of to by for")),
    ),
    ("defined construed", _Cue(FindingKind.DEFINITION, after=word_set("is are be"))),
    ("meaning meanings", _Cue(FindingKind.DEFINITION, after=word_set("the same following"))),
    ("minutes hours day days week weeks month months year years", _Cue(FindingKind.DEADLINE, after=_COUNTS)),
    ("later", _Cue(FindingKind.DEADLINE, after=word_set("no not"), before=word_set("than"))),
    ("delay", _Cue(FindingKind.DEADLINE, after=word_set("without undue unreasonable"))),
    ("promptly immediately annually", _Cue(FindingKind.DEADLINE)),
    ("exceed exceeds exceeding percent maximum minimum", _Cue(FindingKind.THRESHOLD)),
    ("than", _Cue(FindingKind.THRESHOLD, after=word_set("more less fewer greater"))),
    ("least most", _Cue(FindingKind.THRESHOLD, after=word_set("at"), before=_FIGURES)),
    ("%", _Cue(FindingKind.THRESHOLD)),
    ("muss müssen doit doivent debe deben deve devono moet moeten", _Cue(FindingKind.OBLIGATION)),
    ("darf dürfen peut peuvent", _Cue(FindingKind.PROHIBITION, before=word_set("nicht keine pas"))),
    ("bezeichnet désigne", _Cue(FindingKind.DEFINITION)),
    ("unverzüglich spätestens", _Cue(FindingKind.DEADLINE)),
    ("mindestens höchstens", _Cue(FindingKind.THRESHOLD)),
)


def _by_word() -> dict[str, tuple[_Cue, ...]]:
    found: dict[str, tuple[_Cue, ...]] = {}
    for words, cue in _TABLE:
        for word in words.split():
            found[word] = (*found.get(word, ()), cue)
    return found


_CUES: Final = _by_word()
_NONE: Final[frozenset[FindingKind]] = frozenset()


def kinds_of(tokens: Sequence[str]) -> frozenset[FindingKind]:
    """What the tokens of a sentence tell it does."""
    if _CUES.keys().isdisjoint(tokens):
        return _NONE
    found = []
    for place, token in enumerate(tokens):
        if token in _CUES:
            previous, following = _at(tokens, place - 1), _at(tokens, place + 1)
            found.extend([cue.kind for cue in _CUES[token] if cue.holds(previous, following)])
    return frozenset(found)


def _at(tokens: Sequence[str], place: int) -> str:
    if not 0 <= place < len(tokens):
        return ""
    return _NUMBER if tokens[place][0].isdigit() else tokens[place]


def kind_of(text: str) -> FindingKind:
    """What a passage is first of all."""
    found = kinds_of(tokens_of(lower(text)))
    return next((kind for kind in MOST_TELLING if kind in found), FindingKind.STATEMENT)
