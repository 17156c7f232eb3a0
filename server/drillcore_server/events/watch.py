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
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.revisions import Change
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
    """Whether there may be more."""


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
        readable = _Readable(self._wanted.corpora, lambda corpus: granted.find(tr, keys, corpus), granted)
        placed = events.after(tr, keys, granted.owners(tr, keys), cursor, readable.is_wanted, _CHANGES_MAX)
        found: list[Event] = []
        last = cursor
        for event, after in islice(placed, _LOOKED_AT_MAX):
            last = after
            if event is not None and self._is_wanted(granted, event):
                found.append(event)
            if len(found) == _EVENTS_MAX:
                break
        return EventPage(found, last, more=last != cursor)

    def _is_wanted(self, granted: InTenant, event: Event) -> bool:
        if self._wanted.kinds and event.kind not in self._wanted.kinds:
            return False
        return event.kind not in CHUNK_EVENTS or granted.reaches(event.corpus, Level.CHUNK)


class _Readable:
    """The corpora that a page shows. Each is looked up once."""

    def __init__(
        self, wanted: Sequence[CorpusId], find: Callable[[CorpusId], Corpus | None], granted: InTenant
    ) -> None:
        self._wanted = frozenset(wanted)
        self._find = find
        self._granted = granted
        self._known: dict[CorpusId, Corpus | None] = {}

    def is_wanted(self, change: Change) -> bool:
        if self._wanted and change.corpus not in self._wanted:
            return False
        if change.corpus not in self._known:
            self._known[change.corpus] = self._find(change.corpus)
        corpus = self._known[change.corpus]
        if corpus is None or corpus.number != change.number:  # deleted, or another tenant's corpus of the same id
            return False
        return self._granted.residency.allows(corpus.region)


def check_wanted(wanted: Wanted) -> None:
    if len(wanted.corpora) > CORPORA_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"corpus_ids must have at most {CORPORA_MAX} ids", field="corpus_ids")
    if wanted.token and wanted.from_beginning:
        message = "give resume_token or from_beginning, not both"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="from_beginning")
