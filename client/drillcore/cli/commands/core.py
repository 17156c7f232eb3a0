"""`drillcore core ...`"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from uuid import UUID

import click
from rich.console import RenderableType
from rich.text import Text

from drillcore._api.core_data import CoreCounts, CoreExport, CoreImport, CoreKind
from drillcore._api.core_download import part_path, signature_path, unfinished_revision
from drillcore._api.messages import AsOf
from drillcore._client import Client
from drillcore.cli.commands.verify import Keys
from drillcore.cli.files import INPUT_PATH, MISUSED, OUTPUT_PATH, cannot_write, check_new, force_option, readable
from drillcore.cli.options import as_of_option, common_options, connection_options, corpus_option, write_options
from drillcore.cli.progress import TransferProgress
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, one_line, pairs, printable
from drillcore.errors import NotFound
from drillcore_formats.audit import VerificationFailed, VerifierKey
from drillcore_formats.audit.notes import ED25519, NOTE_CHARACTERS_MAX
from drillcore_formats.plugins import CommandError
from drillcore_proto.reasons import Reason

if TYPE_CHECKING:  # these need msgpack, which other commands do not load
    from drillcore_formats.cores import CoreSummary, VerifiedCore

_DERIVED: Final = "DERIVED"
"""The server derives these quads from other records of the core, so nothing is lost."""
_SKIPPED_LISTED_MAX: Final = 1_000
"""How many skipped records a server lists one by one."""


_UNFINISHED: Final = (
    "if the server has the whole file it stores it, as `drillcore history` shows; else run the same command again to "
    "continue"
)


@click.group()
def core() -> None:
    """Export, import, inspect and verify knowledge cores.

    A knowledge core is a corpus in one file. Another Drillcore server, or TrustGraph, can load it.
    """


@core.command()
@click.argument("file", type=INPUT_PATH)
@common_options
@pass_session
def inspect(session: Session, file: Path) -> None:
    """Show what is in a knowledge core FILE of Drillcore or TrustGraph. Reads the whole file; needs no server.

    Example: drillcore core inspect rules.core
    """
    from drillcore_formats.cores import inspect as inspected

    with _read_through(session, file, "INVALID_CORE") as opened:
        found = inspected(opened)
    session.emit(found, _summary_report(found))


@core.command()
@click.argument("file", type=INPUT_PATH)
@click.option(
    "--key", "keys", type=Keys(ED25519), multiple=True, required=True, help="The server's key, or a file with keys."
)
@click.option("--signature", type=INPUT_PATH, help="The signed note about FILE.  [default: FILE.sig]")
@common_options
@pass_session
def verify(session: Session, file: Path, keys: tuple[tuple[VerifierKey, ...], ...], signature: Path | None) -> None:
    """Verify that a server signed exactly this knowledge core FILE. Needs the server's key, but no server.

    Exit codes: 0 verified, 1 something is wrong, 2 wrong usage.

    Example: drillcore core verify rules.core --key server.vkey
    """
    from drillcore_formats.cores import verify as verified

    note = read_note(signature or signature_path(file))
    with _read_through(session, file, "NOT_VERIFIED") as opened:
        found = verified(opened, note, [key for given in keys for key in given])
    session.emit({"ok": True, "path": file, "core": found}, *_verified_report(str(file), found))


def read_note(path: Path) -> str:
    """The text of a signed note. Raises CommandError if the file cannot be read or is not UTF-8."""
    with readable(path), path.open("rb") as file:
        content = file.read(NOTE_CHARACTERS_MAX + 1)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError("UNREADABLE_FILE", f"{path} is not UTF-8", exit_code=MISUSED) from error


@contextlib.contextmanager
def _read_through(session: Session, path: Path, reason: str) -> Iterator[BinaryIO]:
    """Opens the file and shows progress as it is read. An invalid file raises CommandError with this reason."""
    try:
        bar = TransferProgress(session, "reading", path.stat().st_size)
        with readable(path), path.open("rb") as file, bar:
            yield bar.watched(file)
    except VerificationFailed as error:
        raise CommandError(reason, f"{path}: {error}") from error


@core.command()
@corpus_option
@click.option(
    "--output", type=OUTPUT_PATH, required=True, help="File to write. Its signature is written beside it, with .sig."
)
@click.option(
    "--kind",
    type=click.Choice([known.value for known in CoreKind]),
    default=CoreKind.FULL.value,
    show_default=True,
    help="full rebuilds the corpus on another server; the others hold only what TrustGraph reads.",
)
@click.option("--no-sources", is_flag=True, help="Leave out the texts of documents and chunks, and the hierarchy.")
@click.option("--retrieval", is_flag=True, help="Include what your envelopes were made of.")
@click.option("--core-id", default="", help="The core's id in TrustGraph.  [default: the master's IRI]")
@force_option
@as_of_option
@write_options
@connection_options
@pass_session
def export(
    session: Session,
    corpus: str,
    output: Path,
    kind: str,
    no_sources: bool,
    retrieval: bool,
    core_id: str,
    force: bool,
    as_of: AsOf | None,
    request_id: str | None,
) -> None:
    """Write a corpus to a knowledge core, with a signature that `drillcore core verify` checks.

    The file appears once it is complete. After a lost connection or a Ctrl-C, the part that arrived is kept beside it.
    Run the same command within a day, and it continues from there with the same revision.

    \b
    Examples:
      drillcore core export --corpus rules --output rules.core
      drillcore core export --corpus rules --output rules.core --kind plain --no-sources
    """
    check_new(output, force=force)
    with session.client() as client, TransferProgress(session, "the server makes the core") as bar:
        corpus_id = find_corpus_id(client, corpus)

        def made(moment: AsOf) -> CoreExport:
            return client.export_core(
                corpus_id,
                output,
                kind=CoreKind(kind),
                as_of=moment,
                include_sources=not no_sources,
                include_retrieval=retrieval,
                core_id=core_id,
                on_event=bar.exporting,
                request_id=request_id,
                timeout_s=session.upload_timeout_s,
            )

        with _advice_if_stopped("the part that arrived is kept: run the same command again to continue"):
            try:
                begun = None if as_of is not None else unfinished_revision(output)
                result = _continued(made, output, begun) or made(_head(client, corpus_id) if as_of is None else as_of)
            except OSError as error:
                raise cannot_write(output, error) from error
    session.emit(result, *_export_report(result))


@contextlib.contextmanager
def _advice_if_stopped(advice: str) -> Iterator[None]:
    """After a Ctrl-C, tells the user how to continue."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandError("ABORTED", f"you stopped it; {advice}") from error


def _continued(made: Callable[[AsOf], CoreExport], output: Path, begun: int | None) -> CoreExport | None:
    """The export that was begun at this revision. None if there is none, or if the revision is gone."""
    if begun is None:
        return None
    click.echo(f"continuing the export of revision {begun}", err=True)
    try:
        return made(begun)
    except NotFound as error:
        if error.reason not in {Reason.REVISION_NOT_FOUND, Reason.REVISION_TRIMMED}:
            raise
    part_path(output, begun).unlink(missing_ok=True)
    return None


def _head(client: Client, corpus_id: UUID) -> int:
    """The newest revision. The export names it, so that it does not change after a lost connection."""
    (state,) = client.get_state([corpus_id], revision_only=True).corpora
    return state.revision


@core.command("import")
@click.argument("file", type=INPUT_PATH)
@corpus_option
@click.option("--strict", is_flag=True, help="Refuse the file if any record would be skipped.")
@click.option(
    "--source",
    "source_id",
    metavar="ID",
    default="",
    help="Source of what another system's core brings.  [default: core: and its id]",
)
@click.option("--signature", type=INPUT_PATH, help="The signed note about FILE.  [default: FILE.sig, if it exists]")
@click.option(
    "--key", "keys", type=Keys(ED25519), multiple=True, help="Refuse a core that none of these keys signed. Repeatable."
)
@write_options
@connection_options
@pass_session
def import_(
    session: Session,
    file: Path,
    corpus: str,
    strict: bool,
    source_id: str,
    signature: Path | None,
    keys: tuple[tuple[VerifierKey, ...], ...],
    request_id: str | None,
) -> None:
    """Store a knowledge core FILE as one revision: all of it or nothing.

    A full core of Drillcore needs an empty corpus. After a lost connection or a Ctrl-C, the server keeps what it has
    received for a while. Run the same command again, and it continues from there.

    \b
    Examples:
      drillcore core import rules.core --corpus rules --key server.vkey
      drillcore core import trustgraph.core --corpus rules --source trustgraph --strict
    """
    note = signature or (signature_path(file) if signature_path(file).is_file() else None)
    if keys and note is None:
        raise CommandError("CORE_UNSIGNED", f"{file} has no signature beside it: give --signature")
    bar = TransferProgress(session, "sending", file.stat().st_size)
    with session.client() as client, readable(file), _advice_if_stopped(_UNFINISHED), bar:
        result = client.import_core(
            find_corpus_id(client, corpus),
            file,
            strict=strict,
            source_id=source_id,
            signature=read_note(note) if note else "",
            verification_keys=[key.encode() for given in keys for key in given],
            on_event=bar.importing,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(result, *_import_report(result))


def _export_report(done: CoreExport) -> Iterator[RenderableType]:
    yield f"exported revision {done.revision} to {done.path}: {done.size_bytes:,} bytes{_counts(done.counts)}"
    yield f"SHA-256 {done.sha256}, signed in {done.signature_path}"


def _import_report(done: CoreImport) -> Iterator[RenderableType]:
    kind = f"a {done.kind.value} core" if done.kind else "a core"
    signed = f", signed by {printable(done.signed_by)}" if done.signed_by else ""
    yield f"stored {kind}{signed}: revision {done.revision}{_counts(done.counts)}"
    rows = [
        (skip.record, skip.offset_bytes, skip.tag, skip.id, skip.reason, skip.message)
        for skip in done.skipped
        if skip.reason != _DERIVED
    ]
    if rows:
        yield Text("skipped:", "yellow")
        yield listing(["record", "at byte", "tag", "what", "reason", "message"], rows)
    if len(done.skipped) >= _SKIPPED_LISTED_MAX:
        yield f"the server lists at most {_SKIPPED_LISTED_MAX:,} skipped records; there may be more"


def _counts(counts: CoreCounts) -> str:
    """The counts above zero, each after a comma."""
    found = {field.name.removeprefix("entity_"): getattr(counts, field.name) for field in dataclasses.fields(counts)}
    return "".join(f", {_counted(number, name.replace('_', ' '))}" for name, number in found.items() if number)


def _counted(number: int, nouns: str) -> str:
    noun = nouns.removesuffix("ies") + "y" if nouns.endswith("ies") else nouns.removesuffix("s")
    return f"{number:,} {noun if number == 1 else nouns}"


def _summary_report(found: CoreSummary) -> RenderableType:
    rows = {
        "core": found.core_id or "-",
        "kind": _kind(found),
        "size": f"{found.size_bytes:,} bytes",
        "SHA-256": found.sha256,
        "records": _numbers(found.records),
        "quads": _numbers(found.quads),
        "entity vectors": _numbers({f"of {size} dimensions": number for size, number in found.entities.items()}),
        "chunk vectors": _numbers({f"of {size} dimensions": number for size, number in found.chunks.items()}),
        "library": f"{counted(found.library_documents, 'document')}, {found.library_bytes:,} bytes",
        "parts": _numbers(found.parts),
        "invalid terms": f"{found.invalid_terms:,}" if found.invalid_terms else "",
    }
    return pairs((name, one_line(text)) for name, text in rows.items() if text)


def _kind(found: CoreSummary) -> str:
    if found.root is None:
        return "document embeddings" if found.chunks else "plain"
    model = found.root.model
    parts = [
        "full",
        "with sources" if found.root.sources else "without sources",
        f"vectors by {model.name} ({model.dimensions})" if model else "without vectors",
        "" if found.whole else "INCOMPLETE: its end is missing",
    ]
    return ", ".join(filter(None, parts))


def _numbers(found: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in found.items())


def _verified_report(file: str, found: VerifiedCore) -> Iterator[RenderableType]:
    statement = found.statement
    yield Text.assemble((printable(file), "bold"), ": core, ", ("verified", "green"))
    yield pairs(
        (name, one_line(value))
        for name, value in {
            "signed by": ", ".join(found.signed_by),
            "corpus": statement.corpus,
            "revision": statement.revision,
            "made at": statement.made_at,
            "record": statement.record,
            "size": f"{statement.size_bytes:,} bytes",
            "SHA-256": statement.sha256,
        }.items()
    )
