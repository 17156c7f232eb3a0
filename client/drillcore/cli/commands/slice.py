"""`drillcore slice`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click
from rich.console import RenderableType

from drillcore._api.graphs import PhaseWeights, Slice, SliceFormat, SlicePolicy
from drillcore._api.messages import AsOf
from drillcore.cli.files import OUTPUT_PATH, check_new, force_option, written_whole
from drillcore.cli.options import as_of_option, connection_options
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, one_line, pairs

_SHOWN: Final = ("slice_id", "anchor", "policy_id", "params_hash", "corpus_id", "revision")


class Weights(click.ParamType[PhaseWeights]):
    """Five numbers with commas between them."""

    name = "weights"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PhaseWeights:
        if isinstance(value, PhaseWeights):
            return value
        try:
            synthesis, planning, consolidation, debugging, exploration = map(float, str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: write five numbers, as in 1.0,0.9,0.6,0.5,0.3", param, ctx)
        return PhaseWeights(synthesis, planning, consolidation, debugging, exploration)


@click.command("slice")
@click.argument("anchors", type=click.UUID, nargs=-1, required=True, metavar="ANCHOR...")
@click.option("--corpus", metavar="ID|NAME", help="Corpus of all anchors.  [default: found by their ids]")
@click.option("--policy", "policy_id", default="", help="slice_policy_v1 or slice_policy_v1_ref.")
@click.option("--max-nodes", type=click.IntRange(1, 10_000), help="Nodes at most.  [default: 256]")
@click.option("--max-radius", type=click.IntRange(0, 1_000), help="Steps from the anchor at most.  [default: 10]")
@click.option(
    "--phase-weights",
    type=Weights(),
    help="Weights of synthesis, planning, consolidation, debugging, exploration.  [default: 1.0,0.9,0.6,0.5,0.3]",
)
@click.option("--salience-weight", type=click.FloatRange(0), help="Weight of salience.  [default: 0.3]")
@click.option(
    "--distance-decay", type=click.FloatRange(0, 1), help="Factor for each step from the anchor.  [default: 0.9]"
)
@click.option("--siblings/--no-siblings", "include_siblings", default=None, help="Include siblings.  [default: yes]")
@click.option("--max-siblings", type=click.IntRange(0, 1_000), help="Siblings of each node at most.  [default: 5]")
@click.option("--output", type=OUTPUT_PATH, help="With one ANCHOR: write the slice to this file.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([known.value for known in SliceFormat]),
    help="Format of the file.  [default: json]",
)
@force_option
@as_of_option
@connection_options
@pass_session
def slice_(
    session: Session,
    anchors: tuple[UUID, ...],
    corpus: str | None,
    policy_id: str,
    max_nodes: int | None,
    max_radius: int | None,
    phase_weights: PhaseWeights | None,
    salience_weight: float | None,
    distance_decay: float | None,
    include_siblings: bool | None,
    max_siblings: int | None,
    output: Path | None,
    format_: str | None,
    force: bool,
    as_of: AsOf | None,
) -> None:
    """Show a bounded neighbourhood of each ANCHOR, which is the id of a turn, a node or a fact.

    The same policy on the same state gives the same slice with the same id.

    \b
    Examples:
      drillcore slice 5f0c… --max-nodes 20
      drillcore slice 5f0c… --corpus rules --as-of 12 --output slice.json
    """
    if output is None and format_ is not None:
        raise click.UsageError("--format needs --output")
    if output is not None:
        if len(anchors) > 1:
            raise click.UsageError("--output needs exactly one ANCHOR")
        check_new(output, force=force)
    policy = SlicePolicy(
        policy_id,
        max_nodes,
        max_radius,
        phase_weights,
        salience_weight,
        distance_decay,
        include_siblings,
        max_siblings,
    )
    with session.client() as client:
        found = client.slice(
            anchors,
            corpus_id=None if corpus is None else find_corpus_id(client, corpus),
            policy=policy,
            as_of=as_of,
            format=None if output is None else SliceFormat(format_ or SliceFormat.JSON),
        )
    if output is not None:
        with written_whole(output) as file:
            file.write(found[0].file)
    written = [f"wrote {output}: {len(found[0].file):,} bytes"] if output is not None else []
    session.emit({"slices": found}, *_reports(found), *written)


def _reports(found: Sequence[Slice]) -> Iterator[RenderableType]:
    for number, made in enumerate(found):
        if number:
            yield ""
        yield from _report(made)


def _report(made: Slice) -> Iterator[RenderableType]:
    yield pairs((name, one_line(getattr(made, name))) for name in _SHOWN)
    yield f"{counted(len(made.nodes), 'node')}, {counted(len(made.edges), 'edge')}"
    rows = [(node.id, node.kind, node.phase, f"{node.salience:.3f}", node.distance) for node in made.nodes]
    yield listing(["id", "kind", "phase", "salience", "distance"], rows)
    if made.edges:
        yield listing(["parent", "child", "type"], [(edge.parent, edge.child, edge.edge_type) for edge in made.edges])
