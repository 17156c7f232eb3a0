"""Compares the stored records of a corpus with the commitments in its audit records.

Every revision names its audit record. That record has the root of the revision's manifest, which lists everything that
the revision wrote. So a record that somebody changes, adds or removes in the store itself is found, unless they can
also sign audit records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import orjson

from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_formats.audit.findings import Mismatch, VerificationFailed
from drillcore_formats.audit.keys import TrustedKeys
from drillcore_formats.audit.leaves import commit_to
from drillcore_server.erasure import purge_store as purging
from drillcore_server.erasure.purge_store import Listed
from drillcore_server.kernel import erasures, retention, revisions
from drillcore_server.kernel import writes as manifests
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage import audit_records, versioned
from drillcore_server.storage.audit_records import Position, RecordOpener, StoredRecord
from drillcore_server.storage.followers import SEALED
from drillcore_server.storage.ids import PrincipalId, RecordId, RequestId, Revision
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import is_empty, keys_of

_KEYS_MAX: Final = 2_000
"""Keys that a scan reads in one transaction."""


class CommitmentCheck:
    """Compares one corpus with its audit records."""

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
        """The manifests: by hash of a key, the hash of the value that each revision wrote."""
        self._purged: dict[Listed, bool] = {}
        """The records on the lists of purges, and whether the purge has finished."""
        self.sealed_under: set[KeyNumber] = set()
        """The encryption keys of the corpus's records."""

    def problems(self) -> Iterator[str]:
        head, floor = self._engine.run(
            lambda tr: (revisions.head(tr, self._keys), retention.floor(tr, self._keys)),
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
            yield "its record is missing"
            return
        entries, root = self._engine.run(lambda tr: manifests.read(tr.snapshot, self._keys, revision))
        for key, value in entries:
            self._listed.setdefault(key, {})[revision] = value
        try:
            body = self._body(record.by, record.request_id, record.audit_id)
        except (EngineError, VerificationFailed) as error:
            yield f"its audit record was changed: {error}"
            return
        if body is None:
            yield "its audit record is missing"
        elif body.get("corpora", {}).get(str(self._corpus.id)) != revision:
            yield "its audit record is about something else"
        elif body.get("after") != {"revision": revision, "commitment": root.hex()}:
            yield "its manifest is not what its audit record committed to"

    def _purges(self) -> Iterator[str]:
        """Reads the lists of purges. Only records on a list that was recorded may be missing."""
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
        """Every noted erasure must be in the audit record of its revision."""
        for erasure in self._engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, self._keys))):
            revision = erasure.revision
            record = self._engine.run(lambda tr, r=revision: revisions.get(tr.snapshot, self._keys, r))  # type: ignore[misc]
            body = None if record is None else self._body(record.by, record.request_id, record.audit_id)
            if body is None or body.get("detail", {}).get("erased_keys") != list(erasure.key_numbers):
                yield f"the erasure {erasure.id} is not what the audit record of revision {revision} says"

    def _body(self, by: PrincipalId, request_id: RequestId, audit_id: RecordId) -> dict[str, Any] | None:
        """The body of an audit record whose signature is right. None if the record is missing."""

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
        """Every stored record must be listed, and every listed record stored, unless it was trimmed or purged."""
        missing = {(key, revision) for key, written in self._listed.items() for revision in written}
        for keys in self._keys.committed():
            for entry in self._values(keys.begin, keys.end):
                if entry.revision > head:
                    continue  # being staged, or left behind by a server that died
                hashed = manifests.key_hash(entry.key)
                self._note_keys(entry)
                missing.discard((hashed, entry.revision))
                expected = self._listed.get(hashed, {}).get(entry.revision)
                purged = self._purged.get(Listed(hashed, entry.revision))
                if purged is not None and (entry.value is None or is_empty(entry.value)):
                    continue
                if purged:
                    yield f"{entry.key.hex()} of revision {entry.revision} was purged but is still there"
                elif expected is None:
                    yield f"{entry.key.hex()} of revision {entry.revision} is in no manifest: no recorded call wrote it"
                elif expected != manifests.value_hash(entry.key, entry.revision, entry.value):
                    yield f"{entry.key.hex()} of revision {entry.revision} is not what was written"
        for key, revision in sorted(missing):
            if Listed(key, revision) not in self._purged and not self._may_be_trimmed(key, revision, floor):
                yield f"a record of revision {revision} (key {key.hex()}) is gone, and not by trimming or a purge"

    def _note_keys(self, entry: versioned.Value) -> None:
        if entry.value is not None and self._keys.space_of(entry.key) in SEALED:
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
