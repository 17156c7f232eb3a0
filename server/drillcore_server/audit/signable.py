"""Audit records and reviews as targets of signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from drillcore_fdb.engine import Reader
from drillcore_formats.audit.encoding import to_base64
from drillcore_proto.reasons import Reason
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit import reviews
from drillcore_server.audit.query import WhichLog, auditor_of
from drillcore_server.audit.reviews import Review
from drillcore_server.kernel.access import Granted, InTenant, Principal, Rule
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.journal import log_key, log_of
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.signatures.model import FIXED_VERSION, Target, TargetKind
from drillcore_server.signatures.targets import FoundTarget
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import RecordId, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords


@dataclass(frozen=True, slots=True)
class _OfLog:
    """A kind of record that belongs to a log. Whoever may audit the log may sign its records."""

    keys: Keyspace
    keyring: Keyring

    def rule(self, principal: Principal, tenant: TenantId | None) -> Rule[Granted]:
        return auditor_of(WhichLog(tenant, server_log=principal.tenant is None and tenant is None))

    def corpus_of(self, _tr: Reader, _granted: InTenant, _target: UUID) -> None:
        return None

    def _found(self, kind: TargetKind, target: UUID, log: UUID, content: Mapping[str, Any]) -> FoundTarget:
        return FoundTarget(Target(kind, target, FIXED_VERSION), content, (log_key(self.keyring, log),))


@dataclass(frozen=True, slots=True)
class SignableRecords(_OfLog):
    opener: RecordOpener

    def find(self, tr: Reader, granted: Granted, _trail: Trail, target: UUID) -> FoundTarget:
        log = log_of(granted.tenant)
        place = audit_log.place_of(tr, self.keys, RecordId(target))
        entry = None if place is None or place.log != log else audit_log.entry(tr, self.keys, log, place.index)
        stored = None if entry is None else audit_records.get(tr, self.keys, entry.position)
        if entry is None or stored is None:
            message = f"the log has no record {target}; a new record appears within seconds of its call"
            raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, message)
        opened = self.opener.open(stored, entry.position)
        content = {"leaf": to_base64(opened.leaf.encode()), "body": orjson.loads(opened.body)}
        return self._found(TargetKind.AUDIT_RECORD, target, log, content)


@dataclass(frozen=True, slots=True)
class SignableReviews(_OfLog):
    sealed: SealedRecords

    def find(self, tr: Reader, granted: Granted, _trail: Trail, target: UUID) -> FoundTarget:
        log = log_of(granted.tenant)
        review = reviews.find(tr, self.keys, self.sealed, log, target)
        if review is None:
            raise Missing(Reason.SIGNATURE_NOT_FOUND, f"there is no review {target}")
        return self._found(TargetKind.REVIEW, target, log, review_content(review))


def review_content(review: Review) -> dict[str, Any]:
    """What a signature of the review covers."""
    return {
        "id": str(review.id),
        "log": str(review.log),
        "first": review.first,
        "last": review.last,
        "root": review.root.hex(),
        "findings": review.findings,
        "created_by": review.created_by,
        "created_at": time_text(review.created_at),
    }
