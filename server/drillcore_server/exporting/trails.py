"""What a bundle takes from the audit log of its tenant: a checkpoint, the keys, and the records about its corpus.

Records stand in it as in audit exports (`drillcore.audit.exported`), each with its proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore.audit.base64_text import to_base64
from drillcore.audit.keys import KeyChain
from drillcore.audit.notes import make_note
from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit import proofs
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.proofs import LogCheckpoint
from drillcore_server.audit.search import AuditFilter, FoundRecord, LogSearch
from drillcore_server.audit.signers import SigningKeys, chain_text
from drillcore_server.domain.audit import Action
from drillcore_server.domain.errors import Unavailable
from drillcore_server.domain.ids import CorpusId, RecordId, TenantId
from drillcore_server.store import audit_log
from drillcore_server.store.keyspace import Keyspace

AUDIT_FORMAT: Final = 1
WAIT_S: Final = 10.0
"""For the log to have the records that were committed before the export began. They are there in moments."""
_LOOK_EVERY_S: Final = 0.05
_RECORDS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Trails:
    """Everything that trails are read with."""

    engine: Engine
    keys: Keyspace
    search: LogSearch
    signing: SigningKeys

    @property
    def store(self) -> UUID:
        return self.signing.store

    def of_corpus(self, tenant: TenantId, corpus: CorpusId) -> CorpusTrail:
        """The trail, with every record up to now. Raises `Unavailable` if the log does not take them up in time."""
        log = log_of(tenant)
        newest = self.engine.run(lambda tr: next(self.search.find(tr.snapshot, log, AuditFilter()), None))
        until = time.monotonic() + WAIT_S
        while newest is not None and not self._has(log, newest.opened.leaf.record):
            if time.monotonic() > until:
                message = "the audit log has not taken up its newest records; make the export again in a while"
                raise Unavailable(Reason.AUDIT_UNAVAILABLE, message)
            time.sleep(_LOOK_EVERY_S)
        return CorpusTrail(self, log, corpus, *self.engine.run(lambda tr: self._checkpoint(tr.snapshot, log)))

    def _has(self, log: UUID, record: UUID) -> bool:
        """Raises `Unavailable` if the log has stopped."""

        def look(tr: Transaction) -> bool:
            if audit_log.place_of(tr.snapshot, self.keys, RecordId(record)) is not None:
                return True
            if audit_log.head(tr.snapshot, self.keys, log).problem:
                message = "the audit log has stopped; its operator finds why with VerifyAudit"
                raise Unavailable(Reason.AUDIT_UNAVAILABLE, message)
            return False

        return self.engine.run(look)

    def _checkpoint(self, tr: Reader, log: UUID) -> tuple[LogCheckpoint, KeyChain]:
        return proofs.newest_checkpoint(tr, self.keys, log), self.signing.chain(tr)


class CorpusTrail:
    """The log at one size, and the records in it that are about one corpus. May be read more than once."""

    def __init__(self, trails: Trails, log: UUID, corpus: CorpusId, checkpoint: LogCheckpoint, chain: KeyChain) -> None:
        self._trails = trails
        self._log = log
        self._corpus = corpus
        self._size = checkpoint.size
        self._chain = chain
        self.checkpoint = checkpoint.note

    @property
    def keys(self) -> str:
        """The chain of signing keys, in canonical JSON."""
        return chain_text(self._chain)

    def signed_note(self, text: str) -> str:
        """The text as a C2SP note, signed by the last key of the chain: who trusts that can check it."""
        signer = self._trails.signing.signer(self._chain.keys[-1].number)
        return make_note(text, (signer.verifier, signer.sign)).encode()

    def lines(self) -> Iterator[bytes]:
        """The head, a line for each record, those that explain erasures, the end."""
        yield _line(self._head())
        count, erased = 0, set()
        for line in self._records(AuditFilter(corpus=self._corpus)):
            count += 1
            if "erased" in line:
                erased.add(line["body"]["private"]["key"])
            yield _line(line)
        for line in self._records(AuditFilter(action=Action.ERASE.value)) if erased else ():
            if self._explains(line["body"], erased):
                yield _line(line | {"of": "erasure"})
        yield _line({"end": count})

    def _head(self) -> dict[str, Any]:
        return {
            "drillcore_audit": AUDIT_FORMAT,
            "store": str(self._trails.store),
            "log": str(self._log),
            "first": 0,
            "size": self._size,
            "complete": False,
            "checkpoint": self.checkpoint,
            "keys": self._chain.document(),
            "filter": {"corpus_id": str(self._corpus)},
        }

    def _explains(self, body: dict[str, Any], erased: set[int]) -> bool:
        """Whether a record tells of the erasure of one of these keys and is not among the corpus's own."""
        told = not erased.isdisjoint(body.get("detail", {}).get("erased_keys", ()))
        return told and str(self._corpus) not in body.get("corpora", {})

    def _records(self, wanted: AuditFilter) -> Iterator[dict[str, Any]]:
        after: bytes | None = None
        while True:
            page, after = self._trails.engine.run(lambda tr, a=after: self._page(tr, wanted, a))  # type: ignore[misc]
            yield from page
            if after is None:
                return

    def _page(
        self, tr: Transaction, wanted: AuditFilter, after: bytes | None
    ) -> tuple[list[dict[str, Any]], bytes | None]:
        """Some records, and where to go on, if there are more."""
        found = self._trails.search.find(tr.snapshot, self._log, wanted, oldest_first=True, after=after)
        page = list(islice(found, _RECORDS_AT_ONCE))
        tree = proofs.tree_of(tr.snapshot, self._trails.keys, self._log, self._size)
        lines = [
            _record(one, one.index, tree.inclusion(one.index, self._size))
            for one in page
            if one.index is not None and one.index < self._size
        ]
        return lines, page[-1].cursor if len(lines) == _RECORDS_AT_ONCE else None


def _record(found: FoundRecord, index: int, proof: list[bytes]) -> dict[str, Any]:
    opened = found.opened
    line: dict[str, Any] = {
        "index": index,
        "leaf": to_base64(opened.leaf.encode()),
        "salt": to_base64(opened.salt),
        "body": orjson.loads(opened.body),
        "proof": list(map(to_base64, proof)),
    }
    if opened.private is not None:
        line |= {"private_salt": to_base64(opened.private_salt), "private": orjson.loads(opened.private)}
    return line | ({"erased": True} if opened.erased else {})


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"
