"""Every key of the store, built and parsed here and nowhere else. `fdb/README.md` has the same as pages to read.

A record's key is never another record's key extended by a positive integer: those are the parts of large values.
"""

from __future__ import annotations

import enum
from datetime import datetime

from drillcore_fdb.tuples import KeyRange, Subspace
from drillcore_server.domain.ids import CorpusId, PrincipalId, RequestId, TenantId


class Space(enum.IntEnum):
    """The first element of every key. Numbers are never used again; 0 is the store's header."""

    TENANTS = 1
    TENANT_NAMES = 2
    CORPORA = 3
    CORPUS_NAMES = 4
    REQUESTS = 5
    REQUEST_TIMES = 6


class Keyspace:
    def __init__(self, root: Subspace) -> None:
        self._spaces = {space: root[int(space)] for space in Space}

    def tenant(self, tenant: TenantId) -> bytes:
        return self._spaces[Space.TENANTS].pack((tenant,))

    def tenants(self, after: TenantId | None = None) -> KeyRange:
        whole = self._spaces[Space.TENANTS].range()
        return whole if after is None else KeyRange(_behind(self.tenant(after)), whole.end)

    def tenant_name(self, name: str) -> bytes:
        return self._spaces[Space.TENANT_NAMES].pack((name,))

    def corpus(self, tenant: TenantId, corpus: CorpusId) -> bytes:
        return self._spaces[Space.CORPORA].pack((tenant, corpus))

    def corpora(self, tenant: TenantId, after: CorpusId | None = None) -> KeyRange:
        whole = self._spaces[Space.CORPORA].range((tenant,))
        return whole if after is None else KeyRange(_behind(self.corpus(tenant, after)), whole.end)

    def corpus_name(self, tenant: TenantId, name: str) -> bytes:
        return self._spaces[Space.CORPUS_NAMES].pack((tenant, name))

    def corpus_names(self, tenant: TenantId) -> KeyRange:
        return self._spaces[Space.CORPUS_NAMES].range((tenant,))

    def request(self, principal: PrincipalId, request: RequestId) -> bytes:
        return self._spaces[Space.REQUESTS].pack((principal, request))

    def request_time(self, at: datetime, principal: PrincipalId, request: RequestId) -> bytes:
        return self._spaces[Space.REQUEST_TIMES].pack((int(at.timestamp()), principal, request))

    def request_times_before(self, at: datetime) -> KeyRange:
        times = self._spaces[Space.REQUEST_TIMES]
        return KeyRange(times.range().begin, times.pack((int(at.timestamp()),)))

    def parse_request_time(self, key: bytes) -> tuple[PrincipalId, RequestId]:
        _, principal, request = self._spaces[Space.REQUEST_TIMES].unpack(key)
        return PrincipalId(principal), RequestId(request)


def _behind(key: bytes) -> bytes:
    """The first key that is neither `key` nor one of its parts."""
    return key + b"\xff"
