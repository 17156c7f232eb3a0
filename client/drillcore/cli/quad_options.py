"""Flags and arguments that name quads, written as N-Quads writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from drillcore._quad_results import PutQuadsResult
from drillcore.cli.options import as_of_option
from drillcore.cli.text import counted
from drillcore.quads import Quad, QuadPattern, Term, parse_graph, parse_quad, parse_term


class TermText(click.ParamType[Term]):
    """<iri>, _:label, "text", "text"@en, "1"^^<iri>, <<( s p o )>>"""

    name = "term"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Term:
        try:
            return parse_term(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class GraphText(click.ParamType[str]):
    name = "term"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return parse_graph(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class QuadText(click.ParamType[Quad]):
    name = "quad"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Quad:
        try:
            return value if isinstance(value, Quad) else parse_quad(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


source_option: Final = click.option(
    "--source", "source_id", metavar="ID", default="", help="That they come from, and are erased with."
)
_FLAGS: Final = (
    click.option("--subject", "-s", type=TermText(), help="<iri>, _:label or <<( s p o )>>."),
    click.option("--predicate", "-p", type=TermText(), help="<iri>."),
    click.option("--object", "-o", "object_", type=TermText(), help='Any term, also "text"@en or "1"^^<iri>.'),
    click.option("--graph", "-g", type=GraphText(), help="<iri> or _:label.  [default: any graph]"),
    click.option("--default-graph", is_flag=True, help="What is in no named graph."),
    click.option("--source", "source_id", metavar="ID", default="", help="Only what was put of this source."),
)


def pattern_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which quads: the command gets a `pattern`."""

    @wraps(command)
    def with_pattern(
        *args: Any,
        subject: Term | None,
        predicate: Term | None,
        object_: Term | None,
        graph: str | None,
        default_graph: bool,
        source_id: str,
        **others: Any,
    ) -> Any:
        if default_graph and graph is not None:
            raise click.UsageError("give either --graph or --default-graph")
        graph = "" if default_graph else graph
        return command(*args, pattern=QuadPattern(subject, predicate, object_, graph, source_id), **others)

    wrapped: Callable[..., Any] = with_pattern
    for flag in reversed(_FLAGS):
        wrapped = flag(wrapped)
    return wrapped


def put_text(done: PutQuadsResult) -> str:
    known = f", {done.known:,} known already" if done.known else ""
    derived = f", {done.derived:,} told from records left out" if done.derived else ""
    return f"stored {counted(done.added, 'quad')}{known}{derived}: revision {done.revision}"


def matching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which quads, and of which moment."""
    return pattern_options(as_of_option(command))
