"""ListTurns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, NodeId, Revision, TenantId, TurnId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.domain.turns import Edge, Turn
from drillcore_server.store import versioned
from drillcore_server.store.turns import TurnsView, session_hash, turn_id

_KEYS_MAX: Final = 10_000
"""Stored keys that one page looks at, whether its revision sees them or not: well within five seconds."""
_TURN_BYTES: Final = 250
_EDGE_BYTES: Final = 90
"""About what each takes in an answer."""


@dataclass(frozen=True, slots=True)
class ListedTurn:
    turn: Turn
    edges: tuple[Edge, ...]
    """That lead to it."""

    @property
    def size_bytes(self) -> int:
        return _TURN_BYTES + 4 * len(self.turn.session) + _EDGE_BYTES * len(self.edges)


@dataclass(frozen=True, slots=True)
class ListedTurns:
    turns: list[ListedTurn]
    revision: Revision
    next_token: str


def list_turns(
    library: Library,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    session: str,
    as_of: AsOf,
    size: int,
    token: str,
) -> ListedTurns:
    """Turns by id, all or those of one session, and their revision, which is that of later pages too.

    A page may have fewer turns than were asked for, or none, and others follow: see `_KEYS_MAX`.
    """
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    listing = f"turns of {corpus} {hashlib.sha256(session.encode()).hexdigest()}"
    cursor = read_token(listing, token)
    after: TurnId | None = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), TurnId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> ListedTurns:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        granted.check_level(corpus, *Level)
        ids, following = _page(library, shelf, session, after)
        items, more = fill_page(((one, one.size_bytes) for one in _listed(shelf, ids)), limit)
        trail.touch_node_ids(NodeId(one.turn.id) for one in items)
        last = items[-1].turn.id if more else following
        next_token = "" if last is None else make_token(listing, shelf.revision.to_bytes(6, "big") + last.bytes)
        return ListedTurns(items, shelf.revision, next_token)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _page(library: Library, shelf: Shelf, session: str, after: TurnId | None) -> tuple[list[TurnId], TurnId | None]:
    """The next turns, and the last one that was looked at if there may be more."""
    view = shelf.view
    keys = view.keys.turns(after)
    if session:
        keys = view.keys.session_turns(session_hash(library.keyring, shelf.corpus.number, session), after)
    entries, following = versioned.page(view.tr, *keys, view.revision, _KEYS_MAX)
    return [turn_id(entry.key) for entry in entries], None if following is None else turn_id(
        versioned.before(following)
    )


def _listed(shelf: Shelf, ids: list[TurnId]) -> Iterator[ListedTurn]:
    view = TurnsView(shelf.view)
    for one in ids:
        turn = view.turn_left(one)
        if turn is not None:
            yield ListedTurn(turn, tuple(view.edges_to(one)))
