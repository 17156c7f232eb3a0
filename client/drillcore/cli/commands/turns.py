"""`drillcore turns ...`"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

import click
from google.protobuf import json_format

from drillcore._api.graphs import Edge, TurnPage
from drillcore._api.messages import AsOf
from drillcore.cli.files import INPUT_PATH_OR_STDIN, opened
from drillcore.cli.options import (
    as_of_option,
    connection_options,
    corpus_option,
    page_options,
    source_option,
    write_options,
    yes_option,
)
from drillcore.cli.progress import busy
from drillcore.cli.session import Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing
from drillcore_formats.plugins import CommandError
from drillcore_proto.v1 import graphs_pb2 as pb

_PREFIXES: Final = {"role": "TURN_ROLE_", "phase": "PHASE_", "edgeType": "EDGE_TYPE_", "edge_type": "EDGE_TYPE_"}


@dataclass(slots=True)
class _Lines:
    """The turns and edges of a file."""

    turns: list[pb.Turn] = field(default_factory=list)
    edges: list[pb.Edge] = field(default_factory=list)


@click.group()
def turns() -> None:
    """Put, list and remove turns of conversations and the edges between them. `drillcore slice` makes slices of them.

    The server keeps only what slices need, not the words of a turn.
    """


@turns.command()
@click.argument("file", type=INPUT_PATH_OR_STDIN)
@corpus_option
@source_option
@write_options
@connection_options
@pass_session
def put(session: Session, file: Path, corpus: str, source_id: str, request_id: str | None) -> None:
    """Store turns and edges from the JSON lines of FILE or stdin (-) as one revision: all of them or none.

    \b
      {"turn": {"turnId": UUID, "sessionId": ..., "role": "user", "phase": "planning", "salience": 0.5}}
      {"edge": {"parent": UUID, "child": UUID, "edgeType": "reply"}}

    Roles: user, assistant, system, tool. Phases: exploration, debugging, planning, consolidation, synthesis. Types of
    edges: reply, branch, reference, default. The protocol has all fields: see Turn and Edge.
    """
    with opened(file) as content:
        lines = _read(content)
    if not (lines.turns or lines.edges):
        raise CommandError("INVALID_ARGUMENT", f"{file} has neither turns nor edges")
    if source_id and not lines.turns:
        raise click.UsageError("--source is for turns, and FILE has none")
    with session.client() as client, busy(session, "the server stores the turns"):
        corpus_id = find_corpus_id(client, corpus)
        if not lines.turns:
            stored = client.put_edges(corpus_id, lines.edges, request_id=request_id, timeout_s=session.long_timeout_s)
            session.emit(stored, f"stored {counted(stored.added, 'edge')}: revision {stored.revision}")
            return
        done = client.put_turns(
            corpus_id,
            lines.turns,
            lines.edges,
            source_id=source_id,
            request_id=request_id,
            timeout_s=session.long_timeout_s,
        )
    parts = [counted(done.added, "turn"), f"{done.replaced:,} replaced", counted(done.edges_added, "edge")]
    session.emit(done, f"stored {', '.join(parts)}: revision {done.revision}")


@turns.command("list")
@corpus_option
@click.option("--session", "session_id", metavar="ID", default="", help="Only turns of this session.")
@as_of_option
@page_options
@connection_options
@pass_session
def list_(
    session: Session,
    corpus: str,
    session_id: str,
    as_of: AsOf | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List turns, ordered by id, one page unless --all. --json includes the edges that lead to them."""
    edges: list[Edge] = []
    with session.client() as client:
        corpus_id = find_corpus_id(client, corpus)

        def fetch(token: str) -> TurnPage:
            page = client.list_turns(
                corpus_id, session_id=session_id, as_of=as_of, page_size=page_size, page_token=token
            )
            edges.extend(page.edges)
            return page

        page = dataclasses.replace(fetch_pages(fetch, page_token, all_pages), edges=tuple(edges))
    rows = [(turn.id, turn.session_id, turn.role, turn.phase, f"{turn.salience:.3f}") for turn in page.items]
    session.emit_page("turns", page, listing(["id", "session", "role", "phase", "salience"], rows))


@turns.command()
@click.argument("turn_ids", type=click.UUID, nargs=-1, required=True, metavar="TURN...")
@corpus_option
@yes_option
@write_options
@connection_options
@pass_session
def remove(session: Session, turn_ids: tuple[UUID, ...], corpus: str, yes: bool, request_id: str | None) -> None:
    """Remove turns with all their edges as one revision. Earlier revisions keep them."""
    session.confirm(f"Remove {counted(len(set(turn_ids)), 'turn')} from {corpus}", yes)
    with session.client() as client:
        done = client.remove_turns(find_corpus_id(client, corpus), turn_ids, request_id=request_id)
    removed = f"{counted(done.turns_removed, 'turn')} and {counted(done.edges_removed, 'edge')}"
    session.emit(done, f"removed {removed}: revision {done.revision}")


def _read(file: BinaryIO) -> _Lines:
    """Reads the lines. Raises CommandError that names the line."""
    found = _Lines()
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            _take(json.loads(line), found)
        except (ValueError, RecursionError, json_format.ParseError) as error:
            raise CommandError("INVALID_LINE", f"line {number}: {error}; nothing was stored") from error
    return found


def _take(record: Any, found: _Lines) -> None:
    match record:
        case {"turn": dict(turn), **others} if not others:
            found.turns.append(json_format.ParseDict(_spelt_out(turn), pb.Turn()))
        case {"edge": dict(edge), **others} if not others:
            found.edges.append(json_format.ParseDict(_spelt_out(edge), pb.Edge()))
        case _:
            raise ValueError('the line must be one JSON object with either "turn" or "edge"')


def _spelt_out(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the protocol's names of roles, phases and types."""
    words = {name: record[name] for name in _PREFIXES if isinstance(record.get(name), str)}
    return record | {name: _PREFIXES[name] + word.upper().removeprefix(_PREFIXES[name]) for name, word in words.items()}
