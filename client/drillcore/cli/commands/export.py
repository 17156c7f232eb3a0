"""`drillcore export`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from drillcore._api.exports import ExportFormat, ExportResult
from drillcore._api.messages import AsOf
from drillcore.cli.files import OUTPUT_PATH, check_new, force_option, written_whole
from drillcore.cli.options import as_of_option, connection_options, corpus_option, write_options
from drillcore.cli.progress import TransferProgress
from drillcore.cli.session import Session, find_corpus_id, pass_session

_MAKING: Final = "the server makes the bundle"


@click.command()
@corpus_option
@click.option(
    "--format",
    "format_",
    type=click.Choice([known.value for known in ExportFormat]),
    default=ExportFormat.JSON.value,
    show_default=True,
    help="Format of the copy in the bundle. All formats have the same content.",
)
@click.option(
    "--output",
    type=OUTPUT_PATH,
    required=True,
    help="ZIP file to write.",
)
@click.option("--no-audit", is_flag=True, help="Leave out the audit trail of the corpus.")
@force_option
@as_of_option
@write_options
@connection_options
@pass_session
def export(
    session: Session,
    corpus: str,
    format_: str,
    output: Path,
    no_audit: bool,
    force: bool,
    as_of: AsOf | None,
    request_id: str | None,
) -> None:
    """Write a signed copy of a corpus: content, electronic signatures, audit trail and proofs in one ZIP file.

    The file appears once it is complete. `drillcore verify` checks it with the server's public key, without the server.

    \b
    Examples:
      drillcore export --corpus rules --output rules.zip
      drillcore export --corpus rules --format pdf --output rules-2026.zip --as-of 2026-01-31
      drillcore verify rules.zip --key 'drillcore-...'
    """
    check_new(output, force=force)
    with session.client() as client, written_whole(output) as file, TransferProgress(session, _MAKING) as bar:
        result = client.export_corpus(
            find_corpus_id(client, corpus),
            file,
            format=ExportFormat(format_),
            as_of=as_of,
            include_audit=not no_audit,
            on_bytes=bar.received,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(result, *_summary(result, output))


def _summary(result: ExportResult, output: Path) -> list[str]:
    return [
        f"exported revision {result.revision} to {output}: {result.size_bytes} bytes, export {result.export_id}",
        f"SHA-256 {result.sha256}",
    ]
