"""`drillcore quads ...`"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from drillcore._client import Client
from drillcore._convert_nodes import AsOf
from drillcore._quad_results import MatchedQuad, QuadPage
from drillcore.cli.options import connection_options, corpus_option, page_options, write_options
from drillcore.cli.quad_files import export, import_
from drillcore.cli.quad_options import QuadText, matching_options, pattern_options, put_text, source_option
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore.quads import Quad, QuadPattern, quad_text, term_text

_EVERY: Final = QuadPattern()


@click.group()
def quads() -> None:
    """Put, match, remove, import and export quads: subject, predicate, object and graph.

    Terms are written as N-Quads writes them: <iri>, _:label, "text", "text"@en, "1"^^<iri>, <<( s p o )>>. The shell
    needs quotes around them.
    """


quads.add_command(import_)
quads.add_command(export)


@quads.command()
@click.argument("statements", type=QuadText(), nargs=-1, required=True, metavar="QUAD...")
@corpus_option
@source_option
@write_options
@connection_options
@pass_session
def put(session: Session, statements: tuple[Quad, ...], corpus: str, source_id: str, request_id: str | None) -> None:
    """Store quads of a corpus, as one revision. For a file see drillcore quads import.

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
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Remove quads, or all that match the flags, as one revision. Earlier revisions still have them.

    With QUADs, --source removes them only as quads of this source.

    \b
    Examples:
      drillcore quads remove '<urn:sop:7> <urn:replaces> <urn:sop:3>' --corpus rules
      drillcore quads remove -g '<urn:graph:sops>' --corpus rules --yes
    """
    source_id = pattern.source_id if statements else ""
    if statements and pattern != QuadPattern(source_id=source_id):
        raise click.UsageError("give either QUADs or flags that match them")
    if not statements and pattern == _EVERY:
        raise click.UsageError("say what to remove: QUADs, or flags that match them")
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

    Beside what was put, <urn:graph:source> tells where documents, chunks and facts come from, and <urn:graph:retrieval>
    what your envelopes were made of. With --json it also says what each was put of.

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
        session.emit({"quads": [_document(one) for one in page.items], **more})
        return
    _emit_lines(page.items)
    if page.next_page_token:
        click.echo(f"# There are more: --page-token {page.next_page_token}, or --all")


def _filled(client: Client, corpus_id: Any, pattern: QuadPattern, **options: Any) -> QuadPage:
    """A page with something on it: the server may give up on one before it has found anything."""
    page = client.match_quads(corpus_id, pattern, **options)
    while not page.items and page.next_page_token:
        page = client.match_quads(corpus_id, pattern, **options | {"page_token": page.next_page_token})
    return page


def _document(one: MatchedQuad) -> dict[str, object]:
    graph = one.quad.graph
    return {
        "subject": term_text(one.quad.subject),
        "predicate": term_text(one.quad.predicate),
        "object": term_text(one.quad.object),
        "graph": graph if not graph or graph.startswith("_:") else f"<{graph}>",
        "source_ids": one.source_ids,
        "derived": one.derived,
    }


def _emit_lines(found: Iterable[MatchedQuad]) -> None:
    """N-Quads on stdout, as they come. What a terminal would obey is escaped as N-Quads does."""
    for line in _lines(found):
        click.echo(line)


def _lines(found: Iterable[MatchedQuad]) -> Iterator[str]:
    for one in found:
        yield "".join(letter if letter.isprintable() else _escaped(letter) for letter in quad_text(one.quad))


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08X}"
