"""`drillcore query`, `drill`, `rollup`, `show` and `history`: reads of the hierarchy."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import click
from rich.table import Table

from drillcore._convert_nodes import AsOf
from drillcore._node_results import Entity, Level, Node
from drillcore.cli.node_text import label, node_record
from drillcore.cli.options import as_of_option, connection_options, page_options, target_option
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import listing
from drillcore.cli.values import EntityFilter, LevelName, Time


@click.command()
@click.argument("text", required=False)
@click.option("--level", type=LevelName(), default=Level.CHUNK, help="By name or number.  [default: chunk]")
@click.option("--corpus", "corpora", metavar="ID|NAME", multiple=True, help="By default all you may read. Repeatable.")
@click.option("--category", "categories", multiple=True, help="In any of these. Repeatable.")
@click.option("--entity", "entities", type=EntityFilter(), multiple=True, help="Naming all of these. Repeatable.")
@click.option("--document", "documents", type=click.UUID, multiple=True, help="From any of these, by id. Repeatable.")
@click.option("--source", "sources", multiple=True, help="From any of these. Repeatable.")
@click.option("--created-after", type=Time(), help="Made after this time.")
@click.option("--created-before", type=Time(), help="Made before this time.")
@as_of_option
@page_options
@connection_options
@pass_session
def query(
    session: Session,
    text: str | None,
    level: Level,
    corpora: tuple[str, ...],
    categories: tuple[str, ...],
    entities: tuple[Entity, ...],
    documents: tuple[UUID, ...],
    sources: tuple[str, ...],
    created_after: datetime | None,
    created_before: datetime | None,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """Find nodes of one level: by meaning if there is a TEXT (sections and chunks), and by filters.

    \b
    Examples:
      drillcore query "who may change an audit trail" --corpus rules
      drillcore query --level section --category records
      drillcore query --entity regulation="21 CFR 11.10(e)" --as-of 2026-01-31
    """
    with session.client() as client:
        corpus_ids = [find_corpus_id(client, one) for one in corpora]
        page = fetch_pages(
            lambda token: client.query(
                text,
                level=level,
                corpus_ids=corpus_ids,
                categories=categories,
                entities=entities,
                document_ids=documents,
                source_ids=sources,
                created_after=created_after,
                created_before=created_before,
                as_of=as_of,
                page_size=page_size,
                page_token=token,
            ),
            page_token,
            all_pages,
        )
    rows = [(one.node.id, "" if one.score is None else f"{one.score:.3f}", label(one.node)) for one in page.items]
    session.emit_page("hits", page, listing(["id", "score", level.name.lower()], rows))


@click.command()
@click.argument("node", type=click.UUID)
@target_option
@as_of_option
@page_options
@connection_options
@pass_session
def drill(
    session: Session,
    node: UUID,
    target: Level,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List the nodes of a lower level below NODE, in reading order.

    Example: drillcore drill 5f0c… --to raw
    """
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.drill_down(node, target, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("nodes", page, _table(page.items, target))


@click.command()
@click.argument("nodes", type=click.UUID, nargs=-1, required=True, metavar="NODE...")
@target_option
@as_of_option
@connection_options
@pass_session
def rollup(session: Session, nodes: tuple[UUID, ...], target: Level, as_of: AsOf | None) -> None:
    """Show the ancestors of NODEs at a higher level, and the lowest node above them all."""
    with session.client() as client:
        found = client.roll_up(nodes, target, as_of=as_of)
    common = f"in common: {found.common.level.name.lower()} {found.common.id} {label(found.common)}"
    session.emit(found, _table(found.nodes, target), common)


@click.command()
@click.argument("node", type=click.UUID)
@click.option("--embedding", is_flag=True, help="With the embedding.")
@as_of_option
@connection_options
@pass_session
def show(session: Session, node: UUID, embedding: bool, as_of: AsOf | None) -> None:
    """Show all of a node."""
    with session.client() as client:
        found = client.get_node(node, as_of=as_of, with_embedding=embedding)
    session.emit(found, node_record(found))


@click.command()
@click.argument("corpus", metavar="[CORPUS]", required=False)
@click.option("--node", type=click.UUID, help="Instead of a corpus's: only revisions that changed this node.")
@page_options
@connection_options
@pass_session
def history(
    session: Session, corpus: str | None, node: UUID | None, page_size: int, page_token: str, all_pages: bool
) -> None:
    """List the revisions of CORPUS (id or name), or of a node, newest first. Those that are trimmed cannot be read."""
    if (corpus is None) == (node is None):
        raise click.UsageError("name either a corpus or, with --node, a node")
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus) if corpus is not None else None
        page = fetch_pages(
            lambda token: client.history(corpus_id, node_id=node, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    columns = ["revision", "at", "by", "action", "added", "removed", "sections", "request", "trimmed"]
    rows = [
        (
            one.revision,
            one.at,
            one.by,
            one.action,
            one.documents_added,
            one.documents_removed,
            len(one.section_ids),
            one.request_id,
            "yes" if one.trimmed else "",
        )
        for one in page.items
    ]
    session.emit_page("revisions", page, listing(columns, rows))


def _table(nodes: Iterable[Node], level: Level) -> Table:
    return listing(["id", level.name.lower()], [(one.id, label(one)) for one in nodes])
