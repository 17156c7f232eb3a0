"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from drillcore._channel import check_request_id
from drillcore.cli.session import Session
from drillcore.cli.values import KeyValue, LevelName, Moment

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]


def common_options(command: F) -> F:
    """--config and --json, for every command there is."""
    return _applied(command, _session_option("--config", "named_file", "Settings file (TOML).", kind=_FILE), _JSON)


def connection_options(command: F) -> F:
    """The common options, and those that say which server to call, how and why."""
    return _connected(command, _setting_option("--reason", "reason", "Why you do this, for the audit record."))


def reasoned_connection_options(command: F) -> F:
    """The same for what must not be done without a reason: the command gets it, and so does the audit record."""

    def remember(context: click.Context, _parameter: click.Parameter, value: str) -> str:
        _session(context).overrides["reason"] = value
        return value

    return _connected(command, click.option("--reason", required=True, callback=remember, help="Why."))


def _connected(command: F, reason: Decorator[Any]) -> F:
    return common_options(
        _applied(
            command,
            _setting_option("--address", "address", "Server to call, HOST:PORT.  [default: 127.0.0.1:7600]"),
            _setting_option("--token", "token", "Token. Other users of the machine can see it: prefer --token-file."),
            _setting_option("--token-file", "token_file", "File with the token.", kind=_FILE),
            _session_option("--session-file", "session_file", "Session to call in, without a token.", kind=_FILE),
            _setting_option("--tenant", "tenant_id", "Tenant to act in, by id or name; for operators."),
            reason,
            _setting_option("--residency", "residency", "Touch only corpora of this region."),
            _setting_option("--timeout", "timeout_s", "Seconds to wait, retries included.  [default: 30]", kind=float),
        )
    )


def page_options(command: F) -> F:
    """How much of a list."""
    return _applied(
        command,
        click.option(
            "--page-size",
            type=click.IntRange(0, 2**32 - 1),
            default=0,
            help="Entries per page; 0: as the server likes.",
        ),
        click.option("--page-token", default="", help="Show the page that the previous answer named."),
        click.option("--all", "all_pages", is_flag=True, help="Show every page."),
    )


def write_options(command: F) -> F:
    """What every write takes."""
    return _applied(
        command,
        click.option(
            "--request-id",
            callback=_checked_request_id,
            help="Name of this request: repeated under the same name, it is done once.",
        ),
    )


def version_option(command: F) -> F:
    return _applied(
        command,
        click.option(
            "--expected-version", type=click.IntRange(1, 2**64 - 1), help="Refuse if somebody changed it meanwhile."
        ),
    )


def set_option(command: F) -> F:
    return _applied(
        command,
        click.option("--set", "metadata", type=KeyValue(), multiple=True, help="Metadata to set. May be repeated."),
    )


def unset_option(command: F) -> F:
    return _applied(
        command,
        click.option("--unset", metavar="KEY", multiple=True, help="Metadata to remove. May be repeated."),
    )


def corpus_option(command: F) -> F:
    """The one corpus to act in."""
    return _applied(command, click.option("--corpus", required=True, metavar="ID|NAME", help="The corpus."))


def target_option(command: F) -> F:
    """The level to go to."""
    return _applied(
        command, click.option("--to", "target", type=LevelName(), required=True, help="Level, by name or number.")
    )


def as_of_option(command: F) -> F:
    """Which moment to read."""
    return _applied(
        command, click.option("--as-of", type=Moment(), help="Read this revision, or as it was then.  [default: now]")
    )


def _checked_request_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_request_id(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_FILE = click.Path(dir_okay=False, path_type=Path)
_UINT32 = click.IntRange(0, 2**32 - 1)
_UINT64 = click.IntRange(0, 2**64 - 1)


def _applied(command: F, *decorators: Decorator[Any]) -> F:
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
