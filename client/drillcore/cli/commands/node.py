"""`drillcore query`, `drill`, `rollup`, `show`, `history` and `tree`: reads of the hierarchy."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import click
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from drillcore._api.messages import AsOf
from drillcore._api.node_data import (
    ChunkContent,
    Citation,
    Content,
    Entity,
    Finding,
    Level,
    MasterContent,
    Node,
    Processing,
    RawContent,
    SectionContent,
    Statistics,
)
from drillcore._api.signatures import Signature
from drillcore._client import Client
from drillcore.cli.commands.sign import signature_text
from drillcore.cli.options import as_of_option, connection_options, corpora_option, level_option, page_options
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, first_words, listing, one_line, pairs, printable, prose
from drillcore.cli.values import EntityFilter, LevelName, Time

LABEL_WIDTH: Final = 80
HEADING_WIDTH: Final = 50
_PROSE: Final = {"summary", "content"}


def _node_record(node: Node) -> Table:
    """All fields of a node and of its content, each in one or more lines."""
    return pairs([*_rows(node), *_rows(node.content)])


def _rows(thing: Node | Content) -> Iterator[tuple[str, Text]]:
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, Content):
            continue  # the content has its own rows
        if isinstance(value, str) and field.name in _PROSE:
            yield field.name, prose(value)
        elif isinstance(value, tuple):
            yield field.name, Text("\n").join(one_line(_described(part)) for part in value)
        else:
            yield field.name, one_line(_described(value))


def _described(value: object) -> object:
    """Parts of a node in words; every other value unchanged."""
    words = value
    match value:
        case None:
            words = "-"
        case Level():
            words = f"{value.name.lower()} ({value.value})"
        case Entity():
            words = f"{value.type}: {value.value}"
        case Citation():
            words = f"{value.text} [{_place(value)}]" if value.text else _place(value)
        case Finding():
            words = f"{value.kind}: {value.text} [{_place(value.citation)}]"
        case Signature():
            words = signature_text(value)
        case Statistics() | Processing():
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            words = ", ".join(f"{name.replace('_', ' ')} {inner}" for name, inner in fields if inner != "")
    return words


def _place(citation: Citation) -> str:
    return f"document {citation.document_id}, {citation.span.start}-{citation.span.end}"


def label(node: Node) -> str:
    """A node in one line, with the names of those who signed it."""
    signers = ", ".join(dict.fromkeys(printable(signature.signer_name) for signature in node.signatures))
    return _label(node.content) + (f" (signed by {signers})" if signers else "")


def _label(content: Content) -> str:
    match content:
        case MasterContent(statistics=numbers):
            nouns = {"document": numbers.documents, "section": numbers.sections, "chunk": numbers.chunks}
            return ", ".join(counted(number, noun) for noun, number in {**nouns, "token": numbers.tokens}.items())
        case SectionContent():
            counts = f"{counted(content.document_count, 'document')}, {counted(content.chunk_count, 'chunk')}"
            category = f" [{printable(content.category)}]" if content.category else ""
            return f"{first_words(content.title, LABEL_WIDTH)}{category} ({counts})"
        case ChunkContent():
            parts = [first_words(content.headings[-1], HEADING_WIDTH)] if content.headings else []
            return ": ".join([*parts, first_words(content.summary, LABEL_WIDTH)])
        case RawContent():
            return first_words(content.content, LABEL_WIDTH)


@click.command()
@click.argument("text", required=False)
@click.option("--level", type=LevelName(), default=Level.CHUNK, help="Level, by name or number.  [default: chunk]")
@corpora_option
@click.option("--category", "categories", multiple=True, help="Only this category. Repeatable.")
@click.option(
    "--entity",
    "entities",
    type=EntityFilter(),
    multiple=True,
    help="Only nodes that name this entity. Repeatable: all must match.",
)
@click.option("--document", "documents", type=click.UUID, multiple=True, help="Only from this document. Repeatable.")
@click.option("--source", "sources", multiple=True, help="Only from this source. Repeatable.")
@click.option("--created-after", type=Time(), help="Only nodes created after this time.")
@click.option("--created-before", type=Time(), help="Only nodes created before this time.")
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
    """Find nodes of one level by filters and, for sections and chunks, by the meaning of TEXT.

    \b
    Examples:
      drillcore query "who may change an audit trail" --corpus rules
      drillcore query --level section --category records
      drillcore query --entity regulation="21 CFR 11.10(e)" --as-of 2026-01-31
    """
    with session.client() as client:
        corpus_ids = [find_corpus_id(client, corpus) for corpus in corpora]
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
    rows = [(hit.node.id, "" if hit.score is None else f"{hit.score:.3f}", label(hit.node)) for hit in page.items]
    session.emit_page("hits", page, listing(["id", "score", level.name.lower()], rows))


@click.command()
@click.argument("node", type=click.UUID)
@level_option
@as_of_option
@page_options
@connection_options
@pass_session
def drill(
    session: Session,
    node: UUID,
    level: Level,
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
            lambda token: client.drill_down(node, level, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    session.emit_page("nodes", page, _table(page.items, level))


@click.command()
@click.argument("nodes", type=click.UUID, nargs=-1, required=True, metavar="NODE...")
@level_option
@as_of_option
@connection_options
@pass_session
def rollup(session: Session, nodes: tuple[UUID, ...], level: Level, as_of: AsOf | None) -> None:
    """Show the ancestors of NODEs at a higher level, and their lowest common ancestor."""
    with session.client() as client:
        found = client.roll_up(nodes, level, as_of=as_of)
    common = f"in common: {found.common.level.name.lower()} {found.common.id} {label(found.common)}"
    session.emit(found, _table(found.nodes, level), common)


@click.command()
@click.argument("node", type=click.UUID)
@click.option("--embedding", is_flag=True, help="Include the embedding.")
@as_of_option
@connection_options
@pass_session
def show(session: Session, node: UUID, embedding: bool, as_of: AsOf | None) -> None:
    """Show a node with all its fields."""
    with session.client() as client:
        found = client.get_node(node, as_of=as_of, with_embedding=embedding)
    session.emit(found, _node_record(found))


@click.command()
@click.argument("corpus", metavar="[CORPUS]", required=False)
@click.option("--node", type=click.UUID, help="Instead of CORPUS: list the revisions that changed this node.")
@page_options
@connection_options
@pass_session
def history(
    session: Session, corpus: str | None, node: UUID | None, page_size: int, page_token: str, all_pages: bool
) -> None:
    """List the revisions of CORPUS (id or name), or of a node, newest first. Trimmed ones can no longer be read."""
    if (corpus is None) == (node is None):
        raise click.UsageError("give either CORPUS or --node")
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
            revision.revision,
            revision.at,
            revision.by,
            revision.action,
            revision.documents_added,
            revision.documents_removed,
            len(revision.section_ids),
            revision.request_id,
            "yes" if revision.trimmed else "",
        )
        for revision in page.items
    ]
    session.emit_page("revisions", page, listing(columns, rows))


def _table(nodes: Iterable[Node], level: Level) -> Table:
    return listing(["id", level.name.lower()], [(node.id, label(node)) for node in nodes])


_STYLES: Final = {Level.MASTER: "bold", Level.SECTION: "bold", Level.CHUNK: "", Level.RAW: "dim"}
_AT_LEAST_ONE: Final = click.IntRange(1, 10_000)


@dataclass(frozen=True, slots=True)
class Branch:
    """A node and the nodes below it that are shown. `more` says whether there are others."""

    node: Node
    children: tuple[Branch, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How much of a tree to show."""

    lowest: Level
    children_max: dict[Level, int]
    """How many nodes of a level to show below each node of the level above."""


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option(
    "--depth", type=click.IntRange(1, 4), default=3, show_default=True, help="How many levels, from the master down."
)
@click.option("--sections", type=_AT_LEAST_ONE, default=20, show_default=True, help="Sections at most.")
@click.option("--chunks", type=_AT_LEAST_ONE, default=5, show_default=True, help="Chunks of each section at most.")
@as_of_option
@connection_options
@pass_session
def tree(session: Session, corpus: str, depth: int, sections: int, chunks: int, as_of: AsOf | None) -> None:
    """Show the hierarchy of CORPUS (id or name) as a tree, all at one revision.

    Depth 1 shows the master with its statistics, 2 adds sections, 3 adds chunks, 4 adds the original text.
    """
    bounds = _Bounds(Level(4 - depth), {Level.SECTION: sections, Level.CHUNK: chunks, Level.RAW: chunks})
    with session.client() as client:
        page = client.query(level=Level.MASTER, corpus_ids=[find_corpus_id(client, corpus)], as_of=as_of)
        root = _grown(client, page.items[0].node, bounds) if page.items else None
    if root is None:
        session.emit(None, printable(f"{corpus} has no documents yet: drillcore ingest PATH... --corpus {corpus}"))
    else:
        session.emit(root, _drawn(root, Text(f"{printable(corpus)}, revision {root.node.revision}: ", "bold")))


def _grown(client: Client, node: Node, bounds: _Bounds) -> Branch:
    """The node and the nodes below it, all read at the same revision."""
    if node.level is bounds.lowest:
        return Branch(node, (), False)
    below = Level(node.level - 1)
    children_max = bounds.children_max[below]
    nodes = client.iter_drill_down(node.id, below, as_of=node.revision, page_size=children_max + 1)
    found = list(itertools.islice(nodes, children_max + 1))
    children = tuple(_grown(client, child, bounds) for child in found[:children_max])
    return Branch(node, children, len(found) > children_max)


def _drawn(branch: Branch, before: Text | None = None) -> Tree:
    node = branch.node
    text = Text.assemble(before or Text(), (label(node), _STYLES[node.level]), (f"  {node.id}", "dim"))
    drawn = Tree(text)
    for child in branch.children:
        drawn.children.append(_drawn(child))
    if branch.more:
        below = Level(node.level - 1).name.lower()
        drawn.add(Text(f"… more: drillcore drill {node.id} --to {below}", "dim"))
    return drawn
