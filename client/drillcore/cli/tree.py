"""`drillcore tree`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import click
from rich.text import Text
from rich.tree import Tree

from drillcore._client import Client
from drillcore._convert_nodes import AsOf
from drillcore._node_results import Level, Node
from drillcore.cli.node_text import label
from drillcore.cli.options import as_of_option, connection_options
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import printable

_STYLES: Final = {Level.MASTER: "bold", Level.SECTION: "bold", Level.CHUNK: "", Level.RAW: "dim"}
_AT_LEAST_ONE: Final = click.IntRange(1, 10_000)


@dataclass(frozen=True, slots=True)
class Branch:
    """A node with those below it that are shown. `more` if there are others."""

    node: Node
    children: tuple[Branch, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How much of a tree to show."""

    lowest: Level
    children_max: dict[Level, int]
    """How many nodes of a level, below each node of the level above."""


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option("--depth", type=click.IntRange(1, 4), default=3, show_default=True, help="Levels, from the master down.")
@click.option("--sections", type=_AT_LEAST_ONE, default=20, show_default=True, help="No more sections than this.")
@click.option("--chunks", type=_AT_LEAST_ONE, default=5, show_default=True, help="No more chunks per section.")
@as_of_option
@connection_options
@pass_session
def tree(session: Session, corpus: str, depth: int, sections: int, chunks: int, as_of: AsOf | None) -> None:
    """Show the hierarchy of CORPUS (id or name) as a tree, all of one revision.

    Depth 1 is the master with its statistics, 2 adds sections, 3 chunks, 4 the original text.
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
    """The node and what is below it, read at the revision that it was read at."""
    if node.level is bounds.lowest:
        return Branch(node, (), False)
    below = Level(node.level - 1)
    wanted = bounds.children_max[below]
    nodes = client.iter_drill_down(node.id, below, as_of=node.revision, page_size=wanted + 1)
    found = list(itertools.islice(nodes, wanted + 1))
    children = tuple(_grown(client, one, bounds) for one in found[:wanted])
    return Branch(node, children, len(found) > wanted)


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
