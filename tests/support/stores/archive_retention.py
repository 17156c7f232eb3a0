"""An archive's retention policy and legal hold, and trims of it at a time of the test's choosing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from drillcore_fdb.engine import Engine
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_model import Corpus, HoldChange, RetentionChange, TrimState
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.spaces import Space
from drillcore_server.tenancy.corpora import update_corpus
from drillcore_server.tenancy.trim import Trimmed, Trimmer
from tests.support.stores.archive import Archive
from tests.support.stores.consistent import Hierarchy


def keep_days(archive: Archive, days: int | None) -> None:
    _update(archive, RetentionChange(days), None)


def hold(archive: Archive) -> None:
    _update(archive, None, HoldChange(True, "a case"))


def release(archive: Archive) -> None:
    _update(archive, None, HoldChange(False, "settled"))


def _update(archive: Archive, retention: RetentionChange | None, hold: HoldChange | None) -> Corpus:
    return update_corpus(
        archive.planner.reviser.unit,
        archive.call("UpdateCorpus"),
        tenant=archive.corpus.tenant_id,
        corpus_id=archive.corpus.id,
        name=None,
        description=None,
        set_metadata={},
        remove_metadata=(),
        retention=retention,
        hold=hold,
        expected_version=None,
    )


@dataclass(frozen=True)
class Pages:
    """Stops a trim after this many pages."""

    left: list[None]

    @classmethod
    def of(cls, count: int) -> Pages:
        return cls([None] * count)

    def __call__(self) -> bool:
        self.left.pop()
        return not self.left


def trim(
    archive: Archive, to: Revision, enough: Callable[[], bool] = lambda: False, engine: Engine | None = None
) -> Trimmed:
    """Trims to a revision under a policy of one day, as if a day after that revision became the head."""
    corpus = archive.corpus
    trimmer = Trimmer(engine or archive.engine, archive.keyspace)
    return trimmer.trim(corpus.tenant_id, corpus.id, day_after(archive, to), enough)


def day_after(archive: Archive, revision: Revision) -> datetime:
    record = archive.engine.run(lambda tr: revisions.get(tr, archive.keys, revision))
    assert record is not None
    return record.at + timedelta(days=1)


def readable(hierarchy: Hierarchy) -> dict[Space, Mapping[bytes, bytes]]:
    """The records that a reader sees."""
    return dict(hierarchy.records)


def state(archive: Archive) -> TrimState:
    return archive.engine.run(lambda tr: retention.state(tr, archive.keys))
