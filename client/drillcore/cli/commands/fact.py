"""`drillcore fact ...`"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import click
from rich.table import Table

from drillcore._api.fact_data import ChangedFacts, Fact, FactFilter, FactHit
from drillcore._api.messages import AsOf
from drillcore.cli.commands.fact_put import put
from drillcore.cli.options import (
    STATUS,
    as_of_option,
    connection_options,
    corpora_option,
    corpus_option,
    fact_filter_options,
    fact_status,
    page_options,
    set_option,
    unset_option,
    version_option,
    write_options,
)
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, first_words, listing, record

CONTENT_WIDTH: Final = 100


def facts_table(facts: Iterable[Fact]) -> Table:
    """A table with a line for each fact."""
    rows = [(fact.id, _state(fact), fact.source_id, first_words(fact.content, CONTENT_WIDTH)) for fact in facts]
    return listing(["id", "status", "source", "fact"], rows)


def _hits_table(hits: Iterable[FactHit]) -> Table:
    rows = [
        (
            hit.fact.id,
            f"{hit.score:.3f}",
            "stale" if hit.stale else _state(hit.fact),
            hit.fact.source_id,
            first_words(hit.fact.content, CONTENT_WIDTH),
        )
        for hit in hits
    ]
    return listing(["id", "score", "status", "source", "fact"], rows)


def _state(fact: Fact) -> str:
    """The status, and whether the fact is archived or only in a session."""
    notes = [note for note, holds in (("archived", fact.archived), ("session only", fact.session_only)) if holds]
    return ", ".join([fact.status.value.lower(), *notes])


_FACT_IDS = click.argument("fact_ids", type=click.UUID, nargs=-1, required=True, metavar="FACT...")


@click.group()
def fact() -> None:
    """Put, find, change and archive facts: single assertions, each with a vector and a source.

    The server draws facts from documents on its own: see `drillcore ingest`. Every change is a revision of the corpus.
    """


fact.add_command(put)


@fact.command()
@_FACT_IDS
@click.option("--embedding", is_flag=True, help="Include the embedding.")
@as_of_option
@connection_options
@pass_session
def get(session: Session, fact_ids: tuple[UUID, ...], embedding: bool, as_of: AsOf | None) -> None:
    """Show facts with all their fields. They may be of several corpora. The call counts as an access."""
    with session.client() as client:
        found = client.get_facts(fact_ids, as_of=as_of, with_embedding=embedding)
    shown = [part for found_fact in found for part in (_fact_record(found_fact), "")]
    session.emit({"facts": found}, *shown[:-1])


@fact.command("list")
@corpus_option
@fact_filter_options
@as_of_option
@page_options
@connection_options
@pass_session
def list_(
    session: Session,
    corpus: str,
    filters: FactFilter,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List the facts of a corpus, ordered by id, one page unless --all.

    Example: drillcore fact list --corpus rules --status stale --source sop-7.md
    """
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_facts(corpus_id, filters, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("facts", page, facts_table(page.items))


@fact.command()
@click.argument("text")
@corpora_option
@fact_filter_options
@click.option(
    "--limit", type=click.IntRange(1, 2**32 - 1), default=10, show_default=True, help="How many facts at most."
)
@click.option("--exact", is_flag=True, help="Compare every vector.")
@click.option("--cache-control", default="", help="no-cache, no-store, only-if-ckf, max-age=SECONDS, reuse-ckf.")
@click.option("--session", "session_id", metavar="ID", default="", help="Also search the facts of this session.")
@as_of_option
@connection_options
@pass_session
def search(
    session: Session,
    text: str,
    corpora: tuple[str, ...],
    filters: FactFilter,
    limit: int,
    exact: bool,
    cache_control: str,
    session_id: str,
    as_of: AsOf | None,
) -> None:
    """Find the facts nearest in meaning to TEXT, best first. The call counts as an access of each.

    \b
    Examples:
      drillcore fact search "how long are records kept" --corpus rules
      drillcore fact search "adverse events" --where site=12 --limit 3 --exact
    """
    with session.client() as client:
        found = client.search_facts(
            text,
            corpus_ids=[find_corpus_id(client, corpus) for corpus in corpora],
            filters=filters,
            limit=limit,
            exact=exact,
            as_of=as_of,
            cache_control=cache_control,
            session_id=session_id,
        )
    session.emit(found, _hits_table(found.hits) if found.hits else "no hits")


@fact.command()
@click.argument("fact_id", type=click.UUID, metavar="FACT")
@click.option("--content", help="New text. The server embeds it.")
@click.option("--location", "source_location", help="New place in the source: page, paragraph, URL fragment.")
@click.option("--weight", "importance_weight", type=click.FloatRange(0, 1), help="New importance.")
@click.option("--ttl", help="New lifetime, an ISO 8601 duration such as P90D; '' for none.")
@set_option
@unset_option
@version_option
@write_options
@connection_options
@pass_session
def update(
    session: Session,
    fact_id: UUID,
    content: str | None,
    source_location: str | None,
    importance_weight: float | None,
    ttl: str | None,
    metadata: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Change a fact. What you do not give stays as it is.

    Example: drillcore fact update 5f0c… --ttl P1Y --set checked=yes
    """
    given = (content, source_location, importance_weight, ttl)
    if all(value is None for value in given) and not metadata and not unset:
        raise click.UsageError("give at least one thing to change: see --help")
    with session.client() as client:
        done = client.update_fact(
            fact_id,
            content=content,
            source_location=source_location,
            importance_weight=importance_weight,
            ttl=ttl,
            set_metadata=dict(metadata),
            remove_metadata=unset,
            expected_version=expected_version,
            request_id=request_id,
        )
    session.emit(done, f"fact {fact_id} is at version {done.version}; revision {done.revision}")


@fact.command()
@click.argument("status", type=STATUS)
@_FACT_IDS
@click.option(
    "--signature", "signature_id", type=click.UUID, help="Signature of a review of the fact, to lift its quarantine."
)
@version_option
@write_options
@connection_options
@pass_session
def status(
    session: Session,
    status: str,
    fact_ids: tuple[UUID, ...],
    signature_id: UUID | None,
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Give facts of one corpus another status as one revision. A quarantine needs --reason.

    To lift the quarantine of one fact, first sign a review of it: see `drillcore sign`.

    \b
    Examples:
      drillcore fact status quarantined 5f0c… --reason "contradicts the protocol"
      drillcore fact status active 5f0c… --signature 77aa…
    """
    with session.client() as client:
        done = client.set_fact_status(
            fact_ids,
            fact_status(status),
            reason=client.settings.reason or "",
            signature_id=signature_id,
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit_changed(session, done, f"now {status}")


@fact.command()
@_FACT_IDS
@write_options
@connection_options
@pass_session
def archive(session: Session, fact_ids: tuple[UUID, ...], request_id: str | None) -> None:
    """Archive facts of one corpus: no search finds them, but they stay readable by id."""
    with session.client() as client:
        done = client.archive_facts(fact_ids, request_id=request_id)
    _emit_changed(session, done, "archived")


@fact.command()
@_FACT_IDS
@write_options
@connection_options
@pass_session
def restore(session: Session, fact_ids: tuple[UUID, ...], request_id: str | None) -> None:
    """Restore archived facts of one corpus, so that searches find them again."""
    with session.client() as client:
        done = client.restore_facts(fact_ids, request_id=request_id)
    _emit_changed(session, done, "restored")


@fact.command("end-session")
@click.argument("session_id", metavar="SESSION")
@write_options
@connection_options
@pass_session
def end_session(session: Session, session_id: str, request_id: str | None) -> None:
    """End SESSION: destroy the facts that are only in it, and their key, and end its chain of envelopes.

    `drillcore fact put --session` and `drillcore pack --session` use sessions. Envelopes of the session can still be
    shown, but not continued.
    """
    with session.client() as client:
        forgotten = client.end_session(session_id, request_id=request_id)
    session.emit({"facts_forgotten": forgotten}, f"{counted(forgotten, 'fact')} forgotten")


@fact.command()
@click.argument("corpora", nargs=-1, metavar="[CORPUS...]")
@click.option("--revision-only", is_flag=True, help="Leave out the hashes, which take time after a change.")
@connection_options
@pass_session
def state(session: Session, corpora: tuple[str, ...], revision_only: bool) -> None:
    """Show the state revision and state hash of CORPUS (ids or names), by default of all that you may read."""
    with session.client() as client:
        corpus_ids = [find_corpus_id(client, corpus) for corpus in corpora]
        found = client.get_state(corpus_ids, revision_only=revision_only)
    rows = [
        (corpus.corpus_id, corpus.revision, corpus.facts, "yes" if corpus.shared else "", corpus.hash)
        for corpus in found.corpora
    ]
    table = listing(["id", "revision", "active facts", "shared", "state hash"], rows)
    combined = [f"combined: {found.combined_hash}"] if found.combined_hash else []
    session.emit(found, table if rows else "no corpora", *combined)


def _fact_record(found: Fact) -> Table:
    """All fields of a fact; the embedding only if there is one."""
    return record(found, prose_fields={"content"}, hidden=() if found.embedding else {"embedding"})


def _emit_changed(session: Session, done: ChangedFacts, what: str) -> None:
    session.emit(done, f"{counted(done.changed, 'fact')} {what}; revision {done.revision}")
