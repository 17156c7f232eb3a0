"""`drillcore corpus ...`"""

from __future__ import annotations

import dataclasses
from uuid import UUID

import click

from drillcore._api.corpora import Corpus
from drillcore._client import Client
from drillcore.cli.options import (
    connection_options,
    page_options,
    reasoned_connection_options,
    set_option,
    unset_option,
    version_option,
    write_options,
    yes_option,
)
from drillcore.cli.session import Session, as_id, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, record


@click.group()
def corpus() -> None:
    """Create, show, change, share, hold, trim and delete corpora.

    A corpus is a body of documents that belongs to one tenant: the tenant of your token or, for operators, the one that
    --tenant names. Commands take its id or its name.
    """


@corpus.command()
@click.argument("name")
@click.option("--description", default="", help="What it holds.")
@set_option
@click.option("--id", "corpus_id", type=click.UUID, help="An id of your own.  [default: the server makes one]")
@click.option("--region", default="", help="Where its data may be. You cannot change it later.")
@write_options
@connection_options
@pass_session
def create(
    session: Session,
    name: str,
    description: str,
    metadata: tuple[tuple[str, str], ...],
    corpus_id: UUID | None,
    region: str,
    request_id: str | None,
) -> None:
    """Create a corpus.

    Example: drillcore corpus create trials --description "Phase II reports" --set phase=2
    """
    with session.client() as client:
        created = client.create_corpus(
            name,
            description=description,
            metadata=dict(metadata),
            corpus_id=corpus_id,
            region=region,
            request_id=request_id,
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
    """List the tenant's corpora and those shared with it, one page unless --all."""
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_corpora(page_size=page_size, page_token=token), page_token, all_pages
        )
    rows = [
        (found.id, found.name, found.version, found.region, _owner(found), found.description) for found in page.items
    ]
    titles = ["id", "name", "version", "region", "whose", "description"]
    session.emit_page("corpora", page, listing(titles, rows))


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@click.option("--name", help="New name.")
@click.option("--description", help="New description.")
@set_option
@unset_option
@click.option(
    "--retention-days",
    type=click.IntRange(1, 36_500),
    help="Trim revisions that were replaced more than this many days ago.",
)
@click.option("--keep-everything", is_flag=True, help="Keep every revision from now on.")
@click.option("--region", default="", help="Region of a corpus that has none yet.")
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
    retention_days: int | None,
    keep_everything: bool,
    region: str,
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Change a corpus's name, description, metadata, retention or region. What you do not give stays as it is.

    \b
    Examples:
      drillcore corpus update trials --set phase=3 --unset draft
      drillcore corpus update trials --retention-days 3650
    """
    if retention_days is not None and keep_everything:
        raise click.UsageError("give either --retention-days or --keep-everything")
    anything = metadata or unset or keep_everything or region
    if name is None and description is None and retention_days is None and not anything:
        raise click.UsageError("give at least one thing to change: see --help")
    with session.client() as client:
        updated = client.update_corpus(
            find_corpus_id(client, reference),
            name=name,
            description=description,
            set_metadata=dict(metadata),
            remove_metadata=unset,
            retention_days=retention_days,
            keep_everything=keep_everything,
            region=region,
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit(session, updated)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@click.option("--with", "readers", metavar="ID|NAME", multiple=True, help="Tenant to share with. Repeatable.")
@click.option("--everyone", is_flag=True, help="Share with every tenant, including future ones.")
@version_option
@write_options
@connection_options
@pass_session
def share(
    session: Session,
    reference: str,
    readers: tuple[str, ...],
    everyone: bool,
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Let other tenants read a corpus. This replaces the list of tenants that may read it now. For operators.

    \b
    Examples:
      drillcore corpus share regulations --tenant library --everyone
      drillcore corpus share regulations --tenant library --with acme --with globex
    """
    if everyone == bool(readers):
        raise click.UsageError("give either --with TENANT or --everyone")
    with session.client() as client:
        shared = client.update_corpus(
            find_corpus_id(client, reference),
            share_with_everyone=everyone,
            share_with=[as_id(reader) or client.get_tenant(name=reader).id for reader in readers],
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit(session, shared)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@version_option
@write_options
@connection_options
@pass_session
def unshare(session: Session, reference: str, expected_version: int | None, request_id: str | None) -> None:
    """Stop sharing a corpus: from the next call on, no other tenant can read it. For operators."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        kept = client.update_corpus(
            corpus_id, stop_sharing=True, expected_version=expected_version, request_id=request_id
        )
    _emit(session, kept)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@yes_option
@version_option
@write_options
@connection_options
@pass_session
def delete(session: Session, reference: str, yes: bool, expected_version: int | None, request_id: str | None) -> None:
    """Delete a corpus. Its id is never used again. A corpus on legal hold cannot be deleted."""
    session.confirm(f"Delete the corpus {reference}", yes)
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        client.delete_corpus(corpus_id, expected_version=expected_version, request_id=request_id)
    session.emit({"deleted": corpus_id}, f"deleted corpus {corpus_id}")


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@version_option
@write_options
@reasoned_connection_options
@pass_session
def hold(session: Session, reference: str, reason: str, expected_version: int | None, request_id: str | None) -> None:
    """Put a corpus on legal hold. Until it is released, nothing in it is trimmed or erased, and it cannot be deleted.

    Example: drillcore corpus hold trials --reason "Case 2026-17"
    """
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        held = client.update_corpus(
            corpus_id, hold_reason=reason, expected_version=expected_version, request_id=request_id
        )
    _emit(session, held)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@version_option
@write_options
@reasoned_connection_options
@pass_session
def release(
    session: Session, reference: str, reason: str, expected_version: int | None, request_id: str | None
) -> None:
    """End the legal hold of a corpus.

    Example: drillcore corpus release trials --reason "Case 2026-17 was settled"
    """
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        released = client.update_corpus(
            corpus_id, release_reason=reason, expected_version=expected_version, request_id=request_id
        )
    _emit(session, released)


@corpus.command()
@click.argument("reference", metavar="ID|NAME")
@connection_options
@pass_session
def trim(session: Session, reference: str) -> None:
    """Remove the revisions that the retention policy of the corpus no longer keeps.

    The server does this on its own every hour. `drillcore history` still lists trimmed revisions. A corpus on legal
    hold cannot be trimmed.
    """
    removed, finished = 0, False
    with session.client() as client:
        corpus_id = find_corpus_id(client, reference)
        while not finished:
            done = client.trim_corpus(corpus_id)
            removed, finished = removed + done.records_removed, done.finished
    oldest = f"the oldest revision is {done.oldest_revision}" if done.oldest_revision else "every revision is kept"
    session.emit(dataclasses.replace(done, records_removed=removed), f"{counted(removed, 'record')} removed; {oldest}")


def _find(client: Client, reference: str) -> Corpus:
    corpus_id = as_id(reference)
    return client.get_corpus(corpus_id) if corpus_id else client.get_corpus(name=reference)


def _owner(found: Corpus) -> str:
    if found.shared:
        return "shared with us"
    return "ours, shared" if found.sharing else "ours"


def _emit(session: Session, found: Corpus) -> None:
    session.emit(found, record(found))
