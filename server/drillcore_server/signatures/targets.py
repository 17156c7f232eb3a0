"""The kinds of records that can be signed. Each capability registers its own kinds when the server is wired.

kind           signed content                               sealed under                     defined in
node           its object in the JSON copy, without vector  the keys of its sources          hierarchy
fact           its object in the JSON copy, without vector  the key of its source            facts
audit record   leaf and body                                the key of its log               audit
review         range, root and findings                     the key of the reviewed log      audit
export         its parameters and the hash of its bundle    the key of the corpus            exports
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_formats.audit.signatures import content_hash
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.access import Granted, InTenant, Principal, Rule
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Stale
from drillcore_server.kernel.trail import Trail
from drillcore_server.signatures.model import Signature, Target, TargetKind
from drillcore_server.signatures.store import salt, with_salt
from drillcore_server.storage.ids import CorpusId, TenantId
from drillcore_server.storage.keyring import KeyNumber, Keyring

G = TypeVar("G", bound=Granted)


@dataclass(frozen=True, slots=True)
class FoundTarget:
    """A record that is to be signed, at its current version."""

    target: Target
    content: Mapping[str, Any]
    sealed_by: tuple[KeyNumber, ...]
    corpus: CorpusId | None = None


class Signable(Protocol[G]):
    """One kind of record that can be signed."""

    def rule(self, principal: Principal, tenant: TenantId | None) -> Rule[G]:
        """Who may sign records of this kind."""
        ...

    def find(self, tr: Reader, granted: G, trail: Trail, target: UUID) -> FoundTarget:
        """The record at its current version. Raises `Missing` if there is none."""
        ...

    def corpus_of(self, tr: Reader, granted: InTenant, target: UUID) -> Corpus | None:
        """The tenant's own corpus that holds the record. None for records that never come with a core."""
        ...


class Targets:
    """Finds records of every kind that can be signed."""

    def __init__(self, keyring: Keyring, kinds: Mapping[TargetKind, Signable[Any]]) -> None:
        self._keyring = keyring
        self._kinds = kinds

    def rule(self, principal: Principal, tenant: TenantId | None, kind: TargetKind) -> Rule[Granted]:
        """Who may sign records of this kind."""
        return self._kinds[kind].rule(principal, tenant)

    def find(self, tr: Reader, granted: Granted, trail: Trail, target: Target) -> FoundTarget:
        """The record to sign. Raises `Missing`, or `Stale` if its current version is not the requested one."""
        trail.detail["target"] = target.document()
        found = self._kinds[target.kind].find(tr, granted, trail, target.id)
        version = found.target.version
        if target.version not in {0, version}:
            message = f"the record is at version {version}, not {target.version}; read it again before you sign"
            raise Stale(Reason.VERSION_MISMATCH, message, version=str(version))
        trail.detail["target"] = found.target.document()
        return found

    def corpus_of(self, tr: Reader, granted: InTenant, target: Target) -> Corpus | None:
        """The tenant's own corpus that holds the target, which may have signatures from other servers."""
        return self._kinds[target.kind].corpus_of(tr, granted, target.id)

    def hashed(self, found: FoundTarget) -> bytes:
        """The hash that binds a signature to the content."""
        return content_hash(salt(self._keyring, found.target, found.sealed_by), found.content)

    def with_salt(self, signature: Signature) -> Signature:
        return with_salt(self._keyring, signature)
