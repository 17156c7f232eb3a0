"""What the feed of changes says of the facts of a corpus between two revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from drillcore_server.domain.facts import FactChange, FactStatus
from drillcore_server.domain.ids import FactId, Revision
from drillcore_server.store.facts import fact_id
from drillcore_server.store.snapshot import Snapshot

_PAGE: Final = 20_000
"""Entries of the feed read in one transaction."""


class Touched(NamedTuple):
    """What a stretch of the feed says of one fact."""

    change: FactChange
    status: FactStatus


_NOTHING: Final = Touched(FactChange(0), FactStatus.ACTIVE)


def touched(snapshot: Snapshot, after: Revision) -> Mapping[FactId, Touched]:
    """What the revisions after one, up to the snapshot's, did to facts: every change, and the status they ended in."""
    found: dict[FactId, Touched] = {}
    begin, end = snapshot.keys.fact_changes_between(after, snapshot.revision)
    following: bytes | None = begin
    while following is not None:
        page = snapshot.read(lambda view, at=following: list(view.tr.range(at, end, limit=_PAGE)))  # type: ignore[misc]
        for key, (change, status) in page:
            before = found.get(fact_id(key), _NOTHING).change
            found[fact_id(key)] = Touched(before | FactChange(change), FactStatus(status))
        following = page[-1][0] + b"\0" if len(page) == _PAGE else None
    return found
