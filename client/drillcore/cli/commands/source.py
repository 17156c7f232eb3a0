"""`drillcore source ...`"""

from __future__ import annotations

import dataclasses

import click

from drillcore._api.messages import AsOf
from drillcore._api.sources import Erasure, Purged
from drillcore._client import Client
from drillcore.cli.options import (
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    reasoned_connection_options,
    write_options,
    yes_option,
)
from drillcore.cli.progress import busy
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing, one_line, record


@click.group()
def source() -> None:
    """List, show and erase sources, and purge what erasures left behind.

    A source is where a document comes from. By default it is the name under which the document was ingested.
    """


@source.command("list")
@corpus_option
@as_of_option
@page_options
@connection_options
@pass_session
def list_(session: Session, corpus: str, as_of: AsOf | None, page_size: int, page_token: str, all_pages: bool) -> None:
    """List the sources of a corpus, one page unless --all."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_sources(corpus_id, as_of=as_of, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [
        (found.id, found.source_type, found.status, found.version, found.fact_count, found.changed_at, found.title)
        for found in page.items
    ]
    columns = ["source", "type", "status", "version", "facts", "changed", "title"]
    session.emit_page("sources", page, listing(columns, rows))


@source.command()
@click.argument("source_id", metavar="SOURCE")
@corpus_option
@as_of_option
@connection_options
@pass_session
def show(session: Session, source_id: str, corpus: str, as_of: AsOf | None) -> None:
    """Show a source of a corpus."""
    with session.client() as client:
        found = client.get_source(find_corpus_id(client, corpus), source_id, as_of=as_of)
    session.emit(found, record(found))


@source.command()
@click.argument("source_id", metavar="SOURCE")
@corpus_option
@click.option(
    "--now", "purge_now", is_flag=True, help="Also remove the unreadable bytes now, instead of some days later."
)
@yes_option
@write_options
@reasoned_connection_options
@pass_session
def erase(
    session: Session, source_id: str, corpus: str, purge_now: bool, yes: bool, reason: str, request_id: str | None
) -> None:
    """Make everything from a source unreadable, at every revision and in every backup. You cannot undo this.

    The server destroys the source's key, and makes summaries and communities again from what is left. The audit trail
    records the erasure. A corpus on legal hold refuses it.

    Example: drillcore source erase ann.txt --corpus trials --reason "Art. 17, request 2026-17" --now
    """
    session.confirm(f"Erase the source {source_id} of {corpus} for ever", yes)
    with session.client() as client, busy(session, "the server erases"):
        done = client.erase_source(
            find_corpus_id(client, corpus),
            source_id,
            reason=reason,
            purge_now=purge_now,
            request_id=request_id,
            timeout_s=session.long_timeout_s,
        )
    session.emit(done, *_summary(done))


def _summary(done: Erasure) -> list[str]:
    counts = [(done.documents, "document"), (done.chunks, "chunk"), (done.facts, "fact")]
    return [
        f"erased {', '.join(counted(*count) for count in counts)}: revision {done.revision}, purged {_purge(done)}",
        f"erasure {done.id}, audit record {done.audit_record_id}",
    ]


def _purge(erasure: Erasure) -> str:
    """When the unreadable bytes were removed, or will be at the latest."""
    return str(one_line(erasure.purged_at)) if erasure.purged_at else f"by {one_line(erasure.purge_due)}"


@source.command()
@corpus_option
@page_options
@connection_options
@pass_session
def erasures(session: Session, corpus: str, page_size: int, page_token: str, all_pages: bool) -> None:
    """List the erasures of a corpus, one page unless --all. They do not name the erased source."""
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)
        page = fetch_pages(
            lambda token: client.list_erasures(corpus_id, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [
        (erasure.id, erasure.erased_at, erasure.erased_by, erasure.revision, erasure.facts, _purge(erasure))
        for erasure in page.items
    ]
    session.emit_page("erasures", page, listing(["id", "erased", "by", "revision", "facts", "purged"], rows))


@source.command()
@corpus_option
@connection_options
@pass_session
def purge(session: Session, corpus: str) -> None:
    """Remove the unreadable bytes of erased sources now. The server does this on its own some days after an erasure."""
    with session.client() as client, busy(session, "the server purges"):
        done = _purged(client, corpus, session)
    session.emit(done, f"{counted(done.erasures, 'erasure')} purged, {counted(done.records_removed, 'record')} removed")


def _purged(client: Client, corpus: str, session: Session) -> Purged:
    """Purges in as many calls as it takes, and adds up what they did."""
    corpus_id = find_corpus_id(client, corpus)
    total = Purged(0, 0, finished=False)
    while not total.finished:
        done = client.purge_erased(corpus_id, timeout_s=session.long_timeout_s)
        total = dataclasses.replace(
            done, erasures=total.erasures + done.erasures, records_removed=total.records_removed + done.records_removed
        )
    return total
