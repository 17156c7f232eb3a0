"""Finds organisations and persons by the form of their names. It is cautious, so that a defined term is no
organisation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from drillcore_server.documents.processors.entities.values import GAP, UPPER, Mention, holds_any, inside_a_word, tidy
from drillcore_server.documents.processors.keywords import word_set

LEGAL_FORMS: Final = word_set("Inc Inc. Ltd Ltd. Limited LLC LLP PLC plc GmbH AG SE SA S.A. NV N.V. BV B.V. Corp Corp.")
SMALL_WORDS: Final = word_set("of and for on the &")
"""Words that may stand between the capitalised words of a name."""
NOT_FIRST: Final = word_set(
    "The A An Any Each Every No Such This That These If When Where In Under For By Of To On With As At Subject "
    "Unless Upon And Or But Its Their Our All Other Whether While Before After Following See Notwithstanding "
    "State Local From Your Pursuant Except"
)
"""Words that have a capital only because a sentence begins with them."""

_WORD: Final = rf"[{UPPER}](?:\.(?=\s)|[\w'\u2019&-]{{0,30}})"  # an initial, or a word
_BETWEEN: Final = r"\s{1,2}(?:(?:of|and|for|on|&)\s(?:the\s)?)?"
_LEGAL_FORM: Final = r",?\s(?:Inc\.?|Ltd\.?|L\.?L\.?C\.?|PLC|plc|GmbH|S\.A\.|N\.V\.|B\.V\.|Corp\.?)(?!\w)"
_RUN: Final = re.compile(rf"{_WORD}(?:{_BETWEEN}{_WORD}|{_LEGAL_FORM}){{1,11}}")


class Run(NamedTuple):
    start: int
    end: int
    words: list[str]


def capitalised_runs(text: str) -> list[Run]:
    """Returns the runs of at least two capitalised words. Leaves out lines in capitals, which are headings."""
    runs = [Run(found.start(), found.end(), tidy(found[0]).split(" ")) for found in _RUN.finditer(text)]
    return [run for run in runs if not _is_heading(run.words) and text[run.start - 1 : run.start] != "/"]


def _is_heading(words: list[str]) -> bool:
    return all(word.isupper() for word in words if word not in SMALL_WORDS)


def without_opening(words: list[str]) -> list[str]:
    """Removes the words that open a sentence, and small words after them."""
    first = 0
    while first < len(words) and (words[first] in NOT_FIRST or words[first] in SMALL_WORDS):
        first += 1
    return words[first:]


_HEADS: Final = word_set(
    "Authority Commission Agency Administration Council Court Bank Board Bureau Department Ministry Institute "
    "University Association Foundation Union Corporation Organization Organisation Parliament Tribunal Treasury "
    "Service Office Laboratory Federation Institution Society Chamber"
)
"""Words that end an organisation's name: "European Banking Authority"."""
_HEADS_BEFORE_OF: Final = word_set(
    "Department Ministry Office Bank Court University Institute Bureau Council Association Chamber"
)
"""Words that begin an organisation's name: "Department of Health"."""
_ENDINGS: Final = _HEADS | LEGAL_FORMS
_KNOWN: Final = (
    "ADGM", "FSRA", "FDA", "SEC", "FCA", "PRA", "ESMA", "EBA", "EIOPA", "ECB", "EMA", "EDPB", "FINRA", "CFTC", "FTC",
    "EPA", "OCC", "FDIC", "BaFin", "ICO", "NIST", "OSHA", "HHS", "IRS", "FATF", "IMF", "IETF", "IANA", "DEA", "FAA",
)  # fmt: skip
_NO_ORGANISATION: Final = word_set(
    "Act Acts Regulation Regulations Rule Rules Directive Code Law Plan Program Programme Report System Agreement "
    "Officer Director Form Number Standard Standards Procedure Procedures Statement Policy Person Persons Fund "
    "Date Period Area Unit Value Level Rate Index Test Method Provider Controller Processor Analysis Assessment "
    "Practice Technology List Information Data Terrorism Laundering Management Category Process Project Facility "
    "Review Order Account Sanctions Rights Systems Funds Securities Instruments Obligations"
)
"""Words that end a name with an acronym that is not an organisation's."""

_ACRONYM: Final = re.compile(
    rf"\((?:the{GAP})?[\"“”'\u2018\u2019]?(?P<acronym>[A-Z][A-Za-z]{{0,2}}[A-Z][A-Z]{{0,5}})[\"“”'\u2018\u2019]?\)"
)
_LONGEST_NAME: Final = 120
_SURNAME: Final = rf"[{UPPER}][\w'\u2019-]{{1,30}}"
_TITLES: Final = ("Mr", "Ms", "Dr", "Prof", "Judge", "Justice")
_TITLED: Final = re.compile(
    rf"\b(?:Mr|Mrs|Ms|Dr|Prof|Professor|Judge|Justice)\.?{GAP}(?:Dr\.?{GAP})?"
    rf"(?P<name>(?:[{UPPER}]\.{GAP}?){{0,3}}{_SURNAME}(?:{GAP}(?:[{UPPER}]\.{GAP})?{_SURNAME}){{0,2}})"
)
_NO_NAME: Final = NOT_FIRST | word_set(
    "Part Section Annex Appendix Title Chapter Schedule Table Figure Article Group Class Type Category Form "
    "Subpart Exhibit Vitamin Rule Regulation Paragraph Item Option Plan Unit Zone Level Phase Step Note Box Code "
    "Grade Hepatitis Act Department"
)


def organisations(text: str, runs: Sequence[Run], capitals: str) -> Iterator[Mention]:
    for run in runs:
        if not _ENDINGS.isdisjoint(run.words):
            for name in _organisations_of(run.words):
                yield Mention(run.start, "organisation", name)
    for acronym in _KNOWN:
        place = text.find(acronym) if acronym in capitals or not acronym.isupper() else -1
        if place >= 0 and not inside_a_word(text, place) and not text[place + len(acronym) :][:1].isalnum():
            yield Mention(place, "organisation", acronym)
    for found in _ACRONYM.finditer(text):
        yield from _defined(text, found)


def persons(text: str, runs: Sequence[Run]) -> Iterator[Mention]:
    if holds_any(text, _TITLES):
        for found in _TITLED.finditer(text):
            if found["name"] not in _NO_NAME:
                yield Mention(found.start(), "person", tidy(found["name"]))
    for run in runs:
        for name in _with_initials(run.words):
            yield Mention(run.start, "person", name)


def _with_initials(words: list[str]) -> Iterator[str]:
    """Yields names with one or two initials inside, such as "John F. Kennedy"."""
    for place in range(1, len(words) - 1):
        if _is_initial(words[place]) and _is_a_name(words[place - 1]):
            last = place + 2 if _is_initial(words[place + 1]) else place + 1
            if last < len(words) and _is_a_name(words[last]):
                yield " ".join(words[place - 1 : last + 1])


def _is_initial(word: str) -> bool:
    return len(word) == 2 and word[1] == "."


def _is_a_name(word: str) -> bool:
    return word not in _NO_NAME and word[0].isupper() and word[1:].islower()


def _organisations_of(words: list[str]) -> Iterator[str]:
    """Yields names that end with a head word, or begin with a head word and continue with "of"."""
    first = 0
    for place, word in enumerate(words):
        after = words[place + 1] if place + 1 < len(words) else ""
        if word in NOT_FIRST or _is_initial(word):
            first = place + 1
        elif word in _HEADS_BEFORE_OF and after == "of":
            yield from _named(words[place:])
            return
        elif word in LEGAL_FORMS or (word in _HEADS and _may_follow_a_name(after)):
            yield from _named(words[first : place + 1])
            first = place + 1


def _may_follow_a_name(word: str) -> bool:
    """Tells whether a name may end before this word. Not so in "Company Service Provider" and "Board of Directors"."""
    return not word or (word in SMALL_WORDS and word != "of") or word in NOT_FIRST


def _named(words: list[str]) -> Iterator[str]:
    name = without_opening(words)
    if len(name) > 1:
        yield " ".join(name).removesuffix("'s").removesuffix("\u2019s").replace(", ", " ").rstrip(".")


def _defined(text: str, found: re.Match[str]) -> Iterator[Mention]:
    """Yields a name and the acronym in brackets after it, if the words of the name begin with its letters."""
    words = text[max(0, found.start() - _LONGEST_NAME) : found.start()].split()
    name = _spelled(words, [letter for letter in found["acronym"] if letter.isupper()])
    if name and name[-1] not in _NO_ORGANISATION:
        yield Mention(found.start(), "organisation", tidy(" ".join(name)))
        yield Mention(found.start(), "organisation", found["acronym"])


def _spelled(words: list[str], letters: list[str]) -> list[str]:
    """Returns the last words, one for each letter, and small words between them. Empty if they do not fit."""
    first = len(words)
    for letter in reversed(letters):
        first -= 1
        while first > 0 and words[first] in SMALL_WORDS:
            first -= 1
        if first < 0 or not words[first].startswith(letter):
            return []
    return words[first:]
