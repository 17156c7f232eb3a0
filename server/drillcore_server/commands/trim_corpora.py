"""Housekeeping: trims every corpus that has something to trim and is not on legal hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.auth import access
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.trim_corpus import TRIMMED, Trimmed, Trimmer, leave_trail
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import time_text
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Refused
from drillcore_server.domain.ids import CorpusId, RequestId, TenantId
from drillcore_server.domain.regions import ANYWHERE, Residency
from drillcore_server.store.corpora import CORPORA
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.named import Named, NamedRecords
from drillcore_server.store.tenants import TENANTS

R = TypeVar("R", bound=Named)
_BATCH: Final = 100
"""Records listed in one transaction."""
_RECORD_TIMEOUT_S: Final = 30.0


def trim_corpora(
    engine: Engine, keys: Keyspace, now: datetime, stopping: Callable[[], bool], residency: Residency = ANYWHERE
) -> Iterator[tuple[Corpus, Trimmed | EngineError]]:
    """Trims corpus after corpus of every tenant, until `stopping` says so; each with what was done, or why it failed.

    Only those that `residency` allows: another server keeps house in other regions.

    A corpus that cannot be trimmed does not keep the others from it. Raises `EngineError` if none can be listed.
    """
    trimmer = Trimmer(engine, keys)
    for corpus in each_corpus(engine, keys, residency):
        if stopping():
            return
        try:
            yield corpus, trimmer.trim(corpus.tenant_id, corpus.id, now, stopping)
        except Refused:  # on hold, or deleted meanwhile
            continue
        except EngineError as error:
            yield corpus, error


def record_trim(unit: Unit, corpus: Corpus, done: Trimmed, now: datetime) -> None:
    """Leaves the audit record of what the server trimmed by itself. Raises `Refused` if it cannot."""
    request = RequestId(f"housekeeping of {corpus.id} at {time_text(now)}")
    call = Call("Housekeeping", request, SERVER, now, _RECORD_TIMEOUT_S, b"")
    allowed = access.as_server(corpus.tenant_id)
    unit.write(call, allowed, TRIMMED, lambda _tr, _granted, trail: leave_trail(trail, corpus.id, done))


def each_corpus(engine: Engine, keys: Keyspace, residency: Residency = ANYWHERE) -> Iterator[Corpus]:
    """Every corpus of every tenant where the server may be at work, but for what is deleted.

    Raises `EngineError` if they cannot be listed.
    """
    for tenant in _each(engine, TENANTS, lambda after: keys.tenants(None if after is None else TenantId(after))):
        found = _each(
            engine,
            CORPORA,
            lambda after, tenant=tenant.id: keys.corpora(tenant, None if after is None else CorpusId(after)),  # type: ignore[misc]
        )
        yield from (corpus for corpus in found if residency.allows(corpus.region))


def _each(engine: Engine, kind: NamedRecords[R], behind: Callable[[UUID | None], KeyRange]) -> Iterator[R]:
    """Every record that is not deleted, in the order of ids. `behind` gives the keys after an id."""
    after: UUID | None = None
    while True:
        keys = behind(after)
        batch = engine.run(lambda tr: [one for one, _ in islice(kind.scan(tr.snapshot, keys), _BATCH)])  # noqa: B023 - run at once
        yield from batch
        if len(batch) < _BATCH:
            return
        after = batch[-1].id
