"""What introduces several facts is said once in a text.

Facts drawn from a list have what introduces the list in front of their words: "The firm must: (b) train staff". Of
those that have the very same introduction, from one document, the first in the text says it on a line of its own, and
the others say only what is theirs and which fact they begin as:

    [5] The firm must:
      (a) keep records for five years
    [9, begins as 5] (b) train staff

A reader puts the first line of [5] and a space before the words of [9] and has the whole fact. The form speaks for
itself, so there is no legend: that would take 12 tokens, and the word "begins" takes one for each fact.

Facts as a text for a prompt, each with the number that it is cited by.

    Markdown: [1] content              XML: <facts>                       JSON: [{"n":1,"text":"content"},
              [2, stale] content            <fact n="1">content</fact>          {"n":2,"note":"stale","text":"content"}]
                                            </facts>

One that begins as another does, by `introductions`: [3, begins as 1], <fact n="3" begins-as="1">, {"n":3,"begins_as":1.

What a fact says can never be taken for another fact, for its number, its note or what it begins as: XML and JSON quote
it; in Markdown a bracket before a digit gets a backslash, and lines after the first are indented.

A part is the piece of the text that a fact takes, with the line end after it: there tiktoken's encodings have no token
across, so that the counts of parts add up to that of the text.
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
"""A document, and what it says."""


@dataclass(frozen=True, slots=True)
class Said:
    """A fact as a text says it."""

    fact: Candidate
    number: int
    begins_as: int = 0
    """The number of the fact before it that says its introduction; 0: it says all of itself."""
    introduces: bool = False
    """Others begin as this one does."""

    @property
    def words(self) -> str:
        lead, own = self.fact.lead, self.fact.content[len(self.fact.lead) + 1 :]
        if self.begins_as:
            return own
        return f"{lead}\n{own}" if self.introduces else self.fact.content


class Introductions:
    """Those that a text says once: more than one of the facts has them, and a reference is worth it."""

    def __init__(self, facts: Iterable[Candidate], is_worth: Callable[[str], bool]) -> None:
        self._facts_with = Counter((fact.document, fact.lead) for fact in facts if fact.lead)
        self._is_worth = cache(is_worth)

    def of(self, fact: Candidate) -> Introduction | None:
        """None: the fact says all of itself."""
        introduction = fact.document, fact.lead
        return introduction if self._facts_with[introduction] > 1 and self._is_worth(fact.lead) else None

    def told(self, facts: Sequence[Candidate]) -> list[Said]:
        """Numbered from 1 in the order given, which is that of the text."""
        first: dict[Introduction | int, int] = {}
        begins = [first.setdefault(self.of(fact) or number, number) for number, fact in enumerate(facts, 1)]
        times = Counter(begins)
        return [
            Said(fact, number, begins_as=begin if begin < number else 0, introduces=times[number] > 1)
            for number, (fact, begin) in enumerate(zip(facts, begins, strict=True), 1)
        ]


def lead_of(fact: Fact) -> str:
    """The words that introduce a fact, if they are whole words on one line and the fact has others; or else nothing."""
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
"""For the system prompt."""

STALE: Final = "stale"
ANSWER: Final = "previous answer"

_NUMBER_LOOKALIKE: Final = re.compile(r"(?<!\\)(\\*)\[(?=\s*\d)")
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT: Final = "\n  "
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Count(Protocol):
    """How many tokens a text has."""

    def __call__(self, text: str, /) -> int: ...


def render(facts: Sequence[Said], form: RenderFormat) -> str:
    """The whole text. Without facts, nothing."""
    if not facts:
        return ""
    opening, closing = frame(form)
    return opening + "".join(part(fact, form) for fact in facts).removesuffix(_between(form)) + closing


def part(said: Said, form: RenderFormat) -> str:
    """What a fact takes of the text."""
    return _FORMS[form](said) + _between(form)


def frame(form: RenderFormat) -> tuple[str, str]:
    """What stands before the first and after the last part."""
    return _FRAMES[form]


def _between(form: RenderFormat) -> str:
    return ",\n" if form is RenderFormat.JSON else "\n"


def _markdown(said: Said) -> str:
    words = said.words
    escaped = _NUMBER_LOOKALIKE.sub(r"\1\1\[", words) if "[" in words else words
    begins_as = (f"begins as {said.begins_as}",) if said.begins_as else ()
    return f"[{', '.join((str(said.number), *_notes(said.fact), *begins_as))}] {_INDENT.join(escaped.splitlines())}"


def _xml(said: Said) -> str:
    text = _NOT_XML.sub("\ufffd", said.words)
    # A bare > is allowed but in this one place, and comparisons are frequent.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;").replace("\r", "&#13;")
    note = f' note="{", ".join(_notes(said.fact))}"' if _notes(said.fact) else ""
    begins_as = f' begins-as="{said.begins_as}"' if said.begins_as else ""
    return f'<fact n="{said.number}"{note}{begins_as}>{text}</fact>'


def _json(said: Said) -> str:
    note = {"note": ", ".join(_notes(said.fact))} if _notes(said.fact) else {}
    begins_as = {"begins_as": said.begins_as} if said.begins_as else {}
    return _to_json({"n": said.number, **note, **begins_as, "text": said.words})


def _notes(fact: Candidate) -> tuple[str, ...]:
    """What a model should know of the fact beside what it says."""
    return (STALE,) * fact.stale + (ANSWER,) * fact.is_answer


_FORMS: Final = {RenderFormat.MARKDOWN: _markdown, RenderFormat.XML: _xml, RenderFormat.JSON: _json}
_FRAMES: Final = {
    RenderFormat.MARKDOWN: ("", ""),
    RenderFormat.XML: ("<facts>\n", "\n</facts>"),
    RenderFormat.JSON: ("[", "]"),
}
