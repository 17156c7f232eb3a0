"""`drillcore quads import` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from drillcore._convert_nodes import AsOf
from drillcore._quad_results import QuadFormat
from drillcore.cli.input_files import readable
from drillcore.cli.options import connection_options, corpus_option, write_options
from drillcore.cli.output_files import OUTPUT_PATH, check_new, force_option, written_whole
from drillcore.cli.quad_options import GraphText, matching_options, put_text, source_option
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore.cli.transfer_progress import TransferProgress
from drillcore.quads import QuadPattern

_BY_ENDING: Final = {".nq": QuadFormat.N_QUADS, ".nt": QuadFormat.N_QUADS, ".ttl": QuadFormat.TURTLE}
_FORMAT: Final = click.option(
    "--format",
    "format_",
    type=click.Choice([one.value for one in QuadFormat]),
    help="Of the file.  [default: by its ending, .nq, .nt or .ttl]",
)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@corpus_option
@_FORMAT
@source_option
@click.option("--graph", "-g", type=GraphText(), default=None, help="Of what has none in the file: <iri> or _:label.")
@click.option("--base", "base_iri", metavar="IRI", default="", help="Of relative IRIs in a Turtle file.")
@click.option("--rename-blank-nodes", is_flag=True, help="Keep those of the file apart from those of the corpus.")
@write_options
@connection_options
@pass_session
def import_(
    session: Session,
    file: Path,
    corpus: str,
    format_: str | None,
    source_id: str,
    graph: str | None,
    base_iri: str,
    rename_blank_nodes: bool,
    request_id: str | None,
) -> None:
    """Store the quads of an N-Quads or Turtle FILE, as one revision: all or none.

    What an exported file tells of another corpus's own records is left out.

    \b
    Examples:
      drillcore quads import ontology.ttl --corpus rules --source ontology -g '<urn:graph:ontology>'
      drillcore quads import dump.nq --corpus rules
    """
    kind = _format(file, format_)
    bar = TransferProgress(session, "sending", file.stat().st_size)
    with session.client() as client, readable(file), bar:
        done = client.import_quads(
            find_corpus_id(client, corpus),
            file,
            format=kind,
            source_id=source_id,
            graph=graph or "",
            base_iri=base_iri,
            rename_blank_nodes=rename_blank_nodes,
            on_event=bar.quads,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(done, put_text(done))


@click.command()
@corpus_option
@click.option("--output", type=OUTPUT_PATH, required=True, help="Where the file goes.")
@_FORMAT
@matching_options
@force_option
@write_options
@connection_options
@pass_session
def export(
    session: Session,
    corpus: str,
    output: Path,
    format_: str | None,
    pattern: QuadPattern,
    as_of: AsOf | None,
    force: bool,
    request_id: str | None,
) -> None:
    """Write the quads that match to a file, as N-Quads or Turtle. For Turtle name one graph.

    \b
    Examples:
      drillcore quads export --corpus rules --output rules.nq
      drillcore quads export --corpus rules --output provenance.ttl -g '<urn:graph:source>'
    """
    check_new(output, force=force)
    kind = _format(output, format_)
    making = TransferProgress(session, "the server makes the file")
    with session.client() as client, written_whole(output) as file, making as bar:
        done = client.export_quads(
            find_corpus_id(client, corpus),
            file,
            pattern,
            format=kind,
            as_of=as_of,
            on_bytes=bar.received,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    told = f"wrote {counted(done.quads, 'quad')} of revision {done.revision} to {output}: {done.size_bytes:,} bytes"
    session.emit(done, told, f"SHA-256 {done.sha256}")


def _format(file: Path, named: str | None) -> QuadFormat:
    if named is not None:
        return QuadFormat(named)
    if file.suffix not in _BY_ENDING:
        raise CommandError("UNKNOWN_FORMAT", f"{file}: say what it is with --format", exit_code=2)
    return _BY_ENDING[file.suffix]
