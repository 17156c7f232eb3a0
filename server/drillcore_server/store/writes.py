"""What a revision writes, as data: so that it can go into one transaction or into many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Transaction
from drillcore_server.domain.ids import Revision
from drillcore_server.store import versioned
from drillcore_server.store.keyring import KeyNumber
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.versioned import REVISION_BYTES

_KEY_OVERHEAD_BYTES: Final = 200
"""Of keys, conflict ranges and sealing, for each write: a generous guess."""


@dataclass(frozen=True, slots=True)
class Write:
    """One record of a revision: put under a key, sealed if `number` says under which, or removed if there is no value.

    With `versioned` False it is a plain key that stays as it is, like a node's locator.
    """

    key: bytes
    value: bytes | None
    number: KeyNumber | None = None
    versioned: bool = True
    is_dense: bool = False
    """Does not get shorter, as a vector: to be stored without trying."""

    @property
    def size_bytes(self) -> int:
        return len(self.value or b"") + _KEY_OVERHEAD_BYTES

    def apply(self, tr: Transaction, revision: Revision, sealed: SealedRecords) -> None:
        if not self.versioned:
            assert self.value is not None
            tr.set(self.key, self.value)
        elif self.value is None:
            versioned.remove(tr, self.key, revision)
        elif self.number is None:
            versioned.put(tr, self.key, revision, self.value)
        else:
            sealed.put(tr, self.key, revision, self.number, self.value, is_dense=self.is_dense)

    def place(self, revision: Revision) -> bytes:
        """The prefix of every key that it writes."""
        return self.key + revision.to_bytes(REVISION_BYTES, "big") if self.versioned else self.key
