"""Facts and their sources as people read them in a terminal."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.table import Table

from drillcore._fact_results import Fact, FactHit
from drillcore._node_results import Span
from drillcore._source_results import Source
from drillcore.cli.text import first_words, listing, one_line, pairs, prose

CONTENT_WIDTH: Final = 100


def facts_table(facts: Iterable[Fact]) -> Table:
    """A line for each fact."""
    rows = [(one.id, _state(one), one.source_id, first_words(one.content, CONTENT_WIDTH)) for one in facts]
    return listing(["id", "status", "source", "fact"], rows)


def hits_table(hits: Iterable[FactHit]) -> Table:
    """A line for each fact that was found."""
    rows = [
        (
            one.fact.id,
            f"{one.score:.3f}",
            "stale" if one.stale else _state(one.fact),
            one.fact.source_id,
            first_words(one.fact.content, CONTENT_WIDTH),
        )
        for one in hits
    ]
    return listing(["id", "score", "status", "source", "fact"], rows)


def fact_record(fact: Fact) -> Table:
    """All of a fact: a line, or several, for each of its fields."""
    shown = ((name, value) for name, value in _fields(fact) if name != "embedding" or value)
    return pairs((name, prose(value) if name == "content" else one_line(_described(value))) for name, value in shown)


def source_record(source: Source) -> Table:
    """All of a source: a line for each of its fields."""
    return pairs((name, one_line(_described(value))) for name, value in _fields(source))


def _fields(thing: Fact | Source) -> Iterator[tuple[str, Any]]:
    return ((one.name, getattr(thing, one.name)) for one in dataclasses.fields(thing))


def _described(value: object) -> object:
    """Parts of a fact in words; what is no part of its own as it is."""
    match value:
        case Span():
            return f"{value.start}-{value.end}"
        case enum.Enum():
            return str(value.value).lower()
        case tuple():
            return ", ".join(map(str, value))
    return value


def _state(fact: Fact) -> str:
    """Its status, and what keeps it out of searches or out of the corpus beside it."""
    notes = [note for note, holds in (("archived", fact.archived), ("session only", fact.session_only)) if holds]
    return ", ".join([fact.status.value.lower(), *notes])
