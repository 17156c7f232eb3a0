"""WatchEvents: yields page after page of events.

    write the call's record, find where to begin -> read a page -> send it -> wait, look again -> ...

Each page is read in its own transaction and shows what the caller may read at that moment. The server looks for new
events regularly. So there is no key that all writers must write, and any number of servers can serve watchers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.events import store as events
from drillcore_server.events.model import CHUNK_EVENTS, Cursor, Event, EventKind, read_cursor
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.revisions import Change, PlacedChange
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import CorpusId, Level, TenantId

CORPORA_MAX: Final = 100
"""Corpora that one call may name."""
_EVENTS_MAX: Final = 250
"""The most events in one answer."""
_LOOKED_AT_MAX: Final = 2_000
"""The most events that one transaction reads, whether they are sent or not."""
_CHANGES_MAX: Final = 50
"""The most revisions that one transaction reads."""
_PAUSE_S: Final = 0.1
"""The wait between two looks, if nothing has happened."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to watch, and where to begin."""

    tenant: TenantId | None
    corpora: tuple[CorpusId, ...]
    """Empty: all corpora that the caller may read."""
    kinds: frozenset[EventKind]
    """Empty: all kinds."""
    token: str
    from_beginning: bool

    @property
    def access(self) -> Rule[InTenant]:
        return access.in_tenant(self.tenant, Permission.READ)


@dataclass(frozen=True, slots=True)
class EventPage:
    events: Sequence[Event]
    after: Cursor
    """The place after everything that was read, also after events that the caller does not get."""
    more: bool = False
    """Whether more had happened when it was read."""


class Watchers:
    """Limits how many calls watch at once: each holds a worker for as long as it lasts."""

    def __init__(self, at_once_max: int) -> None:
        self._at_once_max = at_once_max
        self._lock = threading.Lock()
        self._count = 0
        self.stopping = threading.Event()
        """Set when the server stops. Watchers then end, and continue on another server."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """Takes a place for the block. Raises `Unavailable` if all are taken."""
        with self._lock:
            if self._count >= self._at_once_max:
                message = f"{self._at_once_max} calls watch events already (server.watchers_max); try another server"
                raise Unavailable(Reason.TOO_MANY_WATCHERS, message)
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


class Watch:
    """One call. `pages` ends when the caller has closed its side and got everything, or when the server stops."""

    def __init__(self, unit: Unit, watchers: Watchers, call: Call, wanted: Wanted, quiet_s_max: float) -> None:
        """Without events, the caller gets an empty page after `quiet_s_max`."""
        self._unit = unit
        self._watchers = watchers
        self._call = call
        self._wanted = wanted
        self._quiet_s_max = quiet_s_max

    def begin(self) -> tuple[TenantId, Cursor]:
        """Writes the call's record. Returns the tenant and where to begin.

        Raises `Refused` if the caller may not watch.
        """
        return self._unit.read(self._call, self._wanted.access, self._begin)

    def pages(
        self, cursor: Cursor, is_closed: Callable[[], bool], wait: Callable[[float], object]
    ) -> Iterator[EventPage]:
        """Yields the events after `cursor`. A page without events says that the watch continues, and how far it is.

        `is_closed` tells whether the caller has closed its side. `wait` returns after a time, or when that changes.
        """
        yield EventPage((), cursor)
        sent_s = time.monotonic()
        while True:
            last = is_closed() or self._watchers.stopping.is_set()
            page = self._page(cursor)
            cursor = page.after
            if page.events or last or time.monotonic() - sent_s >= self._quiet_s_max:
                yield page
                sent_s = time.monotonic()
            if not page.more:
                if last:
                    return
                wait(_PAUSE_S)

    def _begin(self, tr: Reader, granted: InTenant, trail: Trail) -> tuple[TenantId, Cursor]:
        wanted, keys = self._wanted, self._unit.keys
        granted.find_many(tr, keys, wanted.corpora)  # read ahead: what is read again costs nothing
        for corpus in wanted.corpora:
            trail.touch_corpus(corpus)
            granted.corpus(tr, keys, corpus)
        since = "token" if wanted.token else "beginning" if wanted.from_beginning else "now"
        trail.detail |= {"since": since, "kinds": sorted(kind.name for kind in wanted.kinds)}
        if wanted.token:
            return granted.tenant, read_cursor(granted.tenant, wanted.token)
        if wanted.from_beginning:
            return granted.tenant, Cursor()
        return granted.tenant, events.newest(tr, keys)

    def _page(self, cursor: Cursor) -> EventPage:
        def work(tr: Reader, granted: InTenant) -> EventPage:
            return self._read(tr, granted, cursor)

        return self._unit.look_again(self._call, self._wanted.access, work, datetime.now(UTC))

    def _read(self, tr: Reader, granted: InTenant, cursor: Cursor) -> EventPage:
        keys = self._unit.keys
        changes = events.changes_after(tr, keys, granted, cursor, _CHANGES_MAX)
        if not changes:
            return EventPage((), cursor)
        placed = events.events_of(tr, keys, changes, cursor, self._readable(tr, granted, changes))
        found: list[Event] = []
        last = cursor
        for event, after in islice(placed, _LOOKED_AT_MAX):
            last = after
            if event is not None and self._is_wanted(granted, event):
                found.append(event)
            if len(found) == _EVENTS_MAX:
                break
        got_all = len(changes) < _CHANGES_MAX and last == events.end_of(changes[-1][0])
        return EventPage(found, last, more=not got_all)

    def _readable(self, tr: Reader, granted: InTenant, changes: Sequence[PlacedChange]) -> Callable[[Change], bool]:
        """Returns whether a change is of a wanted corpus that the caller may read. Looks each corpus up once."""
        wanted = frozenset(self._wanted.corpora)
        named = {change.corpus for _, change in changes if not wanted or change.corpus in wanted}
        known = granted.find_many(tr, self._unit.keys, named)

        def is_readable(change: Change) -> bool:
            corpus = known.get(change.corpus)
            if corpus is None or corpus.number != change.number:  # deleted, or another tenant's corpus of the same id
                return False
            return granted.residency.allows(corpus.region)

        return is_readable

    def _is_wanted(self, granted: InTenant, event: Event) -> bool:
        if self._wanted.kinds and event.kind not in self._wanted.kinds:
            return False
        return event.kind not in CHUNK_EVENTS or granted.reaches(event.corpus, Level.CHUNK)


def check_wanted(wanted: Wanted) -> None:
    if len(wanted.corpora) > CORPORA_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"corpus_ids must have at most {CORPORA_MAX} ids", field="corpus_ids")
    if wanted.token and wanted.from_beginning:
        message = "give resume_token or from_beginning, not both"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="from_beginning")
