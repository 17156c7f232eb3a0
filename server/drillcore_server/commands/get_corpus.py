"""GetCorpus."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import SeenCorpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import checked_name
from drillcore_server.store import corpora
from drillcore_server.store.corpora import CORPORA
from drillcore_server.store.keyspace import Keyspace


def get_corpus(unit: Unit, call: Call, *, tenant: TenantId | None, key: CorpusId | str) -> SeenCorpus:
    """The corpus with this id, or with this name."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> SeenCorpus:
        wanted = _named(tr, unit.keys, granted, checked_name(key)) if isinstance(key, str) else key
        trail.touch_corpus(wanted)
        found = granted.corpus(tr, unit.keys, wanted)
        return SeenCorpus(found, granted.is_shared(found))

    return unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.MANAGE_CORPORA), work)


def _named(tr: Reader, keys: Keyspace, granted: InTenant, name: str) -> CorpusId:
    """The tenant's own corpus of this name, else the first that is shared with it."""
    own = corpora.find_by_name(tr, keys, granted.tenant, name)
    if own is not None and granted.reaches(own):
        return own
    shared = (corpus for corpus, _ in granted.corpora(tr, keys) if granted.is_shared(corpus))
    found = next((corpus.id for corpus in shared if corpus.name == name), None)
    if found is None:
        raise CORPORA.unnamed(name)
    return found
