"""MigrateEmbeddings; and what the server goes on with by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drillcore_fdb.engine import Engine, Reader
from drillcore_server.commands.migrating import Migrator, Progress
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import Model
from drillcore_server.domain.errors import Missing, Refused
from drillcore_server.store import corpora, embeddings
from drillcore_server.store.keyspace import Keyspace


def migrate_embeddings(migrator: Migrator, call: Call, target: Target, report: Callable[[Progress], None]) -> Progress:
    """Changes a corpus to the server's own model; returns when that is done. `report` hears how far it is.

    The call's record is that of its beginning. What follows are the server's own revisions, which go on by themselves
    if this ends before them.
    """
    corpus = migrator.begin(call, target)
    return migrator.run(corpus, report)


def resume_migrations(
    engine: Engine, keys: Keyspace, migrator: Migrator, own: Model
) -> Iterator[tuple[Corpus, Progress | Refused]]:
    """Goes on with every migration to the server's own model that is not finished; each with how far it got, or why
    it did not."""
    for corpus in engine.run(lambda tr: list(_unfinished(tr, keys, own))):
        try:
            yield corpus, migrator.run(corpus, lambda _: None)
        except Refused as refused:
            yield corpus, refused


def _unfinished(tr: Reader, keys: Keyspace, own: Model) -> Iterator[Corpus]:
    for one in embeddings.migrations(tr, keys):
        if one.finished_at is None and one.model == own:
            try:
                yield corpora.get(tr, keys, one.tenant, one.corpus)
            except Missing:
                continue
