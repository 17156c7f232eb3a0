"""The root command. It finds the other commands, and turns errors into a line of text and an exit code."""

from __future__ import annotations

import copy
import importlib.metadata
import io
import json
import platform
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from drillcore._version import api_version, client_version
from drillcore.cli.commands.account import account
from drillcore.cli.commands.audit import audit
from drillcore.cli.commands.community import community
from drillcore.cli.commands.core import core
from drillcore.cli.commands.corpus import corpus
from drillcore.cli.commands.doctor import doctor
from drillcore.cli.commands.document import documents, remove, update
from drillcore.cli.commands.embeddings import embeddings
from drillcore.cli.commands.envelope import envelope, pack
from drillcore.cli.commands.explain import explain
from drillcore.cli.commands.export import export
from drillcore.cli.commands.fact import fact
from drillcore.cli.commands.ingest import ingest
from drillcore.cli.commands.login import login, logout, whoami
from drillcore.cli.commands.node import drill, history, query, rollup, show, tree
from drillcore.cli.commands.put import put
from drillcore.cli.commands.quads import quads
from drillcore.cli.commands.sign import sign, signatures
from drillcore.cli.commands.slice import slice_
from drillcore.cli.commands.source import source
from drillcore.cli.commands.tenant import tenant
from drillcore.cli.commands.token import token
from drillcore.cli.commands.turns import turns
from drillcore.cli.commands.verify import verify
from drillcore.cli.commands.watch import watch
from drillcore.cli.options import common_options, connection_options
from drillcore.cli.session import Session, pass_session
from drillcore.cli.text import error_details, error_text, gap_lines, printable
from drillcore.errors import DrillcoreError
from drillcore_formats.plugins import CommandError
from drillcore_formats.settings import SettingsError

GROUP: Final = "drillcore.commands"
NEEDS_SERVER: Final = "needs the server: pip install 'drillcore[server]'"

FAILED: Final = 1
MISUSED: Final = 2


class _Root(click.Group):
    """Includes the commands of other packages. It imports them only when they run, and for the list in --help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *importlib.metadata.entry_points(group=GROUP).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        found = importlib.metadata.entry_points(group=GROUP, name=cmd_name)
        return own or next((_loaded(entry) for entry in found), None)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        _show_any_character()
        try:
            extra.setdefault("obj", Session())
            code = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        except (
            DrillcoreError,
            SettingsError,
            CommandError,
            click.ClickException,
            click.Abort,
            UnicodeEncodeError,
        ) as error:
            if not standalone_mode:
                raise
            _fail(error, as_json="--json" in arguments)
        return sys.exit(code if isinstance(code, int) else 0) if standalone_mode else code


def _show_any_character() -> None:
    """Shows characters that the terminal lacks as numbers: documents may hold any, and must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _loaded(entry: importlib.metadata.EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        return _unusable(entry.name, f"{entry.name} {NEEDS_SERVER} (there is no module {error.name})")
    assert isinstance(command, click.Command), f"entry point {entry.name} must be a click command"
    return _with_common_options(command)


def _with_common_options(command: click.Command) -> click.Command:
    """A copy of a plugged-in command that takes --config and --json too; of a group, with all commands in it."""
    made = copy.copy(command)
    if isinstance(made, click.Group):
        made.commands = {name: _with_common_options(below) for name, below in made.commands.items()}
    else:
        known = {flag for parameter in made.params for flag in parameter.opts}
        common = reversed(common_options(click.Command("")).params)
        made.params = [*(option for option in common if known.isdisjoint(option.opts)), *made.params]
    return made


def _unusable(name: str, message: str) -> click.Command:
    """Stands in for a command whose package is not installed, and says so whatever the arguments are."""

    def refuse() -> NoReturn:
        raise CommandError("SERVER_NOT_INSTALLED", message, exit_code=MISUSED)

    return click.Command(
        name,
        callback=refuse,
        short_help=NEEDS_SERVER,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _fail(error: Exception, *, as_json: bool) -> NoReturn:
    reason, message, request_id, code = _explain(error)
    if as_json:
        more = {"details": error_details(error)} if error_details(error) else {}
        document = {"error": {"reason": reason, "message": message, "request_id": request_id, **more}}
        click.echo(json.dumps(document, indent=2))
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        suffix = f" (request {request_id})" if request_id else ""
        click.echo(f"{reason}: {printable(message)}{suffix}", err=True)
        for line in gap_lines(error):
            click.echo(line, err=True)
    sys.exit(code)


def _explain(error: Exception) -> tuple[str, str, str | None, int]:
    """Reason, message, request id and exit code."""
    if isinstance(error, DrillcoreError):
        return error.reason_name, error_text(error), error.request_id, FAILED
    if isinstance(error, CommandError):
        return error.reason, error.message, error.request_id, error.exit_code
    if isinstance(error, SettingsError):
        return "INVALID_SETTINGS", str(error), None, MISUSED
    if isinstance(error, click.ClickException):
        return "INVALID_USAGE", error.format_message(), None, MISUSED
    if isinstance(error, UnicodeEncodeError):
        return "INVALID_USAGE", f"an argument is not valid UTF-8: {error.object!r}", None, MISUSED
    return "ABORTED", f"you stopped it; {_outcome(error)}", None, FAILED


def _outcome(stopped: BaseException) -> str:
    """A "no" to a question comes before any call; a Ctrl-C may come while the server works."""
    if isinstance(stopped.__cause__, KeyboardInterrupt):
        return "the server may have done it or not"
    return "nothing was done"


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@connection_options
def main() -> None:
    """Drillcore is a knowledge store. All levels of a corpus change together, and every call is audited.

    \b
    Examples:
      drillcore serve --data-dir ./data
      drillcore --token-file ./data/operator.token tenant create acme
      drillcore --token-file ./data/operator.token --tenant acme corpus create rules
      drillcore --token-file ./data/operator.token --tenant acme ingest ./regulations --corpus rules
      drillcore --token-file ./data/operator.token --tenant acme tree rules
      drillcore --token-file ./data/operator.token --tenant acme pack "who signs records" --corpus rules
      drillcore doctor

    Flags such as --address may stand before or after the command. Each has a setting in the [client] table of the
    settings file, and an environment variable such as DRILLCORE_CLIENT_ADDRESS. Flags win over variables, and variables
    win over the file. The file is --config, $DRILLCORE_CONFIG, ./drillcore.toml or
    ~/.config/drillcore/drillcore.toml.

    With --json, stdout holds exactly one JSON document: the result, or {"error": {"reason", "message", "request_id"}},
    with "details" if the server gave any. Only `drillcore watch` prints one document on each line.

    Exit codes: 0 success, 1 the call or a check failed, 2 wrong usage or settings.
    """


@main.command()
@common_options
@pass_session
def version(session: Session) -> None:
    """Show the versions of this client and of its protocol."""
    document = {"version": client_version(), "api_version": api_version(), "python": platform.python_version()}
    session.emit(document, "drillcore {version} (API {api_version}, Python {python})".format(**document))


for command in (
    account,
    audit,
    community,
    core,
    corpus,
    doctor,
    documents,
    drill,
    embeddings,
    envelope,
    explain,
    export,
    fact,
    history,
    ingest,
    login,
    logout,
    pack,
    put,
    quads,
    query,
    remove,
    rollup,
    show,
    sign,
    signatures,
    slice_,
    source,
    tenant,
    token,
    tree,
    turns,
    update,
    whoami,
    verify,
    watch,
):
    main.add_command(command)
