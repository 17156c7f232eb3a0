"""GetCorpus."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import checked_name
from drillcore_server.store import corpora
from drillcore_server.store.corpora import CORPORA


def get_corpus(unit: Unit, call: Call, *, tenant: TenantId | None, key: CorpusId | str) -> Corpus:
    """The corpus with this id, or with this name."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Corpus:
        if isinstance(key, str):
            found = corpora.get_by_name(tr, unit.keys, granted.tenant, checked_name(key))
            if not granted.reaches(found.id):
                raise CORPORA.unnamed(key)
        else:
            trail.touch_corpus(key)
            found = granted.corpus(tr, unit.keys, key)
        trail.touch_corpus(found.id)
        return found

    return unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.MANAGE_CORPORA), work)
