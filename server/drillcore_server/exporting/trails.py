"""What a bundle takes from the audit log of its tenant: a checkpoint, the keys, and the records about its corpus.

Records stand in it as in audit exports (`audit/ndjson.py`), each with its proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore.audit.notes import make_note
from drillcore_fdb.engine import Engine, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.ndjson import LogAt, NdjsonExport, log_now
from drillcore_server.audit.search import AuditFilter, LogSearch
from drillcore_server.audit.signers import SigningKeys, chain_text
from drillcore_server.domain.errors import Unavailable
from drillcore_server.domain.ids import CorpusId, RecordId, TenantId
from drillcore_server.store import audit_log
from drillcore_server.store.keyspace import Keyspace

WAIT_S: Final = 10.0
"""For the log to have the records that were committed before the export began. They are there in moments."""
_LOOK_EVERY_S: Final = 0.05


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
        at = self.engine.run(lambda tr: log_now(tr.snapshot, self.keys, self.signing, log))
        return CorpusTrail(self, at, corpus)

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


class CorpusTrail:
    """The log at one size, and the records in it that are about one corpus. May be read more than once."""

    def __init__(self, trails: Trails, at: LogAt, corpus: CorpusId) -> None:
        self._trails = trails
        self._at = at
        self._corpus = corpus

    @property
    def checkpoint(self) -> str:
        """A C2SP signed note."""
        return self._at.checkpoint.note

    @property
    def keys(self) -> str:
        """The chain of signing keys, in canonical JSON."""
        return chain_text(self._at.chain)

    def signed_note(self, text: str) -> str:
        """The text as a C2SP note, signed by the last key of the chain: who trusts that can check it."""
        signer = self._trails.signing.signer(self._at.chain.keys[-1].number)
        return make_note(text, (signer.verifier, signer.sign)).encode()

    def lines(self) -> Iterator[bytes]:
        """The records as lines of an audit export, each with its proof."""
        trails = self._trails
        export = NdjsonExport(trails.keys, trails.search, self._at, AuditFilter(corpus=self._corpus))
        return export.lines(lambda work: trails.engine.run(lambda tr: work(tr.snapshot)))
