"""`drillcore community ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._api.communities import Recomputed
from drillcore._api.messages import AsOf
from drillcore.cli.commands.fact import facts_table
from drillcore.cli.options import as_of_option, connection_options, corpus_option, page_options, write_options
from drillcore.cli.progress import busy
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, one_line, printable


@click.group()
def community() -> None:
    """List, show and compute communities: facts of a corpus that belong together.

    The server also computes them on its own, after many new facts and from time to time.
    """


@community.command("list")
@corpus_option
@as_of_option
@page_options
@connection_options
@pass_session
def list_(session: Session, corpus: str, as_of: AsOf | None, page_size: int, page_token: str, all_pages: bool) -> None:
    """List the communities of a corpus, largest first, one page unless --all."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_communities(corpus_id, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [(found.id, found.size, found.label) for found in page.items]
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
    """Show a community and its facts, most important first, one page unless --all."""
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
    """Compute the communities of a corpus again, now. The same facts give the same communities."""
    with session.client() as client, busy(session, "the server computes communities"):
        corpus_id = find_corpus_id(client, corpus)
        done = client.recompute_communities(corpus_id, request_id=request_id, timeout_s=session.long_timeout_s)
    session.emit(done, _summary(done))


def _summary(done: Recomputed) -> str:
    run = done.run
    if done.running or run is None:
        return "the server is still computing; `drillcore community list` shows the communities once it is done"
    communities = f"{run.communities:,} {'community' if run.communities == 1 else 'communities'}"
    outcome = f"revision {run.revision}" if done.changed else f"nothing changed since revision {run.revision}"
    return f"{communities} of {counted(run.facts, 'fact')}: {outcome}"
