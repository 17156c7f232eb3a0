"""Finds the entities that a text names, with precompiled patterns that take linear time on any input."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from drillcore_server.documents.processors.entities.names import capitalised_runs, organisations, persons
from drillcore_server.documents.processors.entities.regulations import regulations
from drillcore_server.documents.processors.entities.values import Mention, addresses, amounts, capitals_of, dates
from drillcore_server.hierarchy.digests import Entity

ENTITY_TYPES: Final = ("date", "amount", "organisation", "person", "regulation", "email", "url", "place")
ENTITIES_MAX: Final = 128
"""The limit for one chunk. The entities mentioned first are kept."""


def mentions(text: str) -> list[Mention]:
    """Returns every mention, in the order of the text."""
    runs, capitals = capitalised_runs(text), capitals_of(text)
    found = chain(
        dates(text),
        amounts(text, capitals),
        organisations(text, runs, capitals),
        persons(text, runs),
        regulations(text, runs, capitals),
        addresses(text),
    )
    return sorted(found)


def entities_of(found: Iterable[Mention]) -> tuple[Entity, ...]:
    """Returns each entity once, sorted."""
    distinct = dict.fromkeys((mention.type, mention.value) for mention in found if mention.value)
    return tuple(Entity(type_, value) for type_, value in sorted(list(distinct)[:ENTITIES_MAX]))


__all__ = ["ENTITIES_MAX", "ENTITY_TYPES", "Mention", "entities_of", "mentions"]
