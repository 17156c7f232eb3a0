"""The flags of one command line, the client that they lead to, and the output of results."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.tree import Tree

from drillcore._client import Client
from drillcore._transport.call import Page
from drillcore._transport.client_settings import ClientSettings, load_client_settings
from drillcore.cli.session_file import read_session, session_file
from drillcore_formats.plugins import CommandError
from drillcore_formats.settings import find_file

__all__ = ["CommandError", "Session", "as_id", "fetch_pages", "find_corpus_id", "pass_session"]

PageT = TypeVar("PageT", bound=Page[Any])

PIPE_WIDTH: Final = 200
"""Columns of a table in a file or a pipe, where folded lines would be hard to search."""

LONG_TIMEOUT_S: Final = 120.0
"""By default a server ends calls that take longer."""


@dataclass(slots=True)
class Session:
    """The flags that were given. A flag after the subcommand wins over the same flag before it."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    named_file: Path | None = None
    session_file: Path | None = None
    json: bool = False
    overrides: dict[str, object] = field(default_factory=dict)
    """Client settings that flags gave, by name."""

    def settings_file(self) -> Path | None:
        """The settings file in use, None if there is none. Raises SettingsError."""
        return find_file(self.named_file, self.environment)

    @property
    def upload_timeout_s(self) -> float | None:
        """The timeout for an upload: only --timeout counts, because the default is meant for short calls."""
        timeout_s = self.overrides.get("timeout_s")
        return timeout_s if isinstance(timeout_s, float) else None

    @property
    def long_timeout_s(self) -> float:
        """The timeout for a long call: --timeout, else as long as a server lets a call take."""
        return self.upload_timeout_s or LONG_TIMEOUT_S

    @contextlib.contextmanager
    def client(self, *, in_tenant: bool = True, as_nobody: bool = False) -> Iterator[Client]:
        """A client for the settings and flags. With `in_tenant` it acts in the tenant that they name by id or name.

        Without a token it uses the session that `drillcore login` kept for this server. With `as_nobody` it uses
        neither.
        """
        settings = load_client_settings(self.settings_file(), self.environment, self.overrides).settings
        settings = _as_nobody(settings) if as_nobody else self._in_session(settings)
        if not in_tenant:
            settings = dataclasses.replace(settings, tenant_id=None)
        if in_tenant and settings.tenant_id and as_id(settings.tenant_id) is None:
            with Client.from_settings(settings) as client:
                tenant = client.get_tenant(name=settings.tenant_id)
            settings = dataclasses.replace(settings, tenant_id=str(tenant.id))
        with Client.from_settings(settings) as client:
            yield client

    def kept_session_file(self) -> Path:
        return session_file(self.session_file, self.environment)

    def _in_session(self, settings: ClientSettings) -> ClientSettings:
        if settings.token is not None or settings.token_file is not None:
            return settings
        kept = read_session(self.kept_session_file())
        if kept is None or kept.address != settings.address:
            return settings
        return dataclasses.replace(settings, token=kept.token)

    def confirm(self, deed: str, yes: bool) -> None:
        """Asks for confirmation on stderr, unless `yes`. Stdout is for the result."""
        if yes:
            return
        if self.json:
            raise click.UsageError("--json does not ask for confirmation: give --yes")
        click.confirm(f"{deed}?", abort=True, err=True)

    def emit_page(self, name: str, page: Page[Any], table: Table) -> None:
        """Shows one page of a list."""
        more = [f"There are more: --page-token {page.next_page_token}, or --all"] if page.next_page_token else []
        document = {name if key == "items" else key: value for key, value in _fields(page).items()}
        self.emit(document, table if page.items else f"no {name}", *more)

    def emit_line(self, document: object, human: str) -> None:
        """Shows one of many results, in one line."""
        click.echo(json.dumps(document, default=_plain) if self.json else human)

    def emit(self, document: object, *human: RenderableType) -> None:
        """Shows a result: the document with --json, else the text for people."""
        if self.json:
            click.echo(json.dumps(document, indent=2, default=_plain))
            return
        console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
        with console.capture() as shown:
            for part in human:
                console.print(part, soft_wrap=not isinstance(part, Table | Tree))
        for line in shown.get().splitlines():
            click.echo(
                line.rstrip()
            )  # tables pad their last column, which would get in the way of copying and comparing


pass_session = click.make_pass_decorator(Session, ensure=True)


def fetch_pages(fetch: Callable[[str], PageT], page_token: str, all_pages: bool) -> PageT:
    """The page that the token names. With `all_pages`, that page and all that follow, as one."""
    page = fetch(page_token)
    items = list(page.items)
    while all_pages and page.next_page_token:
        page = fetch(page.next_page_token)
        items += page.items
    return dataclasses.replace(page, items=tuple(items))


def find_corpus_id(client: Client, reference: str) -> UUID:
    """The id of the corpus with this id or name. Raises NotFound for an unknown name."""
    return as_id(reference) or client.get_corpus(name=reference).id


def _as_nobody(settings: ClientSettings) -> ClientSettings:
    return dataclasses.replace(settings, token=None, token_file=None)


def as_id(reference: str) -> UUID | None:
    """The text as an id, None if it is a name."""
    try:
        return UUID(reference)
    except ValueError:
        return None


def _fields(thing: Any) -> dict[str, object]:
    """The fields by name. Keys of mappings become text, because JSON has no other keys."""
    found = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    mappings = {name: value for name, value in found.items() if isinstance(value, Mapping)}
    return found | {name: {str(key): item for key, item in value.items()} for name, value in mappings.items()}


def _plain(value: object) -> object:
    """A value that JSON does not know, as one that it does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, date):  # includes datetime
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID | Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value)}")
