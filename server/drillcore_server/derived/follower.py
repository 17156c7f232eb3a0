"""What is kept in memory of a corpus: read once, then brought up to date by the revisions since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, TypeVar

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store import revisions, trimming
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.snapshot import Snapshot

T = TypeVar("T")
_CORPORA_MAX: Final = 64
_REVISIONS_MAX: Final = 1_000
"""That are followed; after more of them all is read anew."""


class Follower(Generic[T]):
    """Something derived from each corpus, at the revision last asked for.

    Safe to use from many threads: what is kept is never changed, only replaced. An earlier revision than the one kept
    is read for the occasion. Reading goes on in transactions of its own, so it may take longer than one can: the
    caller's, if it has grown too old meanwhile, is run again and finds everything here.
    """

    def __init__(
        self,
        engine: Engine,
        load: Callable[[Snapshot], T],
        follow: Callable[[T, Sequence[RevisionRecord], Snapshot], T],
    ) -> None:
        """`follow` gets what is kept, the revisions since, and the snapshot to bring it up to."""
        self._engine = engine
        self._load = load
        self._follow = follow
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, tuple[Revision, int, T]] = OrderedDict()
        """With the epoch of erasures that it is of: what is older holds what must not be used any more."""

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Lets go of what is kept of corpora from which something was erased: it may have it."""
        with self._lock:
            for number in corpora:
                self._kept.pop(number, None)

    def at(self, number: CorpusNumber, view: CorpusView) -> T:
        """As the view's revision has it."""
        epoch = view.sealed.epoch(number)
        with self._lock:
            revision, known, kept = self._kept.get(number, (None, epoch, None))
            if known != epoch:
                revision, kept = None, None
                del self._kept[number]
        if revision == view.revision and kept is not None:
            return kept
        snapshot = Snapshot(self._engine, view.keys, view.sealed, view.revision)
        if revision is None or kept is None or not 0 < view.revision - revision <= _REVISIONS_MAX:
            fresh = self._load(snapshot)
        elif revision < trimming.floor(view.tr, view.keys):
            fresh = self._load(snapshot)  # what the revisions since then changed can no longer be read
        else:
            fresh = self._followed(kept, revision, view, snapshot)
        # A trim meanwhile may have taken some of it away before it was read.
        self._engine.run(lambda tr: trimming.check_kept(tr, view.keys, view.revision))
        self._keep(number, view.revision, epoch, fresh)
        return fresh

    def _followed(self, kept: T, revision: Revision, view: CorpusView, snapshot: Snapshot) -> T:
        since = list(revisions.between(view.tr, view.keys, revision, view.revision))
        try:
            return self._follow(kept, since, snapshot)
        except KeyErased:
            return self._load(snapshot)  # what some of the revisions since then changed was erased later
        except StoreCorruptError:
            if self._engine.run(lambda tr: trimming.floor(tr, view.keys)) <= revision:
                raise
            return self._load(snapshot)  # a trim meanwhile took away what the revisions since then changed

    def _keep(self, number: CorpusNumber, revision: Revision, epoch: int, fresh: T) -> None:
        with self._lock:
            if number in self._kept and self._kept[number][:2] > (revision, epoch):
                return
            self._kept[number] = revision, epoch, fresh
            self._kept.move_to_end(number)
            while len(self._kept) > _CORPORA_MAX:
                self._kept.popitem(last=False)
