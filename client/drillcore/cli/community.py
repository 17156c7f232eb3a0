"""`drillcore community ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._community_results import Recomputed
from drillcore._convert_nodes import AsOf
from drillcore.cli.busy import busy
from drillcore.cli.fact_text import facts_table
from drillcore.cli.options import as_of_option, connection_options, corpus_option, page_options, write_options
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, one_line, printable


@click.group()
def community() -> None:
    """List, show and compute communities: facts of a corpus that belong together.

    The server computes them by itself after many new facts, and from time to time.
    """


@community.command("list")
@corpus_option
@as_of_option
@page_options
@connection_options
@pass_session
def list_(session: Session, corpus: str, as_of: AsOf | None, page_size: int, page_token: str, all_pages: bool) -> None:
    """List the communities of a corpus, the largest first, one page unless --all."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_communities(corpus_id, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [(one.id, one.size, one.label) for one in page.items]
    session.emit_page("communities", page, listing(["id", "facts", "label"], rows))


@community.command()
@click.argument("community_id", type=click.UUID, metavar="COMMUNITY")
@corpus_option
@as_of_option
@page_options
@connection_options
@pass_session
def show(
    session: Session,
    community_id: UUID,
    corpus: str,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """Show a community and its facts, the most important first, one page unless --all."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.get_community(
                corpus_id, community_id, as_of=as_of, page_size=page_size, page_token=token
            ),
            page_token,
            all_pages,
        )
    if not session.json:
        found = page.community
        click.echo(f"{printable(found.label)}: {counted(found.size, 'fact')}, made {one_line(found.made_at)}")
    session.emit_page("facts", page, facts_table(page.items))


@community.command()
@corpus_option
@write_options
@connection_options
@pass_session
def recompute(session: Session, corpus: str, request_id: str | None) -> None:
    """Compute the communities of a corpus anew, now. Equal facts give equal communities."""
    with session.client() as client, busy(session, "the server computes communities"):
        corpus_id = find_corpus_id(client, corpus)
        done = client.recompute_communities(corpus_id, request_id=request_id, timeout_s=session.long_timeout_s)
    session.emit(done, _summary(done))


def _summary(done: Recomputed) -> str:
    run = done.run
    if done.running or run is None:
        return "the server goes on computing them; `drillcore community list` shows them when it is done"
    communities = f"{run.communities:,} {'community' if run.communities == 1 else 'communities'}"
    outcome = f"revision {run.revision}" if done.changed else f"nothing changed since revision {run.revision}"
    return f"{communities} of {counted(run.facts, 'fact')}: {outcome}"
