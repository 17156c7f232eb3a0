"""The electronic signatures of what is in a core: those that were made here, and those that came with a core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.signatures import Signature, TargetKind
from drillcore_server.exporting.sorted_file import SortedFile
from drillcore_server.store import library, signatures, versioned
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.signatures import SIGNATURE
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

_TARGETS_AT_ONCE: Final = 500
_PLACE_BYTES: Final = 1 + 16 + 8 + 16
"""Kind, target, version and signature: the order in which signatures are written."""


@dataclass(frozen=True, slots=True)
class SignatureBook:
    """Where the signatures of a tenant are."""

    keys: Keyspace
    keyring: Keyring
    tenant: TenantId


class _Target(NamedTuple):
    kind: TargetKind
    id: UUID
    version: int


class GatheredSignatures:
    """Take what is in the core, then go through its signatures: by target, version and id."""

    def __init__(self, book: SignatureBook, snapshot: Snapshot) -> None:
        self._book = book
        self._snapshot = snapshot
        self._has_foreign = library.is_there(snapshot, snapshot.keys.all_foreign_signatures())
        self._targets: list[_Target] = []
        self._found = SortedFile()

    def take(self, kind: TargetKind, target: UUID, version: int) -> None:
        self._targets.append(_Target(kind, target, version))
        if len(self._targets) == _TARGETS_AT_ONCE:
            self._look()

    def encoded(self) -> Iterator[bytes]:
        self._look()
        return (one[_PLACE_BYTES:] for one in self._found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def _look(self) -> None:
        targets, self._targets = self._targets, []
        for signature in self._snapshot.engine.run(lambda tr: self._own(tr, targets)):
            self._keep(signature)
        if self._has_foreign:
            for signature in self._foreign(targets):
                self._keep(signature)

    def _keep(self, signature: Signature) -> None:
        target = signature.target
        place = bytes([target.kind]) + target.id.bytes + target.version.to_bytes(8, "big") + signature.id.bytes
        self._found.add(place + SIGNATURE.encode(signature))

    def _own(self, tr: Transaction, targets: list[_Target]) -> list[Signature]:
        """With their salts, without what only this store knows: the numbers of the keys that the salts are made of."""
        book = self._book
        found: list[Signature] = []
        for kind in {one.kind for one in targets}:
            versions = [(one.id, one.version) for one in targets if one.kind == kind]
            signed = signatures.signatures_of_many(tr.snapshot, book.keys, book.tenant, kind, versions)
            found += (signatures.with_salt(book.keyring, one) for those in signed.values() for one in those)
        return [replace(one, sealed_by=()) for one in found if one.content_salt]

    def _foreign(self, targets: list[_Target]) -> Iterator[Signature]:
        found = self._snapshot.find(targets, _foreign_signatures)
        for target, entries in zip(targets, found, strict=True):
            for entry in self._snapshot.sealed.opened_all(entries):
                signature = SIGNATURE.decode(entry.value)
                if signature.target.version == target.version:
                    yield replace(signature, sealed_by=())


def _foreign_signatures(view: CorpusView, target: _Target) -> list[Entry]:
    keys = view.keys.foreign_signatures(target.kind, target.id)
    return list(versioned.scan(view.tr, *keys, view.revision))
