"""Cuts a chunk into units: sentences, short lists and clauses. Tells what kind of statement a sentence makes: an
obligation, a prohibition, a definition, a deadline or a threshold.

Cues are single words in a table, most with a condition on their neighbours. To look words up is many times faster than
to match a pattern, and every sentence of a corpus goes through here. `sentencex` finds the ends of sentences. The rules
here handle the numbering and the line breaks of legal text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import sentencex

from drillcore_server.documents.processors.keywords import lower, tokens_of, without_surrogates, word_set
from drillcore_server.hierarchy.digests import FindingKind

MOST_TELLING: Final = (
    FindingKind.DEFINITION,
    FindingKind.PROHIBITION,
    FindingKind.DEADLINE,
    FindingKind.THRESHOLD,
    FindingKind.OBLIGATION,
)
"""The kinds in order of precedence. A prohibition is also an obligation, but says more. An obligation with a date is a
deadline."""

_NUMBER: Final = "0"
"""Stands for any number in the table."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """A cue for this kind of statement, under conditions on the words before and after it."""

    kind: FindingKind
    after: frozenset[str] | None = None
    """The previous word must be one of these. None allows any word."""
    before: frozenset[str] | None = None
    """The next word must be one of these. None allows any word."""
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
    """Returns the kinds of statement that a sentence with these tokens makes."""
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
    """Returns the kind of statement that says most about a passage."""
    found = kinds_of(tokens_of(lower(text)))
    return next((kind for kind in MOST_TELLING if kind in found), FindingKind.STATEMENT)


MARKER_FORMS: Final = (
    r"(?:\d{1,3}\.){0,6}(?:\(\w{1,5}\)){1,4}"  # (a)  (a)(1)  1.1.1.(2)
    r"|\d{1,3}(?:\.\d{1,3}){0,5}[.)]"  # 1.  1)  1.2.3.
    r"|\d{1,3}(?:\.\d{1,3}){1,5}"  # 1.2.3
    r"|[A-Za-z][.)]|[ivxIVX]{2,5}[.)]"  # a)  iv.
    r"|[-*•\u2013—·]"
)
"""Forms of markers, such as (a). The text after it decides whether it is a marker."""
MARKER: Final = re.compile(rf"(?:{MARKER_FORMS})(?=[ \t])")
"""Matches the beginning of a list item or of a numbered paragraph."""

_LINE_MARKER: Final = re.compile(rf"\n[ \t]*(?:{MARKER_FORMS})(?=[ \t])")
"""Begins with the line end before the marker, because the search for a literal is fast."""
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
_ENDS_BEFORE_ITEM: Final = (".", ":", ";", ",", "!", "?", "—", " and", " or", " und", " oder", " et", " ou")
_LOOK_BACK: Final = 12
_ONLY_A_NUMBER: Final = re.compile(r"\s*(?:(?=\D{0,30}\d)\S{1,30}[.)]|[IVXLC]{1,6}\.|[A-Za-z]{1,3}\.)\s*")
"""Matches a number or letters such as "3.", "IV." or "1.2.Guidance.1.", which belong to the text after them."""
_ENDS_ABBREVIATED: Final = re.compile(
    r"\b(?:No|Nos|Art|Arts|Sec|Secs|Reg|Para|Abs|Nr|Ziff|cf|ca|approx|et seq|Cir|Stat)\.\s{0,3}$", re.IGNORECASE
)

WINDOW_CHARACTERS: Final = 16_384
"""The most that `sentencex` gets at once, and more than a chunk has. It is quadratic in unclosed quotation marks."""

Bounds = tuple[int, int]


def sentences(text: str, language: str) -> list[Bounds]:
    """Returns start and end of each sentence, heading and list item, in order, without the white space around them.

    Only white space is left out.
    """
    trimmed = (_trim(text, start, end) for start, end in _pieces(text, language))
    return [bounds for bounds in trimmed if bounds[0] < bounds[1]]


def _pieces(text: str, language: str) -> list[Bounds]:
    markers = _markers(text)
    hard = _hard_starts(text, markers)
    starts = sorted({0, len(text), *hard, *_soft_starts(text, markers, language)})
    kept: list[int] = []
    for place, start in enumerate(starts):
        if start in hard or not kept or start == len(text) or not _joined(text, kept[-1], start, starts[place + 1]):
            kept.append(start)
    return list(pairwise(kept))


def _markers(text: str) -> list[Bounds]:
    """Returns the markers at the beginning of lines."""
    first = MARKER.match(text, len(text) - len(text.lstrip(" \t")))
    found = [(place.start() + 1, place.end()) for place in _LINE_MARKER.finditer(text)]
    return [(0, first.end()), *found] if first else found


def _soft_starts(text: str, markers: list[Bounds], language: str) -> list[int]:
    """Returns the starts of sentences by `sentencex`.

    It gets the text without markers, since it takes a whole list item for one sentence.
    """
    plain = _blanked(without_surrogates(text), markers)
    windows = (plain[start : start + WINDOW_CHARACTERS] for start in range(0, len(plain), WINDOW_CHARACTERS))
    ends = list(accumulate(len(piece) for window in windows for piece in sentencex.segment(language, window)))
    return ends if ends and ends[-1] == len(text) else []


def _blanked(text: str, markers: list[Bounds]) -> str:
    if not markers:
        return text
    parts, last = [], 0
    for start, end in markers:
        parts += [text[last:start], " " * (end - start)]
        last = end
    return "".join((*parts, text[last:]))


def _hard_starts(text: str, markers: list[Bounds]) -> set[int]:
    """Returns the starts of paragraphs and list items. Sentences are never joined across them."""
    starts = {found.end() for found in _BLANK_LINE.finditer(text)}
    starts.update([start for start, _ in markers if _opens_item(text, start)])
    return starts


def _opens_item(text: str, start: int) -> bool:
    """Tells whether a marker at the start of a line begins an item, not a reference such as "paragraph (b)"."""
    before = text[max(0, start - _LOOK_BACK) : start]
    return before.count("\n") > 1 or not before.strip() or before.rstrip().endswith(_ENDS_BEFORE_ITEM)


def _joined(text: str, last: int, start: int, end: int) -> bool:
    """Tells whether the text at `start` still belongs to the sentence that began at `last`."""
    following = text[start:end].lstrip()
    if not following:
        return True
    if following[0].islower() or _ONLY_A_NUMBER.fullmatch(text, last, start):
        return True
    return following[0].isdigit() and _ENDS_ABBREVIATED.search(text, max(last, start - _LOOK_BACK), start) is not None


def _trim(text: str, start: int, end: int) -> Bounds:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


UNIT_CHARACTERS_MAX: Final = 600
"""Longer sentences are cut after a clause, so that one sentence never fills a summary."""
LIST_CHARACTERS_MAX: Final = 400
"""A list up to this length stays with its introduction, because "(b) a bank" means nothing alone."""
_CUTS: Final = ("; ", ": ", ", ", " ", "\n")


class Unit(NamedTuple):
    start: int
    end: int
    tokens: list[str]
    """The words of the unit in lower case, and the marks between them."""
    kinds: frozenset[FindingKind]
    fragment: bool
    """True if the unit makes no sense alone: an item without its introduction, or an introduction without items."""


def units(text: str, lowered: str, language: str) -> list[Unit]:
    """Returns the units of the text in order. Only white space is left out. `lowered` is the text in lower case."""
    cut: list[Bounds] = []
    for start, end in _with_lists(text, sentences(text, language)):
        if end - start <= UNIT_CHARACTERS_MAX:
            cut.append((start, end))
        else:
            cut.extend(_short(text, start, end))
    return [_unit(text, lowered, start, end) for start, end in cut]


def _unit(text: str, lowered: str, start: int, end: int) -> Unit:
    tokens = tokens_of(lowered[start:end])
    return Unit(start, end, tokens, kinds_of(tokens), _is_fragment(text, start, end))


def _with_lists(text: str, found: list[Bounds]) -> Iterator[Bounds]:
    """Yields sentences. A sentence that ends with a colon includes the list after it, if both are short enough."""
    place = 0
    while place < len(found):
        start, end = found[place]
        place += 1
        if text[end - 1] == ":":
            following = _after_list(text, found, place, start + LIST_CHARACTERS_MAX)
            end, place = found[following - 1][1], following
        yield start, end


def _after_list(text: str, found: list[Bounds], first: int, limit: int) -> int:
    """Returns the place after the list, which ends at a full stop or after its last item; `first` if it is too long."""
    place = first
    while place < len(found) and MARKER.match(text, found[place][0]):
        if found[place][1] > limit:
            return first
        place += 1
        if text[found[place - 1][1] - 1] == ".":
            break
    return place


def _short(text: str, start: int, end: int) -> Iterator[Bounds]:
    while end - start > UNIT_CHARACTERS_MAX:
        cut = _cut(text, start, start + UNIT_CHARACTERS_MAX)
        kept = len(text[start:cut].rstrip())
        if kept:
            yield start, start + kept
        start = cut
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        yield start, end


def _cut(text: str, start: int, limit: int) -> int:
    """Returns the place to cut at: after a clause that ends in the second half, else between words, else anywhere."""
    half = (start + limit) // 2
    places = (text.rfind(mark, half, limit) + len(mark) for mark in _CUTS if text.rfind(mark, half, limit) >= 0)
    return next(places, limit)


def _is_fragment(text: str, start: int, end: int) -> bool:
    if text[end - 1] in ":;,":
        return True
    marker = MARKER.match(text, start, end)
    if marker is not None:
        start = end - len(text[marker.end() : end].lstrip())
    return text[start : start + 1].islower()
