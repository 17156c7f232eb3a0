"""The signatures of nodes. They are read together with the nodes, so they take no round trip of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import RangeRead, Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.nodes import Node
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import Signature, TargetKind
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import NodeId

_KIND: Final = TargetKind.NODE
Signatures = dict[UUID, tuple[Signature, ...]]


@dataclass(frozen=True, slots=True)
class NodeSignatures:
    """Reads the signatures of nodes. Nodes of corpora that other tenants share get none."""

    reads: CorpusReads
    tr: Reader
    granted: InTenant

    def whether_any(self, *corpora: CorpusKeys) -> list[RangeRead]:
        """The reads that tell whether any node was signed, or came with a signature, to be read ahead."""
        own = signatures.whether_signed(self.reads.unit.keys, self.granted.tenant, _KIND)
        return [own, *(signatures.whether_foreign(keys) for keys in corpora)]

    def of(self, view: CorpusAtRevision) -> Callable[[Sequence[NodeId]], Sequence[RangeRead]]:
        """Tells a `NodeReader` what to read beside the nodes of a corpus."""
        return lambda nodes: self._reads_of(view, nodes)

    def _reads_of(self, view: CorpusAtRevision, nodes: Sequence[NodeId]) -> list[RangeRead]:
        """What `added_to` will read for these nodes. Nothing if no node was ever signed."""
        if self.granted.is_shared(view.corpus):
            return []
        keys, tenant = self.reads.unit.keys, self.granted.tenant
        ranges = []
        if signatures.any_signed(self.tr, keys, tenant, _KIND):
            ranges += [keys.signed(tenant, _KIND, node) for node in nodes]
        if signatures.any_foreign(self.tr, view.keys):
            ranges += [view.keys.foreign_signatures(_KIND, node) for node in nodes]
        return [RangeRead(*bounds) for bounds in ranges]

    def added_to(self, nodes: Sequence[Node], *views: CorpusAtRevision) -> list[Node]:
        """The nodes with the signatures of their versions.

        Raises `BadInput` if the signatures do not fit into one answer.
        """
        own = [view for view in views if not self.granted.is_shared(view.corpus)]
        found, foreign = self._own_signatures(nodes, own), _foreign_signatures(nodes, own)
        if not found and not foreign:
            return list(nodes)
        shown = [signature for signed in (*found.values(), *foreign.values()) for signature in signed]
        if sum(2 * len(signature.manifestation) for signature in shown) > self.reads.unit.page_bytes_max:
            message = "these nodes have more signatures than fit into one answer; lower page_size"
            raise BadInput(Reason.TOO_LARGE, message, field="page_size")
        return [
            replace(node, signatures=found.get(node.id, ()), foreign_signatures=foreign.get(node.id, ()))
            for node in nodes
        ]

    def _own_signatures(self, nodes: Sequence[Node], own: Sequence[CorpusAtRevision]) -> Signatures:
        corpora = {view.corpus.id for view in own}
        versions = [(node.id, node.version) for node in nodes if node.corpus in corpora]
        found = signatures.signatures_of_many(self.tr, self.reads.unit.keys, self.granted.tenant, _KIND, versions)
        return {
            node: tuple(signatures.with_salt(self.reads.keyring, signature) for signature in signed)
            for node, signed in found.items()
        }


def _foreign_signatures(nodes: Sequence[Node], own: Sequence[CorpusAtRevision]) -> Signatures:
    """The signatures that came with cores."""
    found: Signatures = {}
    for view in own:
        versions = [(node.id, node.version) for node in nodes if node.corpus == view.corpus.id]
        if signatures.any_foreign(view.tr, view.keys):
            found |= signatures.foreign_signatures_of_many(
                view.tr, view.keys, view.sealed, view.revision, _KIND, versions
            )
    return found
