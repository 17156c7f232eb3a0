"""`drillcore documents`, `update` and `remove`."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from drillcore._convert_nodes import AsOf
from drillcore.cli.options import (
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    set_option,
    version_option,
    write_options,
)
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing


@click.command()
@corpus_option
@as_of_option
@page_options
@connection_options
@pass_session
def documents(
    session: Session, corpus: str, as_of: AsOf | None, page_size: int, page_token: str, all_pages: bool
) -> None:
    """List the documents of a corpus, one page unless --all."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_documents(corpus_id, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [
        (one.id, one.source_id, one.source_version, one.media_type, one.chunks, one.characters, one.title)
        for one in page.items
    ]
    columns = ["id", "source", "version", "type", "chunks", "characters", "title"]
    session.emit_page("documents", page, listing(columns, rows))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path), metavar="FILE")
@corpus_option
@click.option("--source", "source_id", metavar="ID", help="The document, by its source.")
@click.option("--document", "document_id", type=click.UUID, metavar="ID", help="The document, by its own id.")
@click.option("--name", help="Hint to format and title.  [default: the file's name]")
@click.option("--media-type", default="", help="Hint to the format; the content decides.")
@set_option
@version_option
@write_options
@connection_options
@pass_session
def update(
    session: Session,
    file: Path,
    corpus: str,
    source_id: str | None,
    document_id: UUID | None,
    name: str | None,
    media_type: str,
    metadata: tuple[tuple[str, str], ...],
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Give a document of a corpus the content of a file, or with - of stdin, as one revision.

    Its source goes up one version and the document gets a new id; earlier revisions keep the old. Metadata given with
    --set replaces the old, which is kept otherwise. --expected-version is the source's.

    \b
    Examples:
      drillcore update sop-7.md --corpus rules --source sop-7.md
      drillcore update new.pdf --corpus rules --document 01a2... --set edition=2
    """
    if (source_id is None) == (document_id is None):
        raise click.UsageError("name the document by --source or by --document")
    from_stdin = str(file) == "-"
    with session.client() as client:
        result = client.update_document(
            find_corpus_id(client, corpus),
            sys.stdin.buffer if from_stdin else file,
            document_id=document_id,
            source_id=source_id,
            expected_source_version=expected_version,
            name=name or ("" if from_stdin else file.name),
            media_type=media_type,
            metadata=dict(metadata) if metadata else None,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    version = f"document {result.document_id}, version {result.source_version} of its source"
    session.emit(result, f"{result.kind.value}: {version}; revision {result.revision}")


@click.command()
@click.argument("document_ids", type=click.UUID, nargs=-1, required=True, metavar="DOCUMENT...")
@corpus_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@write_options
@connection_options
@pass_session
def remove(session: Session, document_ids: tuple[UUID, ...], corpus: str, yes: bool, request_id: str | None) -> None:
    """Remove documents, by id, from every level of a corpus, as one revision. Earlier revisions still have them."""
    session.confirm(f"Remove {counted(len(set(document_ids)), 'document')} from {corpus}", yes)
    with session.client() as client:
        result = client.remove_documents(find_corpus_id(client, corpus), document_ids, request_id=request_id)
    session.emit(result, f"removed {counted(result.removed, 'document')}: revision {result.revision}")
