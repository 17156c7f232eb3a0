"""Compares what a corpus has in the store with what its audit records committed to.

Every revision names its audit record, and the record has the root of the revision's manifest: the list of all that it
wrote. So a record that somebody changed, added or removed in the store itself is found, whatever keys they had, as long
as they could not sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import orjson

from drillcore.audit.failures import Mismatch, VerificationFailed
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.leaves import commit_to
from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import PrincipalId, RecordId, RequestId, Revision
from drillcore_server.store import audit_records, erasures, manifests, purging, revisions, trimming, versioned
from drillcore_server.store.audit_records import Position, StoredRecord
from drillcore_server.store.keyring import KeyNumber
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.purging import Listed
from drillcore_server.store.sealed import is_empty, keys_of

_KEYS_MAX: Final = 2_000
"""Read by a scan in one transaction."""


class AuditCheck:
    """One corpus against its audit records."""

    def __init__(
        self, engine: Engine, keys: Keyspace, opener: RecordOpener, trusted: TrustedKeys, corpus: Corpus
    ) -> None:
        self._engine = engine
        self._keyspace = keys
        self._keys = keys.of_corpus(corpus.number)
        self._opener = opener
        self._trusted = trusted
        self._corpus = corpus
        self._listed: dict[bytes, dict[Revision, bytes]] = {}
        """What the manifests say: by hash of the key, what each revision wrote there."""
        self._purged: dict[Listed, bool] = {}
        """What purges were to remove, and whether they have."""
        self.sealed_under: set[KeyNumber] = set()
        """The keys that something here is sealed under."""

    def problems(self) -> Iterator[str]:
        head, floor = self._engine.run(
            lambda tr: (revisions.head(tr, self._keys), trimming.floor(tr, self._keys)),
        )
        for number in range(1, head + 1):
            for problem in self._revision(Revision(number)):
                yield f"corpus {self._corpus.id}, revision {number}: {problem}"
        try:
            for problem in chain(self._purges(), self._erasures(), self._entries(head, floor)):
                yield f"corpus {self._corpus.id}: {problem}"
        except (EngineError, VerificationFailed) as error:
            yield f"corpus {self._corpus.id}: {error}"

    def _revision(self, revision: Revision) -> Iterator[str]:
        record = self._engine.run(lambda tr: revisions.get(tr, self._keys, revision))
        if record is None:
            yield "there is no record of it"
            return
        entries, root = self._engine.run(lambda tr: manifests.read(tr.snapshot, self._keys, revision))
        for key, value in entries:
            self._listed.setdefault(key, {})[revision] = value
        try:
            body = self._body(record.by, record.request_id, record.audit_id)
        except (EngineError, VerificationFailed) as error:
            yield f"its audit record is not what was written: {error}"
            return
        if body is None:
            yield "its audit record is not there"
        elif body.get("corpora", {}).get(str(self._corpus.id)) != revision:
            yield "its audit record is of something else"
        elif body.get("after") != {"revision": revision, "commitment": root.hex()}:
            yield "its manifest is not what its audit record committed to"

    def _purges(self) -> Iterator[str]:
        """What may be missing because it was purged: only what a list names that is on the record."""
        for purge in self._engine.run(lambda tr: list(purging.all_of(tr.snapshot, self._keys))):
            if purge.record is None or purge.by is None or purge.request_id is None:
                continue
            number = purge.number
            listed, root = self._engine.run(lambda tr, n=number: purging.list_of(tr.snapshot, self._keys, n))  # type: ignore[misc]
            body = self._body(purge.by, purge.request_id, RecordId(purge.record))
            if body is None or body.get("detail", {}).get("purged_root") != root.hex():
                yield f"the list of purge {number} is not what its audit record committed to"
            else:
                self._purged |= dict.fromkeys(listed, purge.finished)

    def _erasures(self) -> Iterator[str]:
        """Every erasure that is noted was recorded with its revision."""
        for erasure in self._engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, self._keys))):
            revision = erasure.revision
            record = self._engine.run(lambda tr, r=revision: revisions.get(tr.snapshot, self._keys, r))  # type: ignore[misc]
            body = None if record is None else self._body(record.by, record.request_id, record.audit_id)
            if body is None or body.get("detail", {}).get("erased_keys") != list(erasure.key_numbers):
                yield f"the erasure {erasure.id} is not what the audit record of revision {revision} says"

    def _body(self, by: PrincipalId, request_id: RequestId, audit_id: RecordId) -> dict[str, Any] | None:
        """What an audit record says, if it is there and its signature holds."""

        def work(tr: Transaction) -> tuple[StoredRecord, Position] | None:
            recorded = audit_records.find_request(tr.snapshot, self._keyspace, by, request_id)
            if recorded is None or recorded.id != audit_id:
                return None
            stored = audit_records.get(tr.snapshot, self._keyspace, recorded.position)
            return None if stored is None or stored.id != recorded.id else (stored, recorded.position)

        found = self._engine.run(work)
        return None if found is None else self._checked(*found)

    def _checked(self, stored: StoredRecord, position: Position) -> dict[str, Any]:
        leaf = self._opener.leaf(stored, position)
        self._trusted.key(leaf.key_hash, "it").check(leaf.signature, leaf.signed, "the record")
        salt, body = self._opener.body(stored)
        if commit_to(salt, body) != leaf.commitment:
            raise Mismatch("its body is not the one that was signed")
        opened: dict[str, Any] = orjson.loads(body)
        return opened

    def _entries(self, head: Revision, floor: Revision) -> Iterator[str]:
        """Everything that is there was listed, and everything listed is there unless trimming took it."""
        missing = {(key, revision) for key, written in self._listed.items() for revision in written}
        for keys in self._keys.committed():
            for entry in self._values(keys.begin, keys.end):
                if entry.revision > head:
                    continue  # being staged, or left behind by somebody who died
                hashed = manifests.key_hash(entry.key)
                self._note_keys(entry)
                missing.discard((hashed, entry.revision))
                expected = self._listed.get(hashed, {}).get(entry.revision)
                purged = self._purged.get(Listed(hashed, entry.revision))
                if purged is not None and (entry.value is None or is_empty(entry.value)):
                    continue
                if purged:
                    yield f"{entry.key.hex()} of revision {entry.revision} was purged, and is there"
                elif expected is None:
                    yield f"{entry.key.hex()} of revision {entry.revision} is in no manifest: nobody wrote it"
                elif expected != manifests.value_hash(entry.key, entry.revision, entry.value):
                    yield f"{entry.key.hex()} of revision {entry.revision} is not what was written"
        for key, revision in sorted(missing):
            if Listed(key, revision) not in self._purged and not self._may_be_trimmed(key, revision, floor):
                yield f"a record of revision {revision} (key {key.hex()}) is gone, and not by trimming or a purge"

    def _note_keys(self, entry: versioned.Value) -> None:
        if entry.value is not None and self._keys.space_of(entry.key) in purging.SEALED:
            self.sealed_under.update(keys_of(entry.value))

    def _may_be_trimmed(self, key: bytes, revision: Revision, floor: Revision) -> bool:
        written = self._listed[key]
        overtaken = any(revision < other <= floor for other in written)
        return revision <= floor and (overtaken or written[revision] == manifests.REMOVAL)

    def _values(self, begin: bytes, end: bytes) -> Iterator[versioned.Value]:
        following: bytes | None = begin
        while following is not None:
            page, following = self._engine.run(
                lambda tr, b=following: versioned.values_page(tr.snapshot, b, end, _KEYS_MAX)  # type: ignore[misc]
            )
            yield from page
