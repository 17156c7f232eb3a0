"""What introduces several facts is said once in a text.

Facts drawn from a list have what introduces the list in front of their words: "The firm must: (b) train staff". Of
those that have the very same introduction, from one document, the first in the text says it on a line of its own, and
the others say only what is theirs and which fact they begin as:

    [5] The firm must:
      (a) keep records for five years
    [9, begins as 5] (b) train staff

A reader puts the first line of [5] and a space before the words of [9] and has the whole fact. The form speaks for
itself, so there is no legend: that would take 12 tokens, and the word "begins" takes one for each fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from drillcore_server.domain.envelopes import Candidate
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import DocumentId

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
