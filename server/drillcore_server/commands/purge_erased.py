"""PurgeErased."""

from __future__ import annotations

import time
from dataclasses import replace

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.erasing import Eraser
from drillcore_server.commands.purging import PURGED, Purged
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.erasures import Purge
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.retention import check_not_on_hold


def purge_erased(eraser: Eraser, call: Call, target: Target) -> Purged:
    """Removes the bytes that erased sources left, for half of the time the caller allows.

    The same request again goes on with what it began. Raises `Refused`: CORPUS_ON_HOLD.
    """
    until = time.monotonic() + call.timeout_s / 2
    unit, purger = eraser.ingester.unit, eraser.purger

    def begin(tr: Reader, granted: InTenant) -> tuple[Corpus, Purged | None]:
        return _corpus(tr, granted), unit.known(tr, call, PURGED)

    def _corpus(tr: Reader, granted: InTenant) -> Corpus:
        corpus = granted.corpus(tr, unit.keys, target.corpus)
        granted.check_level(corpus.id, *Level)
        return corpus

    def record(tr: Transaction, granted: InTenant, trail: Trail) -> Purged:
        corpus = _corpus(tr, granted)
        check_not_on_hold(corpus.legal_hold)
        trail.touch_corpus(corpus.id)
        if purge is None:
            return Purged(0, 0, True)
        return purger.record(tr, trail, call, corpus, purge.number) if purge.is_listed else Purged(0, 0, False)

    def enough() -> bool:
        return time.monotonic() >= until

    corpus, done = unit.look(call, target.access, begin)
    purge: Purge | None = None
    if done is None:
        with refusing():
            purge = purger.list_all(corpus.tenant_id, corpus.id, enough)
        done = unit.write(call, target.access, PURGED, record)
    with refusing():
        finished = purger.remove_all(corpus.tenant_id, corpus.id, call.at, enough)
    return replace(done, finished=done.finished and finished)
