"""Keeps data derived from a corpus in memory: reads it once, then updates it by the revisions since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.storage.keyring import KeyErased

V = TypeVar("V")
_SHARDS: Final = 256
"""Parts of a mapping, by the last byte of an id. With a million entries a part has four thousand, which are copied
fast."""


class Sharded(Generic[V]):
    """A mapping by 16-byte ids that never changes. Making the next state is cheap: it copies only the parts that
    differ."""

    __slots__ = ("_shards", "size")

    def __init__(self, shards: tuple[dict[bytes, V], ...], size: int) -> None:
        self._shards = shards
        self.size = size

    @classmethod
    def of(cls, items: Mapping[bytes, V]) -> Sharded[V]:
        shards: tuple[dict[bytes, V], ...] = tuple({} for _ in range(_SHARDS))
        for key, value in items.items():
            shards[key[-1]][key] = value
        return cls(shards, len(items))

    def get(self, key: bytes) -> V | None:
        return self._shards[key[-1]].get(key)

    def __iter__(self) -> Iterator[bytes]:
        for shard in self._shards:
            yield from shard

    def changed(self, changes: Mapping[bytes, V | None]) -> Sharded[V]:
        """Returns a mapping with these values; None removes a key."""
        shards, copied, size = list(self._shards), set[int](), self.size
        for key, value in changes.items():
            place = key[-1]
            if place not in copied:
                shards[place] = dict(shards[place])
                copied.add(place)
            size += (value is not None) - (key in shards[place])
            if value is None:
                shards[place].pop(key, None)
            else:
                shards[place][key] = value
        return Sharded(tuple(shards), size)


T = TypeVar("T")
_CORPORA_MAX: Final = 64
_REVISIONS_MAX: Final = 1_000
"""After more revisions than this, everything is read again."""


class Follower(Generic[T]):
    """Keeps something derived from each corpus, at the revision last asked for.

    Safe to use from many threads: what is kept is never changed, only replaced. An earlier revision than the kept one
    is read and not kept. A small change is read in the caller's transaction. More is read in further transactions, so
    it may take longer than one can. If the caller's has grown too old meanwhile, it runs again and finds everything
    here.
    """

    def __init__(
        self,
        engine: Engine,
        load: Callable[[BatchedReads], T],
        follow: Callable[[T, Sequence[RevisionRecord], BatchedReads], T],
    ) -> None:
        """`follow` gets what is kept, the revisions since then, and the snapshot to bring it up to."""
        self._engine = engine
        self._load = load
        self._follow = follow
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, tuple[Revision, int, T]] = OrderedDict()
        """Each with its epoch of erasures. Data of an earlier epoch may contain what was erased, and is not used."""

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Drops the data of corpora from which something was erased: the data may contain that."""
        with self._lock:
            for number in corpora:
                self._kept.pop(number, None)

    def at(self, view: CorpusAtRevision) -> T:
        """Returns the data at the view's revision."""
        number = view.corpus.number
        epoch = view.sealed.epoch(number)
        with self._lock:
            revision, known, kept = self._kept.get(number, (None, epoch, None))
            if known != epoch:
                revision, kept = None, None
                del self._kept[number]
        if revision == view.revision and kept is not None:
            return kept
        snapshot = BatchedReads.following(self._engine, view)
        if revision is None or kept is None or not 0 < view.revision - revision <= _REVISIONS_MAX:
            fresh = self._load(snapshot)
        elif revision < retention.floor(view.tr, view.keys):
            fresh = self._load(snapshot)  # what the revisions since then changed can no longer be read
        else:
            fresh = self._followed(kept, revision, view, snapshot)
        snapshot.check_kept()
        self._keep(number, view.revision, epoch, fresh)
        return fresh

    def _followed(self, kept: T, revision: Revision, view: CorpusAtRevision, snapshot: BatchedReads) -> T:
        since = list(revisions.between(view.tr, view.keys, revision, view.revision))
        try:
            return self._follow(kept, since, snapshot)
        except KeyErased:
            return self._load(snapshot)  # something that the revisions since then changed was erased later
        except StoreCorruptError:
            if self._engine.run(lambda tr: retention.floor(tr, view.keys)) <= revision:
                raise
            return self._load(snapshot)  # a trim has meanwhile removed what the revisions since then changed

    def _keep(self, number: CorpusNumber, revision: Revision, epoch: int, fresh: T) -> None:
        with self._lock:
            if number in self._kept and self._kept[number][:2] > (revision, epoch):
                return
            self._kept[number] = revision, epoch, fresh
            self._kept.move_to_end(number)
            while len(self._kept) > _CORPORA_MAX:
                self._kept.popitem(last=False)


_STATES_MAX: Final = 32
"""For readers whose transactions began before the newest revision was committed."""


class RevisionStates(Generic[T]):
    """The last states of derived data, by revision. A state never changes."""

    def __init__(self) -> None:
        self.follow_lock = threading.Lock()
        """Held while the next state is made. Other threads wait for the lock, and then find the state."""
        self._lock = threading.Lock()
        self._states: dict[Revision, T] = {}

    def at(self, revision: Revision) -> T | None:
        return self._states.get(revision)

    def up_to(self, revision: Revision) -> tuple[Revision, T] | None:
        """Returns the newest state up to this revision."""
        with self._lock:
            known = [at for at in self._states if at <= revision]
            return (max(known), self._states[max(known)]) if known else None

    def newest(self) -> tuple[Revision, T] | None:
        with self._lock:
            return (max(self._states), self._states[max(self._states)]) if self._states else None

    def keep(self, revision: Revision, state: T, *, is_first: bool = False) -> None:
        """With `is_first`, drops all earlier states: they may contain what this one erased."""
        with self._lock:
            if is_first:
                self._states = {at: state for at, state in self._states.items() if at > revision}
            self._states[revision] = state
            for old in sorted(self._states)[:-_STATES_MAX]:
                del self._states[old]

    def drop(self, is_dropped: Callable[[T], bool]) -> None:
        with self._lock:
            self._states = {at: state for at, state in self._states.items() if not is_dropped(state)}
