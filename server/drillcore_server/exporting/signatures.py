"""Electronic signatures as copies show them: where they come from, and their form in the JSON copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from drillcore_server.domain.ids import NodeId, TenantId

SignatureContent = dict[str, Any]
"""id, target {kind, id, version}, corpus_id, signer_id, signer_login, signer_name, signed_at, meaning, record_id;
content_hash, content_salt and key_hash in hex, signature in base64; manifestation: the JSON that was signed."""


class SignatureSource(Protocol):
    def of_nodes(
        self, tenant: TenantId, versions: Sequence[tuple[NodeId, int]]
    ) -> Mapping[NodeId, Sequence[SignatureContent]]:
        """The signatures of these versions of nodes, oldest first. Nodes that nobody signed may be left out."""


class NoSignatures:
    """Of a store in which nobody can have signed."""

    def of_nodes(
        self, tenant: UUID, versions: Sequence[tuple[NodeId, int]]
    ) -> Mapping[NodeId, Sequence[SignatureContent]]:
        del tenant, versions
        return {}
