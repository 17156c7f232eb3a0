"""`drillcore audit ...`"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, TextIO
from uuid import UUID

import click
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from drillcore._api.audit import AuditCheck, AuditFilter, AuditFormat, AuditProblem, AuditRecord, Review
from drillcore._client import Client
from drillcore.cli.files import MISUSED, OUTPUT_PATH, written_whole
from drillcore.cli.options import applied, connection_options, page_options, write_options, yes_option
from drillcore.cli.progress import Bar, is_shown
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, first_words, listing, one_line, pairs, printable
from drillcore.cli.values import Time
from drillcore_formats.audit.checkpoints import Checkpoint
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.keys import KeyChain
from drillcore_formats.audit.notes import NOTE_CHARACTERS_MAX, Note
from drillcore_formats.audit.pairs import make_pair
from drillcore_formats.plugins import CommandError

_FINDINGS_WIDTH: Final = 60
_INDEX: Final = click.IntRange(0)
_server_log_option: Final = click.option(
    "--server-log", is_flag=True, help="Use the server's own log, about calls that belong to no tenant; for operators."
)
_output_option: Final = click.option("--output", "-o", type=OUTPUT_PATH, help="Write it to this file.")
_FILTERS: Final = (
    click.option("--corpus", metavar="ID|NAME", help="Only calls that touched this corpus."),
    click.option("--node", type=click.UUID, help="Only calls that touched this node or document."),
    click.option("--operator", default="", help="Only calls by this account id or token name."),
    click.option("--action", default="", help="Only this kind of call, such as ACCESS, UPDATE or SIGN."),
    click.option("--since", type=Time(), help="Only calls from this time on."),
    click.option("--until", type=Time(), help="Only calls before this time."),
    click.option("--of-request", default="", metavar="ID", help="Only this request."),
    click.option("--record", type=click.UUID, help="Only the record with this id."),
)


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which records. The command gets `filters`, a function that takes a client and returns the AuditFilter."""

    @wraps(command)
    def with_filters(
        *args: Any,
        corpus: str | None,
        node: UUID | None,
        operator: str,
        action: str,
        since: datetime | None,
        until: datetime | None,
        of_request: str,
        record: UUID | None,
        **others: Any,
    ) -> Any:
        def filters(client: Client) -> AuditFilter:
            return AuditFilter(
                corpus_id=None if corpus is None else find_corpus_id(client, corpus),
                node_id=node,
                operator=operator,
                action=action.upper(),
                since=since,
                until=until,
                request_id=of_request,
                record_id=record,
            )

        return command(*args, filters=filters, **others)

    return applied(with_filters, *_FILTERS)


@click.group()
def audit() -> None:
    """Find, prove, export and review audit records.

    Every call leaves a record in the log of its tenant, or in the server's own log (--server-log). Records are signed:
    `drillcore verify` finds any that was changed or removed, and needs no server for it.
    """


@audit.command()
@_filter_options
@_server_log_option
@page_options
@connection_options
@pass_session
def query(
    session: Session,
    filters: Callable[[Client], AuditFilter],
    server_log: bool,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List the records that match all flags, newest first.

    \b
    Examples:
      drillcore audit query --corpus rules --action update
      drillcore audit query --since 2026-01-31 --operator 5f0c…
    """
    with session.client() as client:
        chosen = filters(client)
        page = fetch_pages(
            lambda token: client.query_audit(chosen, server_log=server_log, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    columns = ["index", "at", "operator", "action", "call", "outcome", "request", "id"]
    session.emit_page("records", page, listing(columns, map(_record_row, page.items)))


def _record_row(record: AuditRecord) -> tuple[object, ...]:
    body = record.body
    who = body.get("operator_login") or body.get("operator", "")
    index = "" if record.index is None else record.index
    return index, body["at"], who, body["action"], body["call"], body["outcome"], body["request_id"], record.id


@audit.command()
@click.argument("record", type=click.UUID)
@_server_log_option
@connection_options
@pass_session
def show(session: Session, record: UUID, server_log: bool) -> None:
    """Show one record with all its fields."""
    with session.client() as client:
        page = client.query_audit(AuditFilter(record_id=record), server_log=server_log)
    if not page.items:
        raise CommandError("AUDIT_RECORD_NOT_FOUND", f"the log has no record {record}")
    session.emit(page.items[0], _record_table(page.items[0]))


def _record_table(record: AuditRecord) -> Table:
    index = "not in the log yet" if record.index is None else record.index
    private = "erased" if record.erased else record.private
    rows = [("index", index), *record.body.items(), ("private part", private)]
    return pairs((name, _value(value)) for name, value in rows if name != "private" and value is not None)


def _value(value: object) -> Text:
    if isinstance(value, Mapping | list):
        return Text("\n").join(Text(printable(line)) for line in _value_lines(value))
    return one_line(value)


def _value_lines(value: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    if isinstance(value, list):
        yield from (item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in value)
        return
    for name, inner in value.items():
        yield f"{name}: {inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}"


@audit.command()
@click.option("--start", type=_INDEX, default=0, help="Index of the first record to check.  [default: 0]")
@_server_log_option
@connection_options
@pass_session
@click.pass_context
def verify(context: click.Context, session: Session, start: int, server_log: bool) -> None:
    """Let the server check the signatures, contents and tree of its records.

    This finds damage, and changes that were made in the database directly. If you do not trust the server, export the
    log with `drillcore audit export` and check it with `drillcore verify`.
    """
    with session.client() as client:
        found = _verified(client, start, server_log, shown=is_shown(session))
    problems = found.pop("problems")
    rows = [(problem.index, problem.record_id, problem.problem) for problem in problems]
    counts = f"{counted(found['verified'], 'record')} verified, {found['erased']:,} erased with proof"
    outcome = f"{counts}, {counted(len(problems), 'problem')}"
    table = [listing(["index", "record", "problem"], rows)] if problems else []
    session.emit({**found, "problems": problems}, *table, outcome)
    context.exit(1 if problems else 0)


def _verified(client: Client, start: int, server_log: bool, *, shown: bool) -> dict[str, Any]:
    """Checks all records from `start` on, in as many calls as it takes."""
    verified = erased = 0
    problems: list[AuditProblem] = []
    with Bar(TextColumn("records"), BarColumn(), MofNCompleteColumn(), shown=shown) as bar:
        check: AuditCheck | None = None
        while check is None or not check.finished:
            check = client.verify_audit(start=start if check is None else check.next_start, server_log=server_log)
            verified, erased = verified + check.verified, erased + check.erased
            problems += check.problems
            bar.update(completed=check.next_start, total=check.tree_size)
    return {"verified": verified, "erased": erased, "tree_size": check.tree_size, "problems": problems}


@audit.command()
@click.argument("file", type=OUTPUT_PATH)
@click.option(
    "--format",
    "format_",
    type=click.Choice([known.value for known in AuditFormat]),
    default=AuditFormat.NDJSON.value,
    show_default=True,
    help="ndjson can be verified offline; ocsf is for other tools.",
)
@_filter_options
@_server_log_option
@connection_options
@pass_session
def export(
    session: Session, file: Path, format_: str, filters: Callable[[Client], AuditFilter], server_log: bool
) -> None:
    """Write the whole log, or the records that match, to FILE, oldest first.

    \b
    Examples:
      drillcore audit export audit.ndjson
      drillcore audit export rules.ndjson --corpus rules
      drillcore verify audit.ndjson --key server.vkey
    """
    bar = Bar(TextColumn("received"), DownloadColumn(), TransferSpeedColumn(), shown=is_shown(session))
    with session.client() as client, bar, written_whole(file, _cannot_write) as opened:
        size_bytes = client.export_audit(
            opened,
            filters(client),
            format=AuditFormat(format_),
            on_bytes=lambda received_bytes: bar.update(completed=received_bytes),
            server_log=server_log,
            timeout_s=session.upload_timeout_s,
        )
    session.emit({"file": file, "size_bytes": size_bytes}, f"wrote {size_bytes:,} bytes to {file}")


@audit.command()
@click.argument("record", type=click.UUID, required=False)
@click.option("--of-request", metavar="ID", help="Instead of RECORD: the record of this request of yours.")
@click.option("--without-content", is_flag=True, help="Prove that the record is there without showing its content.")
@_output_option
@_server_log_option
@connection_options
@pass_session
def proof(
    session: Session,
    record: UUID | None,
    of_request: str | None,
    without_content: bool,
    output: Path | None,
    server_log: bool,
) -> None:
    """Show the proof that the log has RECORD. `drillcore verify` checks it.

    A record is in the log moments after its call. This command waits for it.

    Example: drillcore audit proof 5f0c… -o record.tlog-proof
    """
    if (record is None) == (of_request is None):
        raise click.UsageError("give either RECORD or --of-request")
    with session.client() as client:
        made = client.wait_proof(record, of_request=of_request, without_content=without_content, server_log=server_log)
    _show(session, {"index": made.index, "tree_size": made.tree_size, "proof": made.proof}, made.proof, output)


@audit.command()
@click.option("--size", type=click.IntRange(0), help="The published checkpoint of this size.  [default: the newest]")
@_output_option
@_server_log_option
@connection_options
@pass_session
def checkpoint(session: Session, size: int | None, output: Path | None, server_log: bool) -> None:
    """Show a checkpoint of the log. Keep it: every later log must continue it."""
    with session.client() as client:
        found = client.get_checkpoint(size=size, server_log=server_log)
    document = {"checkpoint": found.checkpoint, "keys": json.loads(found.keys)}
    _show(session, document, found.checkpoint, output)


@audit.command()
@click.argument("earlier", metavar="CHECKPOINT", type=click.File("r", encoding="utf-8"))
@click.option(
    "--to", "size", type=click.IntRange(0), metavar="SIZE", help="The later checkpoint.  [default: the newest]"
)
@_output_option
@_server_log_option
@connection_options
@pass_session
def consistency(session: Session, earlier: TextIO, size: int | None, output: Path | None, server_log: bool) -> None:
    """Show the proof that the log continues CHECKPOINT, a file that you kept. `drillcore verify` checks it.

    Example: drillcore audit consistency checkpoint-of-january -o pair.json
    """
    note = _read_note(earlier)
    with session.client() as client:
        later = client.get_checkpoint(size=size, server_log=server_log)
        hashes = client.consistency_proof(_size(note), _size(later.checkpoint), server_log=server_log)
    chain = KeyChain.parse(json.loads(later.keys))
    pair = make_pair(note, later.checkpoint, hashes, chain)
    _show(session, json.loads(pair), pair.decode(), output)


def _read_note(file: TextIO) -> str:
    try:
        note = file.read(NOTE_CHARACTERS_MAX + 1)
        _size(note)
    except (VerificationFailed, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file.name} is not a checkpoint: {error}") from error
    return note


def _size(note: str) -> int:
    """The size of the log at this checkpoint. Raises VerificationFailed if the note is not a checkpoint."""
    return Checkpoint.parse(Note.parse(note).text).size


def _show(session: Session, document: object, text: str, output: Path | None) -> None:
    """Shows the result, or writes its exact bytes to a file."""
    if output is None:
        session.emit(document, text.rstrip("\n"))
        return
    with written_whole(output, _cannot_write) as file:
        file.write(text.encode())
    session.emit(document, f"wrote {output}")


def _cannot_write(path: Path, error: OSError) -> CommandError:
    return CommandError("FILE_NOT_WRITTEN", f"{path} cannot be written: {error.strerror or error}", exit_code=MISUSED)


@audit.command()
@click.argument("first", type=_INDEX)
@click.argument("last", type=_INDEX)
@click.option("--findings", default="", help="What you found.")
@_server_log_option
@write_options
@connection_options
@pass_session
def review(session: Session, first: int, last: int, findings: str, server_log: bool, request_id: str | None) -> None:
    """Mark the records from index FIRST to LAST as reviewed. The review counts once you sign it.

    Example: drillcore audit review 0 4711 --findings "no objection"
    """
    with session.client() as client:
        made = client.review_audit(first, last, findings=findings, server_log=server_log, request_id=request_id)
    session.emit(made, _reviews_table([made]), f"sign it: drillcore sign review {made.id} --meaning reviewed")


@audit.command()
@_server_log_option
@page_options
@connection_options
@pass_session
def reviews(session: Session, server_log: bool, page_size: int, page_token: str, all_pages: bool) -> None:
    """List reviews and who signed them, oldest first."""
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_reviews(server_log=server_log, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("reviews", page, _reviews_table(page.items))


def _reviews_table(found: Iterable[Review]) -> Table:
    columns = ["id", "first", "last", "by", "at", "signed by", "findings"]
    return listing(columns, map(_review_row, found))


def _review_row(found: Review) -> tuple[object, ...]:
    signers = ", ".join(signature.signer_name for signature in found.signatures) or "nobody yet"
    findings = first_words(found.findings, _FINDINGS_WIDTH)
    return found.id, found.first, found.last, found.created_by, found.created_at, signers, findings


@audit.command()
@_server_log_option
@connection_options
@pass_session
def keys(session: Session, server_log: bool) -> None:
    """List the keys that the server has signed with.

    To verify the log, use a key that you did not get from the server itself.
    """
    with session.client() as client:
        chain = KeyChain.parse(json.loads(client.get_checkpoint(server_log=server_log).keys))
    found = [(key.number, key.introduced_at, chain.verifier(key).encode()) for key in chain.keys]
    document = [{"number": number, "introduced_at": at, "key": key} for number, at, key in found]
    session.emit({"keys": document}, listing(["number", "since", "key"], found))


@audit.command("rotate-key")
@yes_option
@write_options
@connection_options
@pass_session
def rotate_key(session: Session, yes: bool, request_id: str | None) -> None:
    """Start to sign with a new key, which the old key vouches for. For operators."""
    session.confirm("Sign with a new key from now on", yes)
    with session.client(in_tenant=False) as client:
        made = client.rotate_audit_key(request_id=request_id)
    session.emit({"key": made.key}, f"signing with {made.key}")
