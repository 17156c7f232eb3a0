"""What is kept in memory of a corpus: read once, then brought up to date by the revisions since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.store import trimming
from drillcore_server.store.hierarchy import CorpusView

T = TypeVar("T")
_CORPORA_MAX: Final = 64


class Follower(Generic[T]):
    """Something derived from each corpus, at the revision last asked for.

    Safe to use from many threads: what is kept is never changed, only replaced. An earlier revision than the one kept
    is read for the occasion.
    """

    def __init__(self, load: Callable[[CorpusView], T], follow: Callable[[T, Revision, CorpusView], T]) -> None:
        """`follow` gets what is kept, the revision that it is of, and the view to bring it up to."""
        self._load = load
        self._follow = follow
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, tuple[Revision, T]] = OrderedDict()

    def at(self, number: CorpusNumber, view: CorpusView) -> T:
        """As the view's revision has it."""
        with self._lock:
            revision, kept = self._kept.get(number, (None, None))
        if revision is None or kept is None or revision > view.revision:
            fresh = self._load(view)
        elif revision == view.revision:
            return kept
        elif revision < trimming.floor(view.tr, view.keys):
            fresh = self._load(view)  # what the revisions since then changed can no longer be read
        else:
            fresh = self._follow(kept, revision, view)
        if revision is None or revision < view.revision:
            self._keep(number, view.revision, fresh)
        return fresh

    def _keep(self, number: CorpusNumber, revision: Revision, fresh: T) -> None:
        with self._lock:
            self._kept[number] = revision, fresh
            self._kept.move_to_end(number)
            while len(self._kept) > _CORPORA_MAX:
                self._kept.popitem(last=False)
