"""Reads the records that nearly every call needs in one round trip, at the beginning of its transaction.

What a transaction has read before costs it no further round trip. So the access rules, the journal and the capabilities
read their records as if nothing had happened before, one by one, and find them here already. A record that is not
foreseen costs a round trip of its own, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import RangeRead, Reader
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import CorpusId, CorpusNumber, NodeId, RequestId, TenantId
from drillcore_server.storage.keyspace import Keyspace

_CORPORA_MAX: Final = 10_000
"""How many corpora are remembered. Beyond that, all are forgotten."""


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a request names. Nothing of it is checked yet: it serves to read ahead, and for nothing else."""

    tenant: TenantId | None = None
    corpora: tuple[CorpusId, ...] = ()
    nodes: tuple[NodeId, ...] = ()


NO_SUBJECTS: Final = Subjects()


class ReadAhead:
    """Foresees the keys that a call will read. Remembers the numbers of corpora, which never change."""

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys
        self._numbers: dict[tuple[TenantId, CorpusId], CorpusNumber] = {}
        self._corpora: dict[CorpusNumber, tuple[TenantId, CorpusId]] = {}

    def remember(self, corpus: Corpus) -> None:
        if corpus.number not in self._corpora:
            if len(self._corpora) >= _CORPORA_MAX:
                self._numbers, self._corpora = {}, {}
            self._numbers[corpus.tenant_id, corpus.id] = corpus.number
            self._corpora[corpus.number] = corpus.tenant_id, corpus.id

    def read(
        self,
        tr: Reader,
        principal: Principal,
        request: RequestId,
        subjects: Subjects,
        further: Sequence[bytes] = (),
        ranges: Sequence[RangeRead] = (),
        *,
        writing: bool = False,
    ) -> None:
        """Reads what a call of this caller about these subjects will need, and further keys and ranges."""
        keys = self._keys
        expected = [keys.erasure_notes.count, keys.audit_state(), keys.audit_request(principal.id, request), *further]
        if writing:
            expected.append(keys.request(principal.id, request))
        if principal.session is not None:
            expected.append(keys.session(principal.session))
        if principal.account is not None:
            expected.append(keys.account(principal.account))
        tenant = principal.tenant or subjects.tenant
        if tenant is not None:
            expected.extend(self._in_tenant(tenant, subjects, writing=writing))
        tr.read_ahead(expected, ranges)

    def read_corpora(self, tr: Reader, corpora: Iterable[Corpus]) -> None:
        """Reads what is needed of corpora that a listing gave."""
        keys = self._keys
        tr.get_many(
            [
                key
                for corpus in corpora
                for key in (keys.corpus(corpus.tenant_id, corpus.id), *self._corpus(corpus.number))
            ]
        )

    def read_numbered(self, tr: Reader, number: CorpusNumber, ranges: Sequence[RangeRead] = ()) -> None:
        """Reads what is needed of a corpus whose number a locator gave, and further ranges."""
        expected = [self._keys.corpus_number(number), *self._corpus(number)]
        known = self._corpora.get(number)
        if known is not None:
            expected.append(self._keys.corpus(*known))
        tr.read_ahead(expected, ranges)

    def _in_tenant(self, tenant: TenantId, subjects: Subjects, *, writing: bool) -> Iterator[bytes]:
        yield self._keys.tenant(tenant)
        for corpus in subjects.corpora:
            yield self._keys.corpus(tenant, corpus)
            number = self._numbers.get((tenant, corpus))
            if number is not None:
                yield from self._corpus(number, writing=writing)
        for node in subjects.nodes:
            yield self._keys.locator(tenant, node)

    def _corpus(self, number: CorpusNumber, *, writing: bool = False) -> Iterator[bytes]:
        keys = self._keys.of_corpus(number)
        yield keys.head()
        yield keys.floor()
        if writing:
            yield keys.claim()
