"""GetCorpus."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import checked_name
from drillcore_server.store import corpora


def get_corpus(unit: Unit, call: Call, *, tenant: TenantId | None, key: CorpusId | str) -> Corpus:
    """The corpus with this id, or with this name."""

    def work(tr: Transaction, granted: TenantId) -> Corpus:
        if isinstance(key, str):
            return corpora.get_by_name(tr, unit.keys, granted, checked_name(key))
        return corpora.get(tr, unit.keys, granted, key)

    return unit.read(call, access.in_tenant(tenant), work)
