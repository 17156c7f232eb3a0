"""`drillcore fact ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._convert_nodes import AsOf
from drillcore._fact_results import ChangedFacts, FactFilter
from drillcore.cli.fact_options import STATUS, fact_filter_options, fact_status
from drillcore.cli.fact_put import put
from drillcore.cli.fact_text import fact_record, facts_table, hits_table
from drillcore.cli.options import (
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    set_option,
    unset_option,
    version_option,
    write_options,
)
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing

_FACT_IDS = click.argument("fact_ids", type=click.UUID, nargs=-1, required=True, metavar="FACT...")


@click.group()
def fact() -> None:
    """Put, find, change and archive facts: single assertions, each with a vector and a source.

    Facts come out of documents by themselves; see drillcore ingest. Every change is a revision of their corpus.
    """


fact.add_command(put)


@fact.command()
@_FACT_IDS
@click.option("--embedding", is_flag=True, help="With the embedding.")
@as_of_option
@connection_options
@pass_session
def get(session: Session, fact_ids: tuple[UUID, ...], embedding: bool, as_of: AsOf | None) -> None:
    """Show all of facts, of any corpora. Counts as an access."""
    with session.client() as client:
        found = client.get_facts(fact_ids, as_of=as_of, with_embedding=embedding)
    shown = [part for one in found for part in (fact_record(one), "")]
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
    wanted: FactFilter,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List the facts of a corpus in the order of their ids, one page unless --all.

    Example: drillcore fact list --corpus rules --status stale --source sop-7.md
    """
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_facts(corpus_id, wanted, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("facts", page, facts_table(page.items))


@fact.command()
@click.argument("text")
@click.option("--corpus", "corpora", metavar="ID|NAME", multiple=True, help="By default all you may read. Repeatable.")
@fact_filter_options
@click.option("--limit", type=click.IntRange(1, 2**32 - 1), default=10, show_default=True, help="No more than this.")
@click.option("--exact", is_flag=True, help="Compare every vector.")
@click.option("--cache-control", default="", help="no-cache, no-store, only-if-ckf, max-age=SECONDS, reuse-ckf.")
@click.option("--session", "session_id", metavar="ID", default="", help="Also the facts of this session.")
@as_of_option
@connection_options
@pass_session
def search(
    session: Session,
    text: str,
    corpora: tuple[str, ...],
    wanted: FactFilter,
    limit: int,
    exact: bool,
    cache_control: str,
    session_id: str,
    as_of: AsOf | None,
) -> None:
    """Find the facts nearest in meaning to TEXT, best first. Counts as an access of each.

    \b
    Examples:
      drillcore fact search "how long are records kept" --corpus rules
      drillcore fact search "adverse events" --where site=12 --limit 3 --exact
    """
    with session.client() as client:
        found = client.search_facts(
            text,
            corpus_ids=[find_corpus_id(client, one) for one in corpora],
            wanted=wanted,
            limit=limit,
            exact=exact,
            as_of=as_of,
            cache_control=cache_control,
            session_id=session_id,
        )
    session.emit(found, hits_table(found.hits) if found.hits else "no hits")


@fact.command()
@click.argument("fact_id", type=click.UUID, metavar="FACT")
@click.option("--content", help="New text; it is embedded anew.")
@click.option("--location", "source_location", help="Page, paragraph or URL fragment of the source.")
@click.option("--weight", "importance_weight", type=click.FloatRange(0, 1), help="Importance.")
@click.option("--ttl", help="ISO 8601 duration such as P90D; empty for none.")
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
    """Change what a fact says, or says of itself; what is not named stays.

    Example: drillcore fact update 5f0c… --ttl P1Y --set checked=yes
    """
    given = (content, source_location, importance_weight, ttl)
    if all(one is None for one in given) and not metadata and not unset:
        raise click.UsageError("say what to change: see --help")
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
@click.option("--signature", "signature_id", type=click.UUID, help="Of a review of the fact, to lift its quarantine.")
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
    """Move facts of one corpus to another status, as one revision. A quarantine needs --reason.

    A quarantine is lifted, of one fact, with the signature of a review of it: see drillcore sign.

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
    """Take facts of one corpus out of every search. They stay readable by id."""
    with session.client() as client:
        done = client.archive_facts(fact_ids, request_id=request_id)
    _emit_changed(session, done, "archived")


@fact.command()
@_FACT_IDS
@write_options
@connection_options
@pass_session
def restore(session: Session, fact_ids: tuple[UUID, ...], request_id: str | None) -> None:
    """Bring archived facts of one corpus back into searches."""
    with session.client() as client:
        done = client.restore_facts(fact_ids, request_id=request_id)
    _emit_changed(session, done, "restored")


@fact.command("end-session")
@click.argument("session_id", metavar="SESSION")
@write_options
@connection_options
@pass_session
def end_session(session: Session, session_id: str, request_id: str | None) -> None:
    """Forget the facts that you put into SESSION only, with their key, and its chain of envelopes.

    See --session of drillcore fact put and drillcore pack. Continuations of the session are over; envelopes that were
    issued in it can still be shown.
    """
    with session.client() as client:
        forgotten = client.end_session(session_id, request_id=request_id)
    session.emit({"facts_forgotten": forgotten}, f"{counted(forgotten, 'fact')} forgotten")


@fact.command()
@click.argument("corpora", nargs=-1, metavar="[CORPUS...]")
@click.option("--revision-only", is_flag=True, help="Leave out the hashes, which cost something after a change.")
@connection_options
@pass_session
def state(session: Session, corpora: tuple[str, ...], revision_only: bool) -> None:
    """Show state revision and state hash of CORPORA (ids or names), by default of all that you may read."""
    with session.client() as client:
        corpus_ids = [find_corpus_id(client, one) for one in corpora]
        found = client.get_state(corpus_ids, revision_only=revision_only)
    rows = [(one.corpus_id, one.revision, one.facts, "yes" if one.shared else "", one.hash) for one in found.corpora]
    table = listing(["id", "revision", "active facts", "shared", "state hash"], rows)
    combined = [f"combined: {found.combined_hash}"] if found.combined_hash else []
    session.emit(found, table if rows else "no corpora", *combined)


def _emit_changed(session: Session, done: ChangedFacts, what: str) -> None:
    session.emit(done, f"{counted(done.changed, 'fact')} {what}; revision {done.revision}")
