"""Runs of capitalised words, in which names of organisations and of acts are found."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from drillcore_server.ingest.processing.entities.mentions import UPPER, tidy
from drillcore_server.ingest.processing.words import word_set

LEGAL_FORMS: Final = word_set("Inc Inc. Ltd Ltd. Limited LLC LLP PLC plc GmbH AG SE SA S.A. NV N.V. BV B.V. Corp Corp.")
SMALL_WORDS: Final = word_set("of and for on the &")
"""What may stand between the capitalised words of one name."""
NOT_FIRST: Final = word_set(
    "The A An Any Each Every No Such This That These If When Where In Under For By Of To On With As At Subject "
    "Unless Upon And Or But Its Their Our All Other Whether While Before After Following See Notwithstanding "
    "State Local From Your Pursuant Except"
)
"""Capitalised only because a sentence begins."""

_WORD: Final = rf"[{UPPER}](?:\.(?=\s)|[\w'\u2019&-]{{0,30}})"  # an initial, or a word
_BETWEEN: Final = r"\s{1,2}(?:(?:of|and|for|on|&)\s(?:the\s)?)?"
_LEGAL_FORM: Final = r",?\s(?:Inc\.?|Ltd\.?|L\.?L\.?C\.?|PLC|plc|GmbH|S\.A\.|N\.V\.|B\.V\.|Corp\.?)(?!\w)"
_RUN: Final = re.compile(rf"{_WORD}(?:{_BETWEEN}{_WORD}|{_LEGAL_FORM}){{1,11}}")


class Run(NamedTuple):
    start: int
    end: int
    words: list[str]


def capitalised_runs(text: str) -> list[Run]:
    """At least two words each; lines in capitals throughout are left out, which are headings."""
    runs = [Run(found.start(), found.end(), tidy(found[0]).split(" ")) for found in _RUN.finditer(text)]
    return [run for run in runs if not _is_heading(run.words) and text[run.start - 1 : run.start] != "/"]


def _is_heading(words: list[str]) -> bool:
    return all(word.isupper() for word in words if word not in SMALL_WORDS)


def without_opening(words: list[str]) -> list[str]:
    """Without the words a sentence opens with, and small ones left over in front."""
    first = 0
    while first < len(words) and (words[first] in NOT_FIRST or words[first] in SMALL_WORDS):
        first += 1
    return words[first:]
