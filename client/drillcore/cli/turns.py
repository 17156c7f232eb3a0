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

from drillcore._convert_nodes import AsOf
from drillcore._graph_results import Edge, TurnPage
from drillcore.cli.busy import busy
from drillcore.cli.input_files import opened
from drillcore.cli.options import as_of_option, connection_options, corpus_option, page_options, write_options
from drillcore.cli.quad_options import source_option
from drillcore.cli.session import CommandError, Session, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import counted, listing
from drillcore_proto.v1 import graphs_pb2 as pb

_PREFIXES: Final = {"role": "TURN_ROLE_", "phase": "PHASE_", "edgeType": "EDGE_TYPE_", "edge_type": "EDGE_TYPE_"}


@dataclass(slots=True)
class _Lines:
    """What the lines of a file say."""

    turns: list[pb.Turn] = field(default_factory=list)
    edges: list[pb.Edge] = field(default_factory=list)


@click.group()
def turns() -> None:
    """Put, list and remove turns of conversations, and the edges between them. drillcore slice makes slices of them.

    What was said is not kept: only what slices are made of.
    """


@turns.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@corpus_option
@source_option
@write_options
@connection_options
@pass_session
def put(session: Session, file: Path, corpus: str, source_id: str, request_id: str | None) -> None:
    """Store turns and edges from JSON lines in FILE or, with -, from stdin, as one revision: all or none.

    \b
      {"turn": {"turnId": UUID, "sessionId": ..., "role": "user", "phase": "planning", "salience": 0.5}}
      {"edge": {"parent": UUID, "child": UUID, "edgeType": "reply"}}

    Roles: user, assistant, system, tool. Phases: exploration, debugging, planning, consolidation, synthesis. Types of
    edges: reply, branch, reference, default. All fields: Turn and Edge in the protocol.
    """
    with opened(file) as content:
        lines = _read(content)
    if not (lines.turns or lines.edges):
        raise CommandError("INVALID_ARGUMENT", f"{file} has no turns and no edges")
    if source_id and not lines.turns:
        raise click.UsageError("--source is of turns, and there are none")
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
@click.option("--session", "session_id", metavar="ID", default="", help="Of this session.  [default: of all]")
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
    """List turns in the order of ids, one page unless --all. With --json also the edges that lead to them."""
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
    rows = [(one.id, one.session_id, one.role.value, one.phase.value, f"{one.salience:.3f}") for one in page.items]
    session.emit_page("turns", page, listing(["id", "session", "role", "phase", "salience"], rows))


@turns.command()
@click.argument("turn_ids", type=click.UUID, nargs=-1, required=True, metavar="TURN...")
@corpus_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@write_options
@connection_options
@pass_session
def remove(session: Session, turn_ids: tuple[UUID, ...], corpus: str, yes: bool, request_id: str | None) -> None:
    """Remove turns with all their edges, as one revision. Earlier revisions still have them."""
    session.confirm(f"Remove {counted(len(set(turn_ids)), 'turn')} from {corpus}", yes)
    with session.client() as client:
        done = client.remove_turns(find_corpus_id(client, corpus), turn_ids, request_id=request_id)
    removed = f"{counted(done.turns_removed, 'turn')} and {counted(done.edges_removed, 'edge')}"
    session.emit(done, f"removed {removed}: revision {done.revision}")


def _read(file: BinaryIO) -> _Lines:
    """Raises CommandError, which names the line."""
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
            raise ValueError('it must be one object with "turn" or with "edge"')


def _spelt_out(record: dict[str, Any]) -> dict[str, Any]:
    """With the names that the protocol has for roles, phases and types."""
    words = {name: record[name] for name in _PREFIXES if isinstance(record.get(name), str)}
    return record | {name: _PREFIXES[name] + word.upper().removeprefix(_PREFIXES[name]) for name, word in words.items()}
