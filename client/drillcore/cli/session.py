"""What one command line asked for: the flags it gave, and how its result is to be shown."""

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
from drillcore._client_settings import ClientSettings, load_client_settings
from drillcore._results import Page
from drillcore.cli.session_file import read_session, session_file
from drillcore.settings import find_file

PageT = TypeVar("PageT", bound=Page[Any])

PIPE_WIDTH: Final = 200
"""Columns for tables that go into a file or a pipe, where folded lines would be hard to search."""

LONG_TIMEOUT_S: Final = 120.0
"""A server ends calls that take longer, unless it is set up otherwise."""


class CommandError(Exception):
    """A command could not do its work, and there is more to say than which call failed. Shown in one line."""

    def __init__(self, reason: str, message: str, *, exit_code: int = 1, request_id: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.exit_code = exit_code
        self.request_id = request_id


@dataclass(slots=True)
class Session:
    """The flags given so far. A flag after the subcommand wins over the same flag before it."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    named_file: Path | None = None
    session_file: Path | None = None
    json: bool = False
    overrides: dict[str, object] = field(default_factory=dict)
    """Names of client settings to the values that flags gave them."""

    def settings_file(self) -> Path | None:
        """The settings file that counts, None if there is none. Raises SettingsError."""
        return find_file(self.named_file, self.environment)

    @property
    def upload_timeout_s(self) -> float | None:
        """For one upload: only what a flag says, since the time that others take says nothing of it."""
        timeout_s = self.overrides.get("timeout_s")
        return timeout_s if isinstance(timeout_s, float) else None

    @property
    def long_timeout_s(self) -> float:
        """For one call that may take as long as a server lets a call take, if no flag says otherwise."""
        return self.upload_timeout_s or LONG_TIMEOUT_S

    @contextlib.contextmanager
    def client(self, *, in_tenant: bool = True, as_nobody: bool = False) -> Iterator[Client]:
        """A client by settings and flags; `in_tenant`, acting in the tenant that they name by id or by name.

        Without a token it calls in the session that `drillcore login` keeps for this server; `as_nobody`, without any.
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
        """Ask whether to do it, unless `yes`. The question goes to stderr: stdout is for the result."""
        if yes:
            return
        if self.json:
            raise click.UsageError("with --json nobody is asked: add --yes")
        click.confirm(f"{deed}?", abort=True, err=True)

    def emit_page(self, name: str, page: Page[Any], table: Table) -> None:
        """Show one page of a list."""
        more = [f"There are more: --page-token {page.next_page_token}, or --all"] if page.next_page_token else []
        document = {name if key == "items" else key: value for key, value in _fields(page).items()}
        self.emit(document, table if page.items else f"no {name}", *more)

    def emit_line(self, document: object, human: str) -> None:
        """Show one of the results of a command that goes on: at once, and in one line."""
        click.echo(json.dumps(document, default=_plain) if self.json else human)

    def emit(self, document: object, *human: RenderableType) -> None:
        """Show a result: the document with --json, else what is made for people."""
        if self.json:
            click.echo(json.dumps(document, indent=2, default=_plain))
            return
        console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
        with console.capture() as shown:
            for part in human:
                console.print(part, soft_wrap=not isinstance(part, Table | Tree))
        for line in shown.get().splitlines():
            click.echo(line.rstrip())  # tables pad their last column, which is in the way of whoever copies or compares


pass_session = click.make_pass_decorator(Session, ensure=True)


def fetch_pages(fetch: Callable[[str], PageT], page_token: str, all_pages: bool) -> PageT:
    """The page that the token names, or with `all_pages` that one and all that follow as one."""
    page = fetch(page_token)
    items = list(page.items)
    while all_pages and page.next_page_token:
        page = fetch(page.next_page_token)
        items += page.items
    return dataclasses.replace(page, items=tuple(items))


def find_corpus_id(client: Client, reference: str) -> UUID:
    """The id of the corpus that the text names by id or name. Raises NotFound for a name that no corpus has."""
    return as_id(reference) or client.get_corpus(name=reference).id


def _as_nobody(settings: ClientSettings) -> ClientSettings:
    return dataclasses.replace(settings, token=None, token_file=None)


def as_id(reference: str) -> UUID | None:
    """The id that the text is, None if it is a name."""
    try:
        return UUID(reference)
    except ValueError:
        return None


def _fields(thing: Any) -> dict[str, object]:
    """Its fields by name. What they say of ids is by the text of these: JSON has no other keys."""
    found = {one.name: getattr(thing, one.name) for one in dataclasses.fields(thing)}
    mappings = {name: value for name, value in found.items() if isinstance(value, Mapping)}
    return found | {name: {str(key): one for key, one in value.items()} for name, value in mappings.items()}


def _plain(value: object) -> object:
    """What JSON has no form of its own for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, date):  # a time is one too
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID | Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value)}")
