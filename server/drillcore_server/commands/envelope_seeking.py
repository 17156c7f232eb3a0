"""What an envelope is looked for with: the texts of its question, and the facts that its filters allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.fact_narrowing import Narrowing
from drillcore_server.commands.seeking import SoughtTexts
from drillcore_server.domain.envelope_plans import EnvelopePlan

T = TypeVar("T")


class SoughtFacts(SoughtTexts):
    """For one call. What is run begins anew for a further model, or when it has tried many facts in vain."""

    def __init__(self, library: EnvelopeLibrary, plan: EnvelopePlan, *, at_once: bool = True) -> None:
        super().__init__(library.facts.library.embedders, plan.sought, at_once=at_once)
        self.narrowing = Narrowing(library.facts, plan.filters)

    def run(self, search: Callable[[], T]) -> T:
        return super().run(lambda: self.narrowing.run(search))
