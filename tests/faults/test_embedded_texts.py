"""A text that a corpus has a vector of is not embedded again, whoever sends it, as long as its source is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drillcore_server.commands.add_documents import DocumentBatch, Upload
from drillcore_server.ingest import builtin
from drillcore_server.ingest.embedding.cache import CachingEmbedder, MemoryCache
from drillcore_server.store.hierarchy import CorpusView
from tests.faults.archive import Archive, opened_archive, text_of
from tests.faults.consistent import check

ONE, OTHER = text_of("banking", 1, 4), text_of("fishing", 1, 3)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        yield archive


def counting(archive: Archive) -> tuple[Archive, CachingEmbedder]:
    """The corpus as a server just started has it, and what counts the texts it embeds: its memory keeps none."""
    embedder = CachingEmbedder(builtin.embedder(), MemoryCache(0))
    restarted = archive.on(archive.engine)
    preparer = replace(restarted.ingester.preparer, embedder=embedder)
    restarted.ingester = replace(restarted.ingester, preparer=preparer)
    return restarted, embedder


def vectors(archive: Archive, source: str) -> list[bytes | None]:
    view = lambda tr: CorpusView(tr, archive.keys, archive.sealed, archive.head())  # noqa: E731
    document = archive.documents()[source]
    return archive.engine.run(lambda tr: [view(tr).vector(one) for one in view(tr).document(document).chunks])


def test_a_text_is_embedded_once_over_sources_calls_and_restarts(archive: Archive) -> None:
    first, embedder = counting(archive)
    first.add({"a": ONE})
    chunks = embedder.counts.misses
    assert chunks >= 3
    second, embedder = counting(archive)
    second.add({"b": ONE, "c": OTHER, "d": OTHER})
    assert 0 < embedder.counts.misses <= 2 * 3, "of the known text none"
    assert vectors(archive, "a") == vectors(archive, "b")
    check(archive)


def test_of_an_updated_document_only_the_changed_chunks_are_embedded(archive: Archive) -> None:
    archive.add({"a": ONE})
    updated, embedder = counting(archive)
    updated.add({"a": ONE + "\n\nOne more rule, which nobody has heard of before, ends the document.\n"})
    assert embedder.counts.misses == 1
    check(archive)


def test_what_a_corpus_no_longer_has_is_embedded_again(archive: Archive) -> None:
    archive.add({"a": ONE})
    archive.remove([archive.documents()["a"]])
    again, embedder = counting(archive)
    again.add({"a": ONE})
    assert embedder.counts.misses >= 3
    check(archive)


def test_a_vector_whose_key_is_destroyed_is_made_anew(archive: Archive) -> None:
    archive.add({"a": ONE})
    (number,) = archive.keyring.numbers(archive.corpus.number, ["a"])
    archive.keyring._engine.run(lambda tr: tr.clear(archive.keyring._root.pack((1, number))))
    archive.keyring._keys.pop(number)
    again, embedder = counting(archive)
    with DocumentBatch(again.ingester, again.call("AddDocuments"), again.target, lambda _: None) as batch:
        batch.take(Upload("b.md", "", "b", {}, ONE.encode()))
        batch._line.finish()
    assert embedder.counts.misses >= 3
