"""A text that a corpus already has a vector for is not embedded again, whoever sends it, while its source exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drillcore_server.documents.add import DocumentBatch, Upload
from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import SourceId
from drillcore_server.vectors.embedding.embedders import Vectors
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.consistent import check

ONE, OTHER = text_of("banking", 1, 4), text_of("fishing", 1, 3)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        yield archive


class Counting:
    """The built-in model, which notes the texts it embeds. A fact is one line; a chunk is embedded with its titles."""

    def __init__(self) -> None:
        self._embedder = builtin_embedder()
        self.model, self.dimensions = self._embedder.model, self._embedder.dimensions
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return self._embedder.embed(texts)

    @property
    def chunks(self) -> list[str]:
        return [text for text in self.texts if "\n" in text]

    @property
    def facts(self) -> list[str]:
        return [text for text in self.texts if "\n" not in text]


def counting(archive: Archive) -> tuple[Archive, Counting]:
    """The corpus as a freshly started server has it, with nothing in memory, and the model that notes its texts."""
    embedder = Counting()
    restarted = archive.on(archive.engine)
    preparer = replace(restarted.planner.preparer, embedder=embedder)
    restarted.planner = replace(restarted.planner, preparer=preparer)
    return restarted, embedder


def vectors(archive: Archive, source: str) -> list[bytes | None]:
    head, document = archive.planner.reviser.batched(archive.corpus, archive.head()), archive.documents()[source]

    def read(view: CorpusAtRevision) -> list[bytes | None]:
        hierarchy = HierarchyReader(view)
        found = hierarchy.document(document)
        assert found is not None
        return [hierarchy.vector(1, chunk) for chunk in found.chunks]

    return head.read(read)


def test_a_text_is_embedded_once_across_sources_calls_and_restarts(archive: Archive) -> None:
    first, embedder = counting(archive)
    first.add({"a": ONE})
    assert len(embedder.chunks) >= 3
    second, embedder = counting(archive)
    second.add({"b": ONE, "c": OTHER, "d": OTHER})
    assert 0 < len(embedder.chunks) <= 2 * 3, "the known text is not embedded again"
    assert vectors(archive, "a") == vectors(archive, "b")
    check(archive)


def test_only_the_changed_chunks_of_an_updated_document_are_embedded(archive: Archive) -> None:
    archive.add({"a": ONE})
    updated, embedder = counting(archive)
    more = "One more rule, which nobody has heard of before, ends the document."
    updated.add({"a": f"{ONE}\n\n{more}\n"})
    assert len(embedder.chunks) == 1
    assert embedder.facts == [more], "facts that the source had before are not embedded again"
    check(archive)


def test_a_text_that_a_corpus_no_longer_has_is_embedded_again(archive: Archive) -> None:
    archive.add({"a": ONE})
    archive.remove([archive.documents()["a"]])
    again, embedder = counting(archive)
    again.add({"a": ONE})
    assert len(embedder.chunks) >= 3
    check(archive)


def test_a_vector_whose_key_is_destroyed_is_made_again(archive: Archive) -> None:
    archive.add({"a": ONE})
    (number,) = archive.keyring.numbers(archive.corpus.number, [SourceId("a")])
    archive.keyring.destroy(archive.corpus.number, {number: archive.keyring.hashed(SourceId("a"))}, datetime.now(UTC))
    again, embedder = counting(archive)
    with DocumentBatch(again.planner, again.call("AddDocuments"), again.target, lambda _: None) as batch:
        batch.take(Upload("b.md", "", "b", {}, ONE.encode()))
        batch._queue.finish()
    assert len(embedder.chunks) >= 3
