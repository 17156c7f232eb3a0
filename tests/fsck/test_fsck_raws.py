"""fsck finds raw text that is missing, belongs to no chunk, or is not what its chunk quotes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_server.hierarchy.model import Raw, RawPage
from drillcore_server.hierarchy.packed import encode_raws
from drillcore_server.hierarchy.store import HierarchyReader, raw_key
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import DocumentId, Revision, SourceId, Span, new_uuid
from tests.support.stores.archive import Archive, opened_archive, text_of

HEAD = Revision(1)
SOURCE_ID = SourceId("a")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add({SOURCE_ID: text_of("fishing", 1)})
        assert archive.fsck().problems == ()
        yield archive


def rewrite(archive: Archive, tr: Transaction, key: bytes, page: RawPage) -> None:
    (number,) = archive.keyring.numbers(archive.corpus.number, [SOURCE_ID])
    archive.sealed.put(tr, key, HEAD, number, encode_raws(page))


def lose(_archive: Archive, tr: Transaction, key: bytes, _page: RawPage) -> None:
    tr.clear_range(key, versioned.behind(key))


def shorten(archive: Archive, tr: Transaction, key: bytes, page: RawPage) -> None:
    shorter = [Raw(raw.document, raw.span, raw.content[:-1]) for raw in page.raws]
    rewrite(archive, tr, key, RawPage(tuple(shorter)))


def leave_one_out(archive: Archive, tr: Transaction, key: bytes, page: RawPage) -> None:
    rewrite(archive, tr, key, RawPage(page.raws[1:]))


def add_one(archive: Archive, tr: Transaction, _key: bytes, _page: RawPage) -> None:
    document = DocumentId(new_uuid())
    text = RawPage((Raw(document, Span(0, 5), "Lost."),))
    rewrite(archive, tr, archive.keys.raw(document, 0, 0), text)


def damage(_archive: Archive, tr: Transaction, key: bytes, _page: RawPage) -> None:
    ((place, value),) = tr.range(key, versioned.behind(key))
    tr.set(place, value[:-1] + bytes([value[-1] ^ 1]))


DAMAGES: dict[str, tuple[Callable[[Archive, Transaction, bytes, RawPage], None], str]] = {
    "a text that is missing": (lose, "is missing"),
    "a text that is too short": (shorten, "do not make up its text"),
    "a raw without text": (leave_one_out, "raw cannot be read"),
    "a text without a chunk": (add_one, "belongs to no chunk"),
    "a text that was changed": (damage, "is not what was written there"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_raw_text_that_disagrees_with_its_chunk_is_found(archive: Archive, what: str) -> None:
    make, said = DAMAGES[what]

    def work(tr: Transaction) -> None:
        hierarchy = HierarchyReader(CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, HEAD))
        document = next(hierarchy.documents())
        found = hierarchy.chunk_with_raws(document.chunks[0])
        assert found is not None
        make(archive, tr, raw_key(archive.keys, found.chunk), found.page)

    archive.engine.run(work)
    assert any(said in problem for problem in archive.fsck().problems)
