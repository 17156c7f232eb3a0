"""`drillcore audit ...`"""

from __future__ import annotations

import json
import sys
from typing import Any, Final
from uuid import UUID

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from drillcore._audit_results import AuditCheck, AuditFilter, AuditProblem
from drillcore._client import Client
from drillcore.audit.keys import KeyChain
from drillcore.cli.audit_files import checkpoint, consistency, export, proof
from drillcore.cli.audit_options import Wanted, filter_options, server_log_option
from drillcore.cli.audit_text import record_table, records_table, reviews_table
from drillcore.cli.options import connection_options, page_options, write_options
from drillcore.cli.session import CommandError, Session, fetch_pages, pass_session
from drillcore.cli.text import counted, listing

_INDEX: Final = click.IntRange(0)


@click.group()
def audit() -> None:
    """Find, prove, export and review what is on the record.

    Every call leaves a record in the log of its tenant, or in the server's own (--server-log). Records are signed, and
    none can be changed or removed without being found out: see drillcore verify, which needs no server.
    """


for command in (checkpoint, consistency, export, proof):
    audit.add_command(command)


@audit.command()
@filter_options
@server_log_option
@page_options
@connection_options
@pass_session
def query(session: Session, wanted: Wanted, server_log: bool, page_size: int, page_token: str, all_pages: bool) -> None:
    """List records, newest first. All that is given must match.

    \b
    Examples:
      drillcore audit query --corpus rules --action update
      drillcore audit query --since 2026-01-31 --operator 5f0c…
    """
    with session.client() as client:
        chosen = wanted.filter(client)
        page = fetch_pages(
            lambda token: client.query_audit(chosen, server_log=server_log, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("records", page, records_table(page.items))


@audit.command()
@click.argument("record", type=click.UUID)
@server_log_option
@connection_options
@pass_session
def show(session: Session, record: UUID, server_log: bool) -> None:
    """Show all of a record."""
    with session.client() as client:
        page = client.query_audit(AuditFilter(record_id=record), server_log=server_log)
    if not page.items:
        raise CommandError("AUDIT_RECORD_NOT_FOUND", f"the log has no record {record}")
    session.emit(page.items[0], record_table(page.items[0]))


@audit.command()
@click.option("--start", type=_INDEX, default=0, help="Index of the first record to check.  [default: 0]")
@server_log_option
@connection_options
@pass_session
@click.pass_context
def verify(context: click.Context, session: Session, start: int, server_log: bool) -> None:
    """Let the server check its records: signatures, contents and tree.

    This finds damage, and edits of the database behind the server's back. Whoever does not trust the server exports
    the log and verifies that: drillcore audit export, then drillcore verify.
    """
    with session.client() as client:
        found = _verified(client, start, server_log, shown=not session.json and sys.stderr.isatty())
    problems = found.pop("problems")
    table = listing(["index", "record", "problem"], [(one.index, one.record_id, one.problem) for one in problems])
    counts = f"{counted(found['verified'], 'record')} verified, {found['erased']:,} erased with proof"
    outcome = f"{counts}, {counted(len(problems), 'problem')}"
    session.emit({**found, "problems": problems}, *([table] if problems else []), outcome)
    context.exit(1 if problems else 0)


def _verified(client: Client, start: int, server_log: bool, *, shown: bool) -> dict[str, Any]:
    """All pages of a check."""
    verified = erased = 0
    problems: list[AuditProblem] = []
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not shown, transient=True) as progress:
        task = progress.add_task("", total=None)
        check: AuditCheck | None = None
        while check is None or not check.finished:
            check = client.verify_audit(start=start if check is None else check.next_start, server_log=server_log)
            verified, erased = verified + check.verified, erased + check.erased
            problems += check.problems
            progress.update(task, completed=check.next_start, total=check.tree_size)
    return {"verified": verified, "erased": erased, "tree_size": check.tree_size, "problems": problems}


@audit.command()
@click.argument("first", type=_INDEX)
@click.argument("last", type=_INDEX)
@click.option("--findings", default="", help="What there was to find.")
@server_log_option
@write_options
@connection_options
@pass_session
def review(session: Session, first: int, last: int, findings: str, server_log: bool, request_id: str | None) -> None:
    """Mark the records from index FIRST to LAST as reviewed. The review counts once it is signed.

    Example: drillcore audit review 0 4711 --findings "no objection"
    """
    with session.client() as client:
        made = client.review_audit(first, last, findings=findings, server_log=server_log, request_id=request_id)
    session.emit(made, reviews_table([made]), f"sign it: drillcore sign review {made.id} --meaning reviewed")


@audit.command()
@server_log_option
@page_options
@connection_options
@pass_session
def reviews(session: Session, server_log: bool, page_size: int, page_token: str, all_pages: bool) -> None:
    """List reviews, oldest first, and who signed them."""
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_reviews(server_log=server_log, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("reviews", page, reviews_table(page.items))


@audit.command()
@server_log_option
@connection_options
@pass_session
def keys(session: Session, server_log: bool) -> None:
    """List the keys that the server has signed with. Pin one that you know by another way than from the server."""
    with session.client() as client:
        chain = KeyChain.parse(json.loads(client.get_checkpoint(server_log=server_log).keys))
    found = [(key.number, key.introduced_at, chain.verifier(key).encode()) for key in chain.keys]
    document = [{"number": number, "introduced_at": at, "key": key} for number, at, key in found]
    session.emit({"keys": document}, listing(["number", "since", "key"], found))


@audit.command("rotate-key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@write_options
@connection_options
@pass_session
def rotate_key(session: Session, yes: bool, request_id: str | None) -> None:
    """Begin to sign with a new key, which the one before it vouches for. For operators."""
    session.confirm("Sign with a new key from now on", yes)
    with session.client(in_tenant=False) as client:
        made = client.rotate_audit_key(request_id=request_id)
    session.emit({"key": made.key}, f"signing with {made.key}")
