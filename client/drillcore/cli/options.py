"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import click

from drillcore._api.fact_data import FactFilter, FactStatus
from drillcore._transport.channel import check_request_id
from drillcore.cli.session import Session
from drillcore.cli.values import KeyValue, LevelName, Moment, Time

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

STATUS: Final = click.Choice([status.value.lower() for status in FactStatus])
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def common_options(command: F) -> F:
    """--config and --json. Every command has them."""
    return applied(command, _session_option("--config", "named_file", "Settings file (TOML).", kind=_FILE), _JSON)


def connection_options(command: F) -> F:
    """The common options, and those that say which server to call, how and why."""
    return _connected(command, _setting_option("--reason", "reason", "Why you do this, for the audit record."))


def reasoned_connection_options(command: F) -> F:
    """The connection options with a required --reason. The command gets it, and so does the audit record."""

    def remember(context: click.Context, _parameter: click.Parameter, value: str) -> str:
        _session(context).overrides["reason"] = value
        return value

    text = "Why you do this, for the audit record."
    return _connected(command, click.option("--reason", required=True, callback=remember, help=text))


def _connected(command: F, reason: Decorator[Any]) -> F:
    return common_options(
        applied(
            command,
            _setting_option("--address", "address", "Server to call, HOST:PORT.  [default: 127.0.0.1:7600]"),
            _setting_option("--token", "token", "Token. Other users of the machine can see it: prefer --token-file."),
            _setting_option("--token-file", "token_file", "File with the token.", kind=_FILE),
            _session_option(
                "--session-file", "session_file", "File with the session to use if there is no token.", kind=_FILE
            ),
            _setting_option("--tenant", "tenant_id", "Tenant to act in, by id or name; for operators."),
            reason,
            _setting_option("--residency", "residency", "Use only corpora of this region."),
            _setting_option("--timeout", "timeout_s", "Seconds to wait, retries included.  [default: 30]", kind=float),
        )
    )


def page_options(command: F) -> F:
    """How much of a list to show."""
    return applied(
        command,
        click.option(
            "--page-size",
            type=click.IntRange(0, 2**32 - 1),
            default=0,
            help="Entries per page.  [default: the server decides]",
        ),
        click.option("--page-token", default="", help="Show the page that the previous answer named."),
        click.option("--all", "all_pages", is_flag=True, help="Show every page."),
    )


def write_options(command: F) -> F:
    """The options of every command that writes."""
    return applied(
        command,
        click.option(
            "--request-id",
            callback=_checked_request_id,
            help="Name of this request. Repeat a request under the same name, and it takes effect once.",
        ),
    )


yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
version_option: Final = click.option(
    "--expected-version", type=click.IntRange(1, 2**64 - 1), help="Refuse if it is at another version."
)
set_option: Final = click.option(
    "--set", "metadata", type=KeyValue(), multiple=True, help="Metadata to set. Repeatable."
)
unset_option: Final = click.option("--unset", metavar="KEY", multiple=True, help="Metadata to remove. Repeatable.")
corpus_option: Final = click.option("--corpus", required=True, metavar="ID|NAME", help="The corpus.")
corpora_option: Final = click.option(
    "--corpus", "corpora", metavar="ID|NAME", multiple=True, help="Corpus. Repeatable.  [default: all you may read]"
)
source_option: Final = click.option(
    "--source", "source_id", metavar="ID", default="", help="The source that they come from and are erased with."
)
level_option: Final = click.option(
    "--to", "level", type=LevelName(), required=True, help="Level to go to, by name or number."
)
as_of_option: Final = click.option(
    "--as-of", type=Moment(), help="Read this revision, or the state at this time.  [default: now]"
)


def password_option(flag: str, text: str) -> Callable[[F], F]:
    """A file with a password. There is no flag for the password itself: other users could see it."""
    return click.option(flag, type=click.File("r", encoding="utf-8"), metavar="FILE", help=f"{text}; - for stdin.")


def obtain_password(session: Session, file: Any, prompt: str, *, flag: str, twice: bool = False) -> str:
    """The first line of the file, else what the user types. `flag` names the file for those who cannot be asked."""
    if file is not None:
        password = str(file.readline()).rstrip("\r\n")
        if not password:
            raise click.UsageError(f"the first line of {file.name} must be the password")
        return password
    if session.json:
        raise click.UsageError(f"--json does not ask for a password: give {flag}")
    return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))


_FACT_FILTERS: Final = (
    click.option("--source", "sources", multiple=True, help="Only facts of this source. Repeatable."),
    click.option("--status", "statuses", type=STATUS, multiple=True, help="Only facts in this status. Repeatable."),
    click.option(
        "--community", "communities", type=click.UUID, multiple=True, help="Only facts of this community. Repeatable."
    ),
    click.option(
        "--where", "metadata", type=KeyValue(), multiple=True, help="Only facts with this metadata. Repeatable."
    ),
    click.option("--ingested-after", type=Time(), help="Only facts ingested after this time."),
    click.option("--ingested-before", type=Time(), help="Only facts ingested before this time."),
    click.option(
        "--document", "documents", type=click.UUID, multiple=True, help="Only facts of this document. Repeatable."
    ),
    click.option("--chunk", "chunks", type=click.UUID, multiple=True, help="Only facts of this chunk. Repeatable."),
)


def fact_filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which facts. The command gets a FactFilter as `filters`."""

    @wraps(command)
    def with_filters(
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
        filters = FactFilter(
            source_ids=sources,
            statuses=[fact_status(status) for status in statuses],
            community_ids=communities,
            metadata=dict(metadata),
            ingested_after=ingested_after,
            ingested_before=ingested_before,
            document_ids=documents,
            chunk_ids=chunks,
        )
        return command(*args, filters=filters, **others)

    return applied(with_filters, *_FACT_FILTERS)


def fact_status(name: str) -> FactStatus:
    return FactStatus(name.upper())


def _checked_request_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_request_id(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def applied(command: F, *decorators: Decorator[Any]) -> F:
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _session_option(flag: str, field: str, text: str, *, kind: click.ParamType[Any] | type = str) -> Decorator[Any]:
    def remember(context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value is not None:
            setattr(_session(context), field, value)

    return click.option(flag, type=kind, expose_value=False, callback=remember, help=text)


def _setting_option(flag: str, setting: str, text: str, *, kind: click.ParamType[Any] | type = str) -> Decorator[Any]:
    def remember(context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value is not None:
            _session(context).overrides[setting] = value

    return click.option(flag, type=kind, expose_value=False, callback=remember, help=text)


def _want_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        _session(context).json = True


_JSON = click.option(
    "--json", is_flag=True, expose_value=False, callback=_want_json, help="One JSON document on stdout, errors too."
)


def _session(context: click.Context) -> Session:
    return context.find_root().ensure_object(Session)
