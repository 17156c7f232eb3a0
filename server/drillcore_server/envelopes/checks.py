"""Checks that facts lead to the envelopes that contain them, and to no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Reader
from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.envelopes.store import EnvelopeStore, fact_entries, issued_to
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import EnvelopeId, FactId, TenantId
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords

_BATCH: Final = 200
_TENANT_BYTES: Final = 16
_NO_KEY: Final = KeyNumber(0)
"""This check seals nothing, so it needs no key."""


class EnvelopeCheck:
    def __init__(self, engine: Engine, keys: Keyspace, sealed: SealedRecords) -> None:
        self._engine = engine
        self._keys = keys
        self._sealed = sealed

    def of_tenant(self, tenant: TenantId) -> Iterator[str]:
        """Reports envelopes of the tenant that one of their facts does not lead to."""
        begin, end = self._keys.envelopes(tenant)
        place: bytes | None = begin
        while place is not None:
            found, place = self._engine.run(
                lambda tr, p=place: self._some_envelopes(tr.snapshot, tenant, len(begin), KeyRange(p, end))  # type: ignore[misc]
            )
            yield from (f"tenant {tenant}: {problem}" for problem in found)

    def of_corpus(self, corpus: Corpus) -> Iterator[str]:
        """Reports facts that lead to an envelope that does not hold them, or was issued to somebody else."""
        begin, end = self._keys.of_corpus(corpus.number).all_fact_envelopes()
        place: bytes | None = begin
        while place is not None:
            found, place = self._engine.run(lambda tr, p=place: self._some_entries(tr.snapshot, KeyRange(p, end)))  # type: ignore[misc]
            yield from (f"corpus {corpus.id}: {problem}" for problem in found)

    def _some_envelopes(
        self, tr: Reader, tenant: TenantId, id_at: int, keys: KeyRange
    ) -> tuple[list[str], bytes | None]:
        """The problems of the first envelopes, and where to continue."""
        ids = [EnvelopeId(UUID(bytes=key[id_at:])) for key, _ in codec.scan(tr, *keys, limit=_BATCH)]
        problems = [problem for envelope in ids for problem in self._of_envelope(tr, tenant, envelope)]
        following = self._keys.envelope(tenant, ids[-1]) + b"\xff" if len(ids) == _BATCH else None
        return problems, following

    def _of_envelope(self, tr: Reader, tenant: TenantId, envelope: EnvelopeId) -> Iterator[str]:
        try:
            issued = self._store(tenant).find(tr, envelope)
        except EngineError as error:
            yield error.message
            return
        assert issued is not None
        expected = issued_to(tenant, issued.principal)
        missing = sum(tr.get(entry) != expected for entry in fact_entries(self._keys, issued))
        if missing:
            yield f"{missing} facts of envelope {envelope} do not lead to it"

    def _some_entries(self, tr: Reader, keys: KeyRange) -> tuple[list[str], bytes | None]:
        stored = list(tr.range(*keys, limit=_BATCH))
        problems = [problem for entry in stored for problem in self._of_entry(tr, *entry)]
        return problems, stored[-1][0] + b"\0" if len(stored) == _BATCH else None

    def _of_entry(self, tr: Reader, key: bytes, value: bytes) -> Iterator[str]:
        fact, envelope = FactId(UUID(bytes=key[-32:-16])), EnvelopeId(UUID(bytes=key[-16:]))
        if len(value) < _TENANT_BYTES or not self._is_held(tr, key, value, envelope):
            yield f"fact {fact} leads to envelope {envelope}, which does not hold it"

    def _is_held(self, tr: Reader, key: bytes, value: bytes, envelope: EnvelopeId) -> bool:
        tenant = TenantId(UUID(bytes=value[:_TENANT_BYTES]))
        try:
            issued = self._store(tenant).find(tr, envelope)
        except EngineError:
            return True  # `of_tenant` reports envelopes that cannot be read
        return (
            issued is not None
            and value == issued_to(tenant, issued.principal)
            and key in fact_entries(self._keys, issued)
        )

    def _store(self, tenant: TenantId) -> EnvelopeStore:
        return EnvelopeStore(self._keys, self._sealed, tenant, _NO_KEY)
