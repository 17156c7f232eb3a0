"""Electronic signatures as copies show them: all that the server signed of each, and what it is checked with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore.audit.base64_text import to_base64
from drillcore_fdb.engine import Engine, Transaction
from drillcore_server.domain.ids import FactId, NodeId, TenantId
from drillcore_server.domain.signatures import Signature, TargetKind
from drillcore_server.store import signatures
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace

SignatureContent = dict[str, Any]
_TARGETS_AT_ONCE: Final = 1_000


class ContentSignatures:
    def __init__(self, engine: Engine, keys: Keyspace, keyring: Keyring) -> None:
        self._engine = engine
        self._keys = keys
        self._keyring = keyring

    def of_nodes(
        self, tenant: TenantId, versions: Sequence[tuple[NodeId, int]]
    ) -> Mapping[UUID, Sequence[SignatureContent]]:
        """The signatures of these versions of nodes, oldest first. Nodes that nobody signed are left out."""
        return dict(self._found(TargetKind.NODE, tenant, versions))

    def of_facts(
        self, tenant: TenantId, versions: Sequence[tuple[FactId, int]]
    ) -> Mapping[UUID, Sequence[SignatureContent]]:
        """Likewise of facts."""
        return dict(self._found(TargetKind.FACT, tenant, versions))

    def _found(
        self, kind: TargetKind, tenant: TenantId, versions: Sequence[tuple[UUID, int]]
    ) -> Iterator[tuple[UUID, Sequence[SignatureContent]]]:
        for start in range(0, len(versions), _TARGETS_AT_ONCE):
            some = versions[start : start + _TARGETS_AT_ONCE]
            found = self._engine.run(partial(self._read, kind=kind, tenant=tenant, versions=some))
            for target, those in found.items():
                yield target, [signature_content(signatures.with_salt(self._keyring, one)) for one in those]

    def _read(
        self, tr: Transaction, kind: TargetKind, tenant: TenantId, versions: Sequence[tuple[UUID, int]]
    ) -> dict[UUID, list[Signature]]:
        return signatures.signatures_of_many(tr.snapshot, self._keys, tenant, kind, versions)


def signature_content(signature: Signature) -> SignatureContent:
    """What the manifestation says, and beside it what vouches for it."""
    said: SignatureContent = orjson.loads(signature.manifestation)
    return said | {
        "manifestation": signature.manifestation,
        "signature": to_base64(signature.signature),
        "key_hash": signature.key_hash.hex(),
        "content_salt": signature.content_salt.hex(),
    }
