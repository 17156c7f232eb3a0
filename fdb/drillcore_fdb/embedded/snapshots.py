"""The open LMDB snapshots of transactions. A reaper thread ends those that are open for too long."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final, Protocol

import lmdb

from drillcore_fdb.embedded.ordered import OrderedStore
from drillcore_fdb.embedded.storage import SNAPSHOTS_MAX, VERSION_KEY, as_engine_error, unpack_version
from drillcore_fdb.errors import RetryableError, UnavailableError

_REAP_EVERY_S: Final = 1.0


class Holder(Protocol):
    """A transaction that has a snapshot open."""

    def expire(self) -> None:
        """Gives the snapshot back if it has reached its maximum age."""

    def close(self) -> None:
        """Gives the snapshot back."""


class Snapshots:
    def __init__(self, environment: lmdb.Environment, store: OrderedStore) -> None:
        self._environment = environment
        self._store = store
        self._holders: set[Holder] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._reaper = threading.Thread(target=self._reap, name="drillcore-snapshot-reaper", daemon=True)
        self._reaper.start()

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, holder: Holder) -> tuple[Any, int]:
        """An LMDB read transaction and the version it shows. It stays as it is until `give_back`."""
        with self._lock:
            if self._closing.is_set():
                raise UnavailableError("the store is closed")
            if len(self._holders) >= SNAPSHOTS_MAX:
                raise RetryableError(1037, "too many transactions at once")
            self._holders.add(holder)
        try:
            txn = self._environment.begin()
        except lmdb.Error as error:
            self._holders.discard(holder)
            raise as_engine_error(error) from error
        return txn, unpack_version(txn.get(VERSION_KEY, None, self._store.meta))

    def give_back(self, holder: Holder, txn: Any) -> None:
        self._holders.discard(holder)
        txn.abort()

    def refuse(self) -> None:
        """Refuses to open further snapshots."""
        self._closing.set()

    def close(self) -> None:
        self.refuse()
        self._reaper.join()
        with self._lock:
            holders = list(self._holders)
        for holder in holders:
            holder.close()

    def _reap(self) -> None:
        """Ends snapshots that have reached their maximum age, because LMDB cannot reuse pages while they are open."""
        while not self._closing.wait(_REAP_EVERY_S):
            with self._lock:
                holders = list(self._holders)
            for holder in holders:
                with suppress(lmdb.Error):  # it is tried again in the next round
                    holder.expire()
