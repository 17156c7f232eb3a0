"""WatchEvents: page after page of what has happened.

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
from drillcore_server.events.model import OF_CHUNKS, Cursor, Event, EventKind, read_cursor
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.revisions import Change
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import CorpusId, Level, TenantId

CORPORA_MAX: Final = 100
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
    """What to watch, and from where."""

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
        """`quiet_s_max`: if nothing happens, the caller gets an empty page after this time."""
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
        self, cursor: Cursor, hung_up: Callable[[], bool], wait: Callable[[float], object]
    ) -> Iterator[EventPage]:
        """What happens after `cursor`. A page without events says that the watch goes on, and how far it is.

        `hung_up` returns whether the caller has closed its side. `wait` returns after a time, or when that changes.
        """
        yield EventPage((), cursor)
        told_s = time.monotonic()
        while True:
            last = hung_up() or self._watchers.stopping.is_set()
            page = self._page(cursor)
            cursor = page.after
            if page.events or last or time.monotonic() - told_s >= self._quiet_s_max:
                yield page
                told_s = time.monotonic()
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
        told = events.after(tr, keys, granted.owners(tr, keys), cursor, readable.is_wanted, _CHANGES_MAX)
        found: list[Event] = []
        last = cursor
        for event, after in islice(told, _LOOKED_AT_MAX):
            last = after
            if event is not None and self._is_told(granted, event):
                found.append(event)
            if len(found) == _EVENTS_MAX:
                break
        return EventPage(found, last, more=last != cursor)

    def _is_told(self, granted: InTenant, event: Event) -> bool:
        if self._wanted.kinds and event.kind not in self._wanted.kinds:
            return False
        return event.kind not in OF_CHUNKS or granted.reaches(event.corpus, Level.CHUNK)


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
        raise BadInput(Reason.INVALID_ARGUMENT, f"name at most {CORPORA_MAX} corpora", field="corpus_ids")
    if wanted.token and wanted.from_beginning:
        message = "go on from a token, or begin at the beginning"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="from_beginning")
