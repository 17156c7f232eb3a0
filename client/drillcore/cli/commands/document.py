"""`drillcore documents`, `update` and `remove`."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from drillcore._api.messages import AsOf
from drillcore.cli.files import INPUT_PATH_OR_STDIN
from drillcore.cli.options import (
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    set_option,
    version_option,
    write_options,
    yes_option,
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
        (found.id, found.source_id, found.source_version, found.media_type, found.chunks, found.characters, found.title)
        for found in page.items
    ]
    columns = ["id", "source", "version", "type", "chunks", "characters", "title"]
    session.emit_page("documents", page, listing(columns, rows))


@click.command()
@click.argument("file", type=INPUT_PATH_OR_STDIN, metavar="FILE")
@corpus_option
@click.option("--source", "source_id", metavar="ID", help="The document to change, by its source.")
@click.option("--document", "document_id", type=click.UUID, metavar="ID", help="The document to change, by its id.")
@click.option("--name", help="Name, a hint to the format and title.  [default: the file's name]")
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
    """Replace the content of a document with a FILE, or with stdin (-), as one revision.

    The version of its source goes up by one, and the document gets a new id. Earlier revisions keep the old content.
    --set replaces all metadata; without it the metadata stays. --expected-version is the version of the source.

    \b
    Examples:
      drillcore update sop-7.md --corpus rules --source sop-7.md
      drillcore update new.pdf --corpus rules --document 01a2... --set edition=2
    """
    if (source_id is None) == (document_id is None):
        raise click.UsageError("give either --source or --document")
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
@yes_option
@write_options
@connection_options
@pass_session
def remove(session: Session, document_ids: tuple[UUID, ...], corpus: str, yes: bool, request_id: str | None) -> None:
    """Remove documents, by id, from every level of a corpus as one revision. Earlier revisions keep them."""
    session.confirm(f"Remove {counted(len(set(document_ids)), 'document')} from {corpus}", yes)
    with session.client() as client:
        result = client.remove_documents(find_corpus_id(client, corpus), document_ids, request_id=request_id)
    session.emit(result, f"removed {counted(result.removed, 'document')}: revision {result.revision}")
