"""`drillcore corpus ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._client import Client
from drillcore._results import Corpus
from drillcore.cli.options import (
    connection_options,
    page_options,
    set_option,
    unset_option,
    version_option,
    write_options,
)
from drillcore.cli.session import Session, as_id, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import listing, record


@click.group()
def corpus() -> None:
    """Create, show, change and delete corpora.

    A corpus is a body of documents of one tenant: the one your token belongs to, or for operators the one that --tenant
    names. Commands take its id or its name.
    """


@corpus.command()
@click.argument("name")
@click.option("--description", default="", help="What it holds.")
@set_option
@click.option("--id", "corpus_id", type=click.UUID, help="An id of your own; by default the server makes one.")
@write_options
@connection_options
@pass_session
def create(
    session: Session,
    name: str,
    description: str,
    metadata: tuple[tuple[str, str], ...],
    corpus_id: UUID | None,
    request_id: str | None,
) -> None:
    """Create a corpus.

    Example: drillcore corpus create trials --description "Phase II reports" --set phase=2
    """
    with session.client() as client:
        created = client.create_corpus(
            name, description=description, metadata=dict(metadata), corpus_id=corpus_id, request_id=request_id
        )
    _emit(session, created)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@connection_options
@pass_session
def get(session: Session, reference: str) -> None:
    """Show a corpus."""
    with session.client() as client:
        _emit(session, _find(client, reference))


@corpus.command("list")
@page_options
@connection_options
@pass_session
def list_(session: Session, page_size: int, page_token: str, all_pages: bool) -> None:
    """List corpora, one page unless --all."""
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_corpora(page_size=page_size, page_token=token), page_token, all_pages
        )
    rows = [(one.id, one.name, one.version, one.description) for one in page.items]
    session.emit_page("corpora", page, listing(["id", "name", "version", "description"], rows))


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@click.option("--name", help="New name.")
@click.option("--description", help="New description.")
@set_option
@unset_option
@version_option
@write_options
@connection_options
@pass_session
def update(
    session: Session,
    reference: str,
    name: str | None,
    description: str | None,
    metadata: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Change a corpus's name, description or metadata; what is not named stays.

    Example: drillcore corpus update trials --set phase=3 --unset draft
    """
    if name is None and description is None and not metadata and not unset:
        raise click.UsageError("say what to change: see --help")
    with session.client() as client:
        updated = client.update_corpus(
            find_corpus_id(client, reference),
            name=name,
            description=description,
            set_metadata=dict(metadata),
            remove_metadata=unset,
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit(session, updated)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
@version_option
@write_options
@connection_options
@pass_session
def delete(session: Session, reference: str, yes: bool, expected_version: int | None, request_id: str | None) -> None:
    """Delete a corpus. Its id is never used again."""
    session.confirm(f"Delete the corpus {reference}", yes)
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        client.delete_corpus(corpus_id, expected_version=expected_version, request_id=request_id)
    session.emit({"deleted": corpus_id}, f"deleted corpus {corpus_id}")


def _find(client: Client, reference: str) -> Corpus:
    corpus_id = as_id(reference)
    return client.get_corpus(corpus_id) if corpus_id else client.get_corpus(name=reference)


def _emit(session: Session, found: Corpus) -> None:
    session.emit(found, record(found))
