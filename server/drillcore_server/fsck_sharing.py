"""Checks that what tenants find shared with them is what the corpora say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from drillcore_fdb.engine import Engine
from drillcore_server.domain.corpora import Corpus
from drillcore_server.store import sharing
from drillcore_server.store.keyspace import Keyspace


def sharing_problems(engine: Engine, keys: Keyspace, corpora: Iterable[Corpus]) -> Iterator[str]:
    """`corpora` are all that are shared, of all tenants."""
    stored = engine.run(lambda tr: list(tr.snapshot.range(*keys.all_shared_corpora())))
    entries = {(*keys.parse_shared_corpus(key), UUID(bytes=owner)) for key, owner in stored}
    wanted = {
        (reader, corpus.id, corpus.tenant_id)
        for corpus in corpora
        if corpus.sharing is not None
        for reader in sharing.readers(corpus.sharing)
    }
    for reader, corpus, owner in sorted(entries - wanted):
        yield f"corpus {corpus} of tenant {owner} is found by {reader}, with whom it is not shared"
    for reader, corpus, owner in sorted(wanted - entries):
        yield f"corpus {corpus} of tenant {owner} is shared with {reader}, which does not find it"
