"""Compares what a corpus has in the store with what its audit records committed to.

Every revision names its audit record, and the record has the root of the revision's manifest: the list of all that it
wrote. So a record that somebody changed, added or removed in the store itself is found, whatever keys they had, as long
as they could not sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from drillcore.audit.failures import Mismatch, VerificationFailed
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.leaves import commit_to
from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import Revision
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store import audit_records, manifests, revisions, trimming, versioned
from drillcore_server.store.audit_records import Position, StoredRecord
from drillcore_server.store.keyspace import Keyspace

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

    def problems(self) -> Iterator[str]:
        head, floor = self._engine.run(
            lambda tr: (revisions.head(tr, self._keys), trimming.floor(tr, self._keys)),
        )
        for number in range(1, head + 1):
            for problem in self._revision(Revision(number)):
                yield f"corpus {self._corpus.id}, revision {number}: {problem}"
        try:
            for problem in self._entries(head, floor):
                yield f"corpus {self._corpus.id}: {problem}"
        except EngineError as error:
            yield f"corpus {self._corpus.id}: {error.message}"

    def _revision(self, revision: Revision) -> Iterator[str]:
        record = self._engine.run(lambda tr: revisions.get(tr, self._keys, revision))
        if record is None:
            yield "there is no record of it"
            return
        entries, root = self._engine.run(lambda tr: manifests.read(tr.snapshot, self._keys, revision))
        for key, value in entries:
            self._listed.setdefault(key, {})[revision] = value
        try:
            body = self._body(record)
        except (EngineError, VerificationFailed) as error:
            yield f"its audit record is not what was written: {error}"
            return
        if body is None:
            yield "its audit record is not there"
        elif body.get("corpora", {}).get(str(self._corpus.id)) != revision:
            yield "its audit record is of something else"
        elif body.get("after") != {"revision": revision, "commitment": root.hex()}:
            yield "its manifest is not what its audit record committed to"

    def _body(self, record: RevisionRecord) -> dict[str, Any] | None:
        """What the audit record of a revision says, if it is there and its signature holds."""

        def work(tr: Transaction) -> tuple[StoredRecord, Position] | None:
            recorded = audit_records.find_request(tr.snapshot, self._keyspace, record.by, record.request_id)
            if recorded is None or recorded.id != record.audit_id:
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
                missing.discard((hashed, entry.revision))
                expected = self._listed.get(hashed, {}).get(entry.revision)
                if expected is None:
                    yield f"{entry.key.hex()} of revision {entry.revision} is in no manifest: nobody wrote it"
                elif expected != manifests.value_hash(entry.key, entry.revision, entry.value):
                    yield f"{entry.key.hex()} of revision {entry.revision} is not what was written"
        for key, revision in sorted(missing):
            if not self._may_be_trimmed(key, revision, floor):
                yield f"a record of revision {revision} (key {key.hex()}) is gone, and not by trimming"

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
