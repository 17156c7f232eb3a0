"""Flags that the commands about the audit trail share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import click

from drillcore._audit_results import AuditFilter
from drillcore._client import Client
from drillcore.cli.session import find_corpus_id
from drillcore.cli.values import Time

F = TypeVar("F", bound=Callable[..., Any])

server_log_option: Final = click.option(
    "--server-log", is_flag=True, help="The server's own log, of what belongs to no tenant; for operators."
)
output_option: Final = click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)


class Wanted:
    """Which records a command line asks for."""

    def __init__(self, corpus: str | None, **others: Any) -> None:
        self._corpus = corpus
        self._others = others

    def filter(self, client: Client) -> AuditFilter:
        """The filter; a corpus may have been named by its name."""
        corpus = None if self._corpus is None else find_corpus_id(client, self._corpus)
        return AuditFilter(corpus_id=corpus, **self._others)


def filter_options(command: F) -> F:
    """Gives the command `wanted`, what its flags ask for."""

    @wraps(command)
    def with_filter(
        *args: Any,
        corpus: str | None,
        node: UUID | None,
        operator: str,
        action: str,
        since: datetime | None,
        until: datetime | None,
        of_request: str,
        record: UUID | None,
        **kwargs: Any,
    ) -> Any:
        others = {"node_id": node, "operator": operator, "action": action.upper(), "since": since, "until": until}
        wanted = Wanted(corpus, **others, request_id=of_request, record_id=record)
        return command(*args, wanted=wanted, **kwargs)

    options = [
        click.option("--corpus", metavar="ID|NAME", help="That touched this corpus."),
        click.option("--node", type=click.UUID, help="That touched this node or document."),
        click.option("--operator", default="", help="Of calls by this one: the id of an account, or a token's name."),
        click.option("--action", default="", help="Of this kind, such as ACCESS, UPDATE or SIGN."),
        click.option("--since", type=Time(), help="From this time on."),
        click.option("--until", type=Time(), help="Up to, not including, this time."),
        click.option("--of-request", default="", metavar="ID", help="Of this request."),
        click.option("--record", type=click.UUID, help="With this id."),
    ]
    for option in reversed(options):
        with_filter = option(with_filter)
    return with_filter  # type: ignore[return-value]  # wraps the command, with its flags put together
