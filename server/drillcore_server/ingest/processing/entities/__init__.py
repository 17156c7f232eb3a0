"""What is named in a text, found by precompiled patterns that take linear time on any input."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from drillcore_server.domain.digests import Entity
from drillcore_server.ingest.processing.entities.addresses import addresses
from drillcore_server.ingest.processing.entities.amounts import amounts
from drillcore_server.ingest.processing.entities.capitalised import capitalised_runs
from drillcore_server.ingest.processing.entities.dates import dates
from drillcore_server.ingest.processing.entities.mentions import Mention, capitals_of
from drillcore_server.ingest.processing.entities.names import organisations, persons
from drillcore_server.ingest.processing.entities.regulations import regulations

ENTITY_TYPES: Final = ("date", "amount", "organisation", "person", "regulation", "email", "url", "place")
ENTITIES_MAX: Final = 128
"""Of one chunk; those mentioned first are kept."""


def mentions(text: str) -> list[Mention]:
    """Every mention, in the order of the text."""
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
    """Each entity once, sorted."""
    distinct = dict.fromkeys((mention.type, mention.value) for mention in found if mention.value)
    return tuple(Entity(type_, value) for type_, value in sorted(list(distinct)[:ENTITIES_MAX]))


__all__ = ["ENTITIES_MAX", "ENTITY_TYPES", "Mention", "entities_of", "mentions"]
