"""Flags of commands about facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar
from uuid import UUID

import click

from drillcore._fact_results import FactFilter, FactStatus
from drillcore.cli.values import KeyValue, Time

F = TypeVar("F", bound=Callable[..., Any])

STATUS = click.Choice([one.value.lower() for one in FactStatus])

_FLAGS = (
    click.option("--source", "sources", multiple=True, help="From any of these. Repeatable."),
    click.option("--status", "statuses", type=STATUS, multiple=True, help="In any of these. Repeatable."),
    click.option("--community", "communities", type=click.UUID, multiple=True, help="In any of these. Repeatable."),
    click.option("--where", "metadata", type=KeyValue(), multiple=True, help="Metadata it has. Repeatable."),
    click.option("--ingested-after", type=Time(), help="Came after this time."),
    click.option("--ingested-before", type=Time(), help="Came before this time."),
    click.option(
        "--document", "documents", type=click.UUID, multiple=True, help="From any of these, by id. Repeatable."
    ),
    click.option("--chunk", "chunks", type=click.UUID, multiple=True, help="Of any of these, by id. Repeatable."),
)


def fact_filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which facts: the command gets a FactFilter as `wanted`."""

    @wraps(command)
    def with_filter(
        *args: Any,
        sources: tuple[str, ...],
        statuses: tuple[str, ...],
        communities: tuple[UUID, ...],
        metadata: tuple[tuple[str, str], ...],
        ingested_after: datetime | None,
        ingested_before: datetime | None,
        documents: tuple[UUID, ...],
        chunks: tuple[UUID, ...],
        **others: Any,
    ) -> Any:
        wanted = FactFilter(
            source_ids=sources,
            statuses=[fact_status(one) for one in statuses],
            community_ids=communities,
            metadata=dict(metadata),
            ingested_after=ingested_after,
            ingested_before=ingested_before,
            document_ids=documents,
            chunk_ids=chunks,
        )
        return command(*args, wanted=wanted, **others)

    for flag in reversed(_FLAGS):
        with_filter = flag(with_filter)
    return with_filter


def fact_status(name: str) -> FactStatus:
    return FactStatus(name.upper())
