"""Exports as targets of signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.exports import store as exports
from drillcore_server.exports.store import Export
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Principal, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.signatures.model import FIXED_VERSION, Target, TargetKind
from drillcore_server.signatures.targets import FoundTarget
from drillcore_server.storage.ids import TenantId
from drillcore_server.storage.keyring import CORPUS_SCOPE, Keyring
from drillcore_server.storage.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class SignableExports:
    keys: Keyspace
    keyring: Keyring

    def rule(self, _principal: Principal, tenant: TenantId | None) -> Rule[InTenant]:
        return access.in_tenant(tenant, Permission.SIGN)

    def find(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        """An export looks missing if its corpus was deleted or the caller may not read it."""
        export = exports.find(tr, self.keys, granted.tenant, target)
        if export is None or not granted.reaches(export.corpus):
            raise Missing(Reason.SIGNATURE_NOT_FOUND, f"there is no export {target}")
        corpus = granted.corpus(tr, self.keys, export.corpus)
        trail.touch_corpus(corpus.id, export.revision)
        sealed_by = tuple(self.keyring.numbers(corpus.number, [CORPUS_SCOPE]))
        signed = Target(TargetKind.EXPORT, target, FIXED_VERSION)
        return FoundTarget(signed, export_content(export), sealed_by, corpus.id)

    def corpus_of(self, _tr: Reader, _granted: InTenant, _target: UUID) -> None:
        return None


def export_content(export: Export) -> dict[str, Any]:
    """What a signature of the export covers."""
    return {
        "id": str(export.id),
        "corpus_id": str(export.corpus),
        "revision": export.revision,
        "format": export.format.value,
        "include_audit": export.include_audit,
        "manifest_sha256": export.manifest_sha256.hex(),
        "bundle_sha256": export.bundle_sha256.hex(),
        "size_bytes": export.size_bytes,
        "by": export.by,
        "at": time_text(export.at),
        "record_id": str(export.record),
    }
