"""The items of a corpus as JSON objects in copies, and the signatures shown with them.

An object has every field of the record that a caller sees. Objects of nodes and facts are also what signatures cover:
see `hierarchy/signable.py` and `facts/signable.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Engine, Transaction
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.signable import Content, vector_content
from drillcore_server.kernel.corpus_model import Corpus, LegalHold
from drillcore_server.kernel.erasures import Erasure
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.trail import time_text
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.messages import SignatureContent, signature_content
from drillcore_server.signatures.model import Signature, TargetKind
from drillcore_server.storage.ids import FactId, NodeId, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.vectors.stored_vectors import unpacked

SIGNATURES: Final = "signatures"
"""The name of an item's signatures in its object."""
_TARGETS_AT_ONCE: Final = 1_000
"""Targets whose signatures are read in one transaction."""


class ContentSignatures:
    """Reads the signatures of nodes and facts for a copy."""

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
        """The signatures of these versions of facts, oldest first. Facts that nobody signed are left out."""
        return dict(self._found(TargetKind.FACT, tenant, versions))

    def _found(
        self, kind: TargetKind, tenant: TenantId, versions: Sequence[tuple[UUID, int]]
    ) -> Iterator[tuple[UUID, Sequence[SignatureContent]]]:
        for start in range(0, len(versions), _TARGETS_AT_ONCE):
            batch = versions[start : start + _TARGETS_AT_ONCE]
            found = self._engine.run(partial(self._read, kind=kind, tenant=tenant, versions=batch))
            for target, signed in found.items():
                salted = (signatures.with_salt(self._keyring, signature) for signature in signed)
                yield target, list(map(signature_content, salted))

    def _read(
        self, tr: Transaction, kind: TargetKind, tenant: TenantId, versions: Sequence[tuple[UUID, int]]
    ) -> dict[UUID, list[Signature]]:
        return signatures.signatures_of_many(tr.snapshot, self._keys, tenant, kind, versions)


def corpus_content(corpus: Corpus, erased: Sequence[Erasure] = ()) -> Content:
    """The corpus, with its erasures if there are any. They explain what is missing from the copy."""
    content = _corpus(corpus)
    return content | {"erasures": list(map(_erasure, erased))} if erased else content


def _corpus(corpus: Corpus) -> Content:
    return {
        "id": str(corpus.id),
        "tenant_id": str(corpus.tenant_id),
        "name": corpus.name,
        "description": corpus.description,
        "metadata": dict(corpus.metadata),
        "created_at": time_text(corpus.created_at),
        "created_by": corpus.created_by,
        "updated_at": time_text(corpus.updated_at),
        "version": corpus.version,
        "retention_days": corpus.retention_days,
        "legal_hold": None if corpus.legal_hold is None else _legal_hold(corpus.legal_hold),
    }


def document_content(document: Document) -> Content:
    return {
        "id": str(document.id),
        "source_id": document.source,
        "source_version": document.source_version,
        "title": document.title,
        "media_type": document.media_type,
        "content_hash": document.content_hash,
        "preprocessing": list(document.preprocessing),
        "metadata": dict(document.metadata),
        "chunks": len(document.chunks),
        "raws": document.raws,
        "characters": document.characters,
        "tokens": document.tokens,
        "created_at": time_text(document.created_at),
        "created_by": document.created_by,
    }


def revision_content(record: RevisionRecord) -> Content:
    return {
        "revision": record.revision,
        "at": time_text(record.at),
        "by": record.by,
        "request_id": record.request_id,
        "action": record.action,
        "documents_added": list(map(str, record.documents_added)),
        "documents_removed": list(map(str, record.documents_removed)),
        "sections": list(map(str, record.sections)),
        "facts_changed": record.facts,
        "communities": record.communities,
        "audit_id": str(record.audit_id),
    }


def embedding_content(model: str, stored: bytes | None) -> Content | None:
    """The object for a fact's stored vector; None if the fact has none."""
    return None if stored is None else vector_content(model, unpacked(stored).tolist())


def _erasure(erasure: Erasure) -> Content:
    return {
        "id": str(erasure.id),
        "erased_at": time_text(erasure.at),
        "erased_by": erasure.by,
        "revision": erasure.revision,
        "erased_keys": list(erasure.key_numbers),
        "audit_record_id": str(erasure.record),
    }


def _legal_hold(hold: LegalHold) -> Content:
    return {"on": hold.on, "reason": hold.reason, "by": hold.by, "at": time_text(hold.at)}
