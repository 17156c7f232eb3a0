"""`drillcore documents` and `remove`."""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._convert_nodes import AsOf
from drillcore.cli.options import as_of_option, connection_options, corpus_option, page_options, write_options
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
