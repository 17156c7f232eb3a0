"""`drillcore explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
from rich.text import Text

from drillcore._api.messages import AsOf
from drillcore._api.provenance import Explained, Explanation
from drillcore.cli.options import as_of_option, connection_options
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import printable, prose


@click.command()
@click.argument("node")
@click.option("--corpus", metavar="ID|NAME", help="The corpus. Documents and sources need it.")
@as_of_option
@connection_options
@pass_session
def explain(session: Session, node: str, corpus: str | None, as_of: AsOf | None) -> None:
    """Show where NODE comes from, step by step, down to the exact characters of the original documents.

    NODE is the id of a node, fact, document or envelope. It can also be the IRI that quads use for one of these or for
    a source. The call counts as a read of everything it shows.

    \b
    Examples:
      drillcore explain 5f0c…
      drillcore explain urn:drillcore:source:sop-7 --corpus rules
    """
    with session.client() as client:
        corpus_id = None if corpus is None else find_corpus_id(client, corpus)
        found = client.explain(_bare(node), corpus_id=corpus_id, as_of=as_of)
    session.emit(found, *_report(found))


def _bare(node: str) -> str:
    """The IRI without the angle brackets that quads put around it."""
    return node[1:-1] if node.startswith("<") and node.endswith(">") else node


def _report(found: Explanation) -> Iterator[Text]:
    numbers = {step.iri: number for number, step in enumerate(found.steps, 1)}
    for step in found.steps:
        yield from _step(step, numbers)
    if found.truncated:
        yield Text("There is more: explain one of the last steps.", "yellow")


def _step(step: Explained, numbers: Mapping[str, int]) -> Iterator[Text]:
    title = f": {printable(step.title)}" if step.title else ""
    gone = (" (gone)", "red") if step.gone else ""
    yield Text.assemble(f"{numbers[step.iri]}. ", (step.kind, "bold"), f" {printable(step.id)}{title}", gone)
    if step.derived_from:
        yield Text(f"   from {', '.join(_named(iri, numbers) for iri in step.derived_from)}")
    if step.span is not None:
        yield Text(f"   document {step.document_id}, characters {step.span.start} to {step.span.end}")
    if step.text:
        yield Text("\n").join(Text.assemble("   | ", line) for line in prose(step.text).split("\n", allow_blank=True))


def _named(iri: str, numbers: Mapping[str, int]) -> str:
    """The number of the step, or its IRI if the step is not shown."""
    return str(numbers[iri]) if iri in numbers else printable(iri)
