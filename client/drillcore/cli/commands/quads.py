"""`drillcore quads ...`"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from drillcore._api.messages import AsOf
from drillcore._api.quads import MatchedQuad, PutQuadsResult, QuadFormat, QuadPage
from drillcore._client import Client
from drillcore.cli.files import INPUT_PATH, MISUSED, OUTPUT_PATH, check_new, force_option, readable, written_whole
from drillcore.cli.options import (
    applied,
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    source_option,
    write_options,
    yes_option,
)
from drillcore.cli.progress import TransferProgress
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore_formats.plugins import CommandError
from drillcore_formats.quads import Quad, QuadPattern, Term, parse_graph, parse_quad, parse_term, quad_text, term_text


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


_FLAGS: Final = (
    click.option("--subject", "-s", type=TermText(), help="Subject: <iri>, _:label or <<( s p o )>>."),
    click.option("--predicate", "-p", type=TermText(), help="Predicate: <iri>."),
    click.option("--object", "-o", "object_", type=TermText(), help='Object: any term, also "text"@en or "1"^^<iri>.'),
    click.option("--graph", "-g", type=GraphText(), help="Graph, <iri> or _:label.  [default: any graph]"),
    click.option("--default-graph", is_flag=True, help="Only quads without a named graph."),
    click.option("--source", "source_id", metavar="ID", default="", help="Only quads of this source."),
)


def pattern_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which quads. The command gets a `pattern`."""

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

    return applied(with_pattern, *_FLAGS)


def put_text(done: PutQuadsResult) -> str:
    known = f", {done.known:,} stored already" if done.known else ""
    derived = f", {done.derived:,} left out because the server derives them" if done.derived else ""
    return f"stored {counted(done.added, 'quad')}{known}{derived}: revision {done.revision}"


def matching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which quads, and at which revision or time."""
    return pattern_options(as_of_option(command))


_BY_ENDING: Final = {".nq": QuadFormat.N_QUADS, ".nt": QuadFormat.N_QUADS, ".ttl": QuadFormat.TURTLE}
_FORMAT: Final = click.option(
    "--format",
    "format_",
    type=click.Choice([known.value for known in QuadFormat]),
    help="Format of the file.  [default: by its ending, .nq, .nt or .ttl]",
)


@click.group()
def quads() -> None:
    """Put, match, remove, import and export quads: subject, predicate, object and graph.

    Write terms as N-Quads does: <iri>, _:label, "text", "text"@en, "1"^^<iri>, <<( s p o )>>. Put them in quotes, so
    that the shell leaves them alone.
    """


@quads.command("import")
@click.argument("file", type=INPUT_PATH)
@corpus_option
@_FORMAT
@source_option
@click.option(
    "--graph", "-g", type=GraphText(), default=None, help="Graph of quads that have none in the file: <iri> or _:label."
)
@click.option("--base", "base_iri", metavar="IRI", default="", help="Base of the relative IRIs in a Turtle file.")
@click.option("--rename-blank-nodes", is_flag=True, help="Keep the file's blank nodes apart from the corpus's.")
@write_options
@connection_options
@pass_session
def import_(
    session: Session,
    file: Path,
    corpus: str,
    format_: str | None,
    source_id: str,
    graph: str | None,
    base_iri: str,
    rename_blank_nodes: bool,
    request_id: str | None,
) -> None:
    """Store the quads of an N-Quads or Turtle FILE as one revision: all of them or none.

    An exported file also has quads that its server derived from its own records. Those are left out.

    \b
    Examples:
      drillcore quads import ontology.ttl --corpus rules --source ontology -g '<urn:graph:ontology>'
      drillcore quads import dump.nq --corpus rules
    """
    kind = _format(file, format_)
    bar = TransferProgress(session, "sending", file.stat().st_size)
    with session.client() as client, readable(file), bar:
        done = client.import_quads(
            find_corpus_id(client, corpus),
            file,
            format=kind,
            source_id=source_id,
            graph=graph or "",
            base_iri=base_iri,
            rename_blank_nodes=rename_blank_nodes,
            on_event=bar.quads,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(done, put_text(done))


@quads.command()
@corpus_option
@click.option("--output", type=OUTPUT_PATH, required=True, help="Where the file goes.")
@_FORMAT
@matching_options
@force_option
@write_options
@connection_options
@pass_session
def export(
    session: Session,
    corpus: str,
    output: Path,
    format_: str | None,
    pattern: QuadPattern,
    as_of: AsOf | None,
    force: bool,
    request_id: str | None,
) -> None:
    """Write the quads that match to a file, as N-Quads or Turtle. For Turtle, name one graph with -g.

    \b
    Examples:
      drillcore quads export --corpus rules --output rules.nq
      drillcore quads export --corpus rules --output provenance.ttl -g '<urn:graph:source>'
    """
    check_new(output, force=force)
    kind = _format(output, format_)
    bar = TransferProgress(session, "the server makes the file")
    with session.client() as client, written_whole(output) as file, bar:
        done = client.export_quads(
            find_corpus_id(client, corpus),
            file,
            pattern,
            format=kind,
            as_of=as_of,
            on_bytes=bar.received,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    summary = f"wrote {counted(done.quads, 'quad')} of revision {done.revision} to {output}: {done.size_bytes:,} bytes"
    session.emit(done, summary, f"SHA-256 {done.sha256}")


def _format(file: Path, named: str | None) -> QuadFormat:
    if named is not None:
        return QuadFormat(named)
    if file.suffix not in _BY_ENDING:
        raise CommandError("UNKNOWN_FORMAT", f"the format of {file} is unknown: give --format", exit_code=MISUSED)
    return _BY_ENDING[file.suffix]


_EVERY: Final = QuadPattern()


@quads.command()
@click.argument("statements", type=QuadText(), nargs=-1, required=True, metavar="QUAD...")
@corpus_option
@source_option
@write_options
@connection_options
@pass_session
def put(session: Session, statements: tuple[Quad, ...], corpus: str, source_id: str, request_id: str | None) -> None:
    """Store quads as one revision. To store a file, see `drillcore quads import`.

    \b
    Example:
      drillcore quads put '<urn:sop:7> <urn:replaces> <urn:sop:3> <urn:graph:sops> .' --corpus rules --source sop-7
    """
    with session.client() as client:
        done = client.put_quads(find_corpus_id(client, corpus), statements, source_id=source_id, request_id=request_id)
    session.emit(done, put_text(done))


@quads.command()
@click.argument("statements", type=QuadText(), nargs=-1, metavar="[QUAD...]")
@corpus_option
@pattern_options
@yes_option
@write_options
@connection_options
@pass_session
def remove(
    session: Session,
    statements: tuple[Quad, ...],
    corpus: str,
    pattern: QuadPattern,
    yes: bool,
    request_id: str | None,
) -> None:
    """Remove QUADs, or all quads that match the flags, as one revision. Earlier revisions keep them.

    With QUADs, --source removes them only where they belong to this source.

    \b
    Examples:
      drillcore quads remove '<urn:sop:7> <urn:replaces> <urn:sop:3>' --corpus rules
      drillcore quads remove -g '<urn:graph:sops>' --corpus rules --yes
    """
    source_id = pattern.source_id if statements else ""
    if statements and pattern != QuadPattern(source_id=source_id):
        raise click.UsageError("give either QUADs or flags such as --graph")
    if not statements and pattern == _EVERY:
        raise click.UsageError("give the QUADs to remove, or flags such as --graph")
    what = counted(len(set(statements)), "quad") if statements else "all quads that match"
    session.confirm(f"Remove {what} from {corpus}", yes)
    with session.client() as client:
        done = client.remove_quads(
            find_corpus_id(client, corpus),
            statements,
            pattern=None if statements else pattern,
            source_id=source_id,
            request_id=request_id,
            timeout_s=session.long_timeout_s,
        )
    session.emit(done, f"removed {counted(done.removed, 'quad')}: revision {done.revision}")


@quads.command()
@corpus_option
@matching_options
@page_options
@connection_options
@pass_session
def match(
    session: Session,
    corpus: str,
    pattern: QuadPattern,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """Show the quads that match, as N-Quads, one page unless --all.

    The server adds quads of its own: the graph <urn:graph:source> says where documents, chunks and facts come from,
    and <urn:graph:retrieval> says what your envelopes were made of. --json also names the sources of each quad.

    \b
    Examples:
      drillcore quads match --corpus rules -s '<urn:sop:7>'
      drillcore quads match --corpus rules -p '<http://www.w3.org/ns/prov#wasDerivedFrom>' --all
    """
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        if all_pages and not session.json:
            _emit_lines(client.iter_quads(corpus_id, pattern, as_of=as_of, page_size=page_size))
            return

        def fetch(token: str) -> QuadPage:
            return _filled(client, corpus_id, pattern, as_of=as_of, page_size=page_size, page_token=token)

        page = fetch_pages(fetch, page_token, all_pages)
    if session.json:
        more = {"next_page_token": page.next_page_token, "revision": page.revision}
        session.emit({"quads": [_document(matched) for matched in page.items], **more})
        return
    _emit_lines(page.items)
    if page.next_page_token:
        click.echo(f"# There are more: --page-token {page.next_page_token}, or --all")


def _filled(client: Client, corpus_id: Any, pattern: QuadPattern, **options: Any) -> QuadPage:
    """The next page that has quads on it. The server may answer with an empty page while it is still searching."""
    page = client.match_quads(corpus_id, pattern, **options)
    while not page.items and page.next_page_token:
        page = client.match_quads(corpus_id, pattern, **options | {"page_token": page.next_page_token})
    return page


def _document(matched: MatchedQuad) -> dict[str, object]:
    graph = matched.quad.graph
    return {
        "subject": term_text(matched.quad.subject),
        "predicate": term_text(matched.quad.predicate),
        "object": term_text(matched.quad.object),
        "graph": graph if not graph or graph.startswith("_:") else f"<{graph}>",
        "source_ids": matched.source_ids,
        "derived": matched.derived,
    }


def _emit_lines(found: Iterable[MatchedQuad]) -> None:
    """Writes N-Quads to stdout as they arrive, with control characters escaped in the way of N-Quads."""
    for matched in found:
        text = quad_text(matched.quad)
        click.echo("".join(letter if letter.isprintable() else _escaped(letter) for letter in text))


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08X}"
