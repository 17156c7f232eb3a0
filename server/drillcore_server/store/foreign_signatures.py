"""Signatures that were made on other servers and came with a core. This server does not vouch for them.

They are kept with the salt of what was signed, so each is sealed under the keys of the sources of its target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID

from drillcore_server.domain.ids import CorpusNumber, SourceId
from drillcore_server.domain.signatures import Signature, TargetKind
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.store.library import removals
from drillcore_server.store.signatures import SIGNATURE
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write


def of_target(view: CorpusView, kind: TargetKind, target: UUID, version: int = 0) -> list[Signature]:
    """Of one version of a node or fact, or of all with version 0, by version and id. Erased ones are left out."""
    found = view.sealed.scan(view.tr, *view.keys.foreign_signatures(kind, target), view.revision)
    signatures = (SIGNATURE.decode(entry.value) for entry in found)
    return [one for one in signatures if version in {0, one.target.version}]


def signatures(snapshot: Snapshot) -> Iterator[Signature]:
    """All that were not erased, by kind, target, version and id."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.all_foreign_signatures())):
        yield SIGNATURE.decode(entry.value)


def without_source(snapshot: Snapshot, number: KeyNumber) -> Iterator[Write]:
    """Removes those of what a source is part of, known by the keys that they are sealed under."""
    return removals(snapshot, snapshot.keys.all_foreign_signatures(), number)


class ForeignSignatureWrites:
    def __init__(self, keys: CorpusKeys, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys
        self._number = number
        self._keyring = keyring

    def put(self, signature: Signature, sources: Collection[SourceId]) -> Write:
        """`sources` are those of what was signed."""
        scopes = sources or [CORPUS_SCOPE]
        numbers = tuple(sorted(self._keyring.numbers(self._number, sorted(scopes))))
        return Write(self.key(signature), SIGNATURE.encode(signature), numbers=numbers)

    def key(self, signature: Signature) -> bytes:
        target = signature.target
        return self._keys.foreign_signature(target.kind, target.id, target.version, signature.id)
