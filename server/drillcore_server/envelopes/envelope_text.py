"""Writes facts as a text for a prompt, each with the number by which it is cited.

    Markdown: [1] content              XML: <facts>                       JSON: [{"n":1,"text":"content"},
              [2, stale] content            <fact n="1">content</fact>          {"n":2,"note":"stale","text":"content"}]
                                            </facts>

An introduction that several facts share is written once. Facts drawn from a list begin with the words that introduce
the list: "The firm must: (b) train staff". If several facts of a document have the same introduction, the first in the
text has it on a line of its own. The others have only their own words, and say as which fact they begin:

    [5] The firm must:
      (a) keep records for five years
    [9, begins as 5] (b) train staff

A reader who puts the first line of [5] and a space before the words of [9] has the whole fact. The form explains
itself. A legend would take 12 tokens, while the word "begins" takes one token for each fact. The other formats write
<fact n="9" begins-as="5"> and {"n":9,"begins_as":5.

No words of a fact can be mistaken for another fact, its number, its note or its reference. XML and JSON quote them. In
Markdown a bracket before a digit gets a backslash, and lines after the first are indented.

The part of a fact is its piece of the text with the line end after it. No token of tiktoken's encodings reaches across
that line end, so the counts of the parts add up to the count of the text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

from drillcore_server.envelopes.model import Candidate, GroundingMode, RenderFormat
from drillcore_server.facts.model import Fact
from drillcore_server.storage.ids import DocumentId

Introduction = tuple[DocumentId | None, str]
"""A document and the words of its introduction."""


@dataclass(frozen=True, slots=True)
class FactText:
    """A fact as a text shows it."""

    fact: Candidate
    number: int
    begins_as: int = 0
    """The number of an earlier fact that shows its introduction; 0 if this fact is shown whole."""
    introduces: bool = False
    """Whether later facts refer to this fact for their introduction."""

    @property
    def words(self) -> str:
        lead, own = self.fact.lead, self.fact.content[len(self.fact.lead) + 1 :]
        if self.begins_as:
            return own
        return f"{lead}\n{own}" if self.introduces else self.fact.content


class Introductions:
    """Decides which introductions a text shows once: those of several facts that take more tokens than a reference."""

    def __init__(self, facts: Iterable[Candidate], is_worth: Callable[[str], bool]) -> None:
        self._facts_with = Counter((fact.document, fact.lead) for fact in facts if fact.lead)
        self._is_worth = cache(is_worth)

    def of(self, fact: Candidate) -> Introduction | None:
        """Returns the introduction that the fact shares; None if the fact is shown whole."""
        introduction = fact.document, fact.lead
        return introduction if self._facts_with[introduction] > 1 and self._is_worth(fact.lead) else None

    def texts(self, facts: Sequence[Candidate]) -> list[FactText]:
        """Numbers the facts from 1 in the given order, which is that of the text."""
        first: dict[Introduction | int, int] = {}
        begins = [first.setdefault(self.of(fact) or number, number) for number, fact in enumerate(facts, 1)]
        times = Counter(begins)
        return [
            FactText(fact, number, begins_as=begin if begin < number else 0, introduces=times[number] > 1)
            for number, (fact, begin) in enumerate(zip(facts, begins, strict=True), 1)
        ]


def lead_of(fact: Fact) -> str:
    """Returns the introduction of a fact; empty if it is not whole words on one line, or if no other words follow."""
    lead, own = fact.content[: fact.lead_characters], fact.content[fact.lead_characters :]
    is_apart = own.startswith(" ") and bool(own.strip()) and lead.strip() == lead and len(lead.splitlines()) == 1
    return lead if fact.document is not None and is_apart else ""


GROUNDING_INSTRUCTIONS: Final = {
    GroundingMode.CONTEXT_STRICT: (
        "Answer using ONLY the provided context. If the context does not contain sufficient information, state that "
        "clearly."
    ),
    GroundingMode.CONTEXT_PREFERRED: (
        "Prefer the provided context when answering. If you use general knowledge, indicate this clearly."
    ),
    GroundingMode.OPEN: "",
}
"""What the system prompt should say in each mode."""

STALE: Final = "stale"
ANSWER: Final = "previous answer"

_NUMBER_LOOKALIKE: Final = re.compile(r"(?<!\\)(\\*)\[(?=\s*\d)")
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT: Final = "\n  "
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class CountTokens(Protocol):
    """Counts the tokens of a text."""

    def __call__(self, text: str, /) -> int: ...


def render(facts: Sequence[FactText], form: RenderFormat) -> str:
    """Returns the whole text; empty without facts."""
    if not facts:
        return ""
    opening, closing = frame(form)
    return opening + "".join(part(fact, form) for fact in facts).removesuffix(_between(form)) + closing


def part(shown: FactText, form: RenderFormat) -> str:
    """Returns the piece of the text that shows a fact, with what separates it from the next."""
    return _FORMS[form](shown) + _between(form)


def frame(form: RenderFormat) -> tuple[str, str]:
    """Returns what comes before the first part and after the last."""
    return _FRAMES[form]


def _between(form: RenderFormat) -> str:
    return ",\n" if form is RenderFormat.JSON else "\n"


def _markdown(shown: FactText) -> str:
    words = shown.words
    escaped = _NUMBER_LOOKALIKE.sub(r"\1\1\[", words) if "[" in words else words
    begins_as = (f"begins as {shown.begins_as}",) if shown.begins_as else ()
    return f"[{', '.join((str(shown.number), *_notes(shown.fact), *begins_as))}] {_INDENT.join(escaped.splitlines())}"


def _xml(shown: FactText) -> str:
    text = _NOT_XML.sub("\ufffd", shown.words)
    # XML allows a bare > except in ]]>, and comparisons are frequent in facts.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;").replace("\r", "&#13;")
    note = f' note="{", ".join(_notes(shown.fact))}"' if _notes(shown.fact) else ""
    begins_as = f' begins-as="{shown.begins_as}"' if shown.begins_as else ""
    return f'<fact n="{shown.number}"{note}{begins_as}>{text}</fact>'


def _json(shown: FactText) -> str:
    note = {"note": ", ".join(_notes(shown.fact))} if _notes(shown.fact) else {}
    begins_as = {"begins_as": shown.begins_as} if shown.begins_as else {}
    return _to_json({"n": shown.number, **note, **begins_as, "text": shown.words})


def _notes(fact: Candidate) -> tuple[str, ...]:
    """Returns what a model should know about the fact besides its words."""
    return (STALE,) * fact.stale + (ANSWER,) * fact.is_answer


_FORMS: Final = {RenderFormat.MARKDOWN: _markdown, RenderFormat.XML: _xml, RenderFormat.JSON: _json}
_FRAMES: Final = {
    RenderFormat.MARKDOWN: ("", ""),
    RenderFormat.XML: ("<facts>\n", "\n</facts>"),
    RenderFormat.JSON: ("[", "]"),
}
