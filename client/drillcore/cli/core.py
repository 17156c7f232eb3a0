"""`drillcore core ...`"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from drillcore._client import Client
from drillcore._convert_nodes import AsOf
from drillcore._core_receiving import part_path, signature_path, unfinished_revision
from drillcore._core_results import CoreExport, CoreKind
from drillcore.audit import VerifierKey
from drillcore.audit.notes import ED25519
from drillcore.cli.core_files import inspect, read_note, verify
from drillcore.cli.core_text import export_report, import_report
from drillcore.cli.input_files import readable
from drillcore.cli.options import as_of_option, connection_options, corpus_option, write_options
from drillcore.cli.output_files import OUTPUT_PATH, cannot_write, check_new, force_option
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.transfer_progress import TransferProgress
from drillcore.cli.verify import Keys
from drillcore.errors import NotFound
from drillcore_proto.reasons import Reason

_UNFINISHED: Final = (
    "a server that has all of the file stores it, as drillcore history shows; else it keeps what it has for a while, "
    "and the same command goes on from there"
)
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def core() -> None:
    """Knowledge cores: a corpus as a file that another server, or TrustGraph, can load."""


core.add_command(inspect)
core.add_command(verify)


@core.command()
@corpus_option
@click.option("--output", type=OUTPUT_PATH, required=True, help="Where the core goes; its signature beside it, .sig.")
@click.option(
    "--kind",
    type=click.Choice([one.value for one in CoreKind]),
    default=CoreKind.FULL.value,
    show_default=True,
    help="full rebuilds the corpus elsewhere; the others are only what TrustGraph knows.",
)
@click.option("--no-sources", is_flag=True, help="Leave out the texts of documents and chunks, and the hierarchy.")
@click.option("--retrieval", is_flag=True, help="Also tell what your envelopes were made of.")
@click.option("--core-id", default="", help="As TrustGraph knows it.  [default: the master's IRI]")
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
    """Write a corpus to a knowledge core, with a signature that drillcore core verify checks.

    The file is there when it is whole. What came before a lost connection, or a Ctrl-C, is kept beside it: within a day
    the same command goes on from there, with the revision that it began with.

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

        with _said("what came is kept, and the same command goes on from there"):
            try:
                begun = None if as_of is not None else unfinished_revision(output)
                result = _gone_on(made, output, begun) or made(_head(client, corpus_id) if as_of is None else as_of)
            except OSError as error:
                raise cannot_write(output, error) from error
    session.emit(result, *export_report(result))


@contextlib.contextmanager
def _said(left: str) -> Iterator[None]:
    """Says after a Ctrl-C how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise CommandError("ABORTED", f"stopped at the user's wish; {left}") from error


def _gone_on(made: Callable[[AsOf], CoreExport], output: Path, begun: int | None) -> CoreExport | None:
    """The core that was begun at this revision; None if there is none, or it can never be finished."""
    if begun is None:
        return None
    click.echo(f"going on with revision {begun}, of which a part is there", err=True)
    try:
        return made(begun)
    except NotFound as error:
        if error.reason not in {Reason.REVISION_NOT_FOUND, Reason.REVISION_TRIMMED}:
            raise
    part_path(output, begun).unlink(missing_ok=True)
    return None


def _head(client: Client, corpus_id: UUID) -> int:
    """The revision to export, so that it stays the same over lost connections."""
    (state,) = client.get_state([corpus_id], revision_only=True).corpora
    return state.revision


@core.command("import")
@click.argument("file", type=_FILE)
@corpus_option
@click.option("--strict", is_flag=True, help="Refuse what would be skipped.")
@click.option(
    "--source", "source_id", metavar="ID", default="", help="Of another system's core.  [default: core: and its id]"
)
@click.option("--signature", type=_FILE, help="A signed note about FILE.  [default: FILE.sig, if it is there]")
@click.option("--key", "keys", type=Keys(ED25519), multiple=True, help="Refuse a core that none of these signed.")
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
    """Store what is in a knowledge core FILE, as one revision: all or none.

    A full core of Drillcore needs a corpus without content. What came before a lost connection, or a Ctrl-C, the server
    keeps for a while: the same command goes on from there.

    \b
    Examples:
      drillcore core import rules.core --corpus rules --key server.vkey
      drillcore core import trustgraph.core --corpus rules --source trustgraph --strict
    """
    note = signature or (signature_path(file) if signature_path(file).is_file() else None)
    if keys and note is None:
        raise CommandError("CORE_UNSIGNED", f"{file} has no signature beside it: name it with --signature")
    bar = TransferProgress(session, "sending", file.stat().st_size)
    with session.client() as client, readable(file), _said(_UNFINISHED), bar:
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
    session.emit(result, *import_report(result))
