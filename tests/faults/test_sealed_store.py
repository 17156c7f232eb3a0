"""Content is never stored in the clear: the bytes of the store's file, including free pages, do not contain it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_fdb.embedded import Durability
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import revise
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage import versioned
from drillcore_server.storage.keyring import KeyLostError
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.consistent import check
from tests.support.stores.engines import embedded_only

BODY, TITLE, HEADING = "Zanzibarquark", "Ytterbiumtitel", "Xylophonheading"
PERSON, EMAIL, SOURCE, METADATA = "Wolframina", "vexing@umbrellacorp.example", "thimble-source-4711", "stiltskin"
MARKERS = (BODY, TITLE, HEADING, PERSON, EMAIL, SOURCE, METADATA)
DOCUMENT = f"""# {TITLE}

## {HEADING}

The {BODY} must be kept for 12 years. Dr. {PERSON} Miller of {BODY} Holdings Ltd can be asked at {EMAIL}.

{text_of("consent", 3)}
"""


@pytest.fixture(scope="module", params=["small", "large"])
def data_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose documents were added, updated and removed, by either path, and which was then closed."""
    path: Path = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch, opened_archive(path, Durability.FULL) as archive:
        if request.param == "large":
            patch.setattr(revise, "SMALL_BYTES_MAX", 0)
            patch.setattr(revise, "BATCH_BYTES_MAX", 5_000)
        archive.add({SOURCE: DOCUMENT, "other": text_of("banking", 1)})
        archive.add({SOURCE: DOCUMENT + f"\n\nAnd the {BODY} again.\n"})
        archive.remove([archive.documents()[SOURCE]])
        archive.add({SOURCE: DOCUMENT}, metadata={METADATA: METADATA})
        check(archive)
    return path


@embedded_only
@pytest.mark.parametrize("marker", MARKERS)
def test_the_stores_file_has_no_content_and_no_source_name(data_dir: Path, marker: str) -> None:
    stored = (data_dir / "kv" / "data.mdb").read_bytes()
    assert len(stored) > 50_000
    for form in (marker, marker.lower(), marker.casefold()):
        assert form.encode() not in stored
        assert form.encode("utf-16-le") not in stored


def test_a_reader_with_the_keys_finds_the_markers(data_dir: Path) -> None:
    """Shows that the test above searches for something that was stored."""
    with opened_archive(data_dir) as archive:
        hierarchy = check(archive)
        everything = b"".join(v for records in hierarchy.records.values() for v in records.values())
        assert all(marker.encode() in everything for marker in MARKERS)


def test_the_other_files_of_the_store_have_no_content_either(data_dir: Path) -> None:
    for file in data_dir.rglob("*"):
        if file.is_file():
            stored = file.read_bytes()
            assert not [marker for marker in MARKERS if marker.encode() in stored], file


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add({"one": text_of("school", 1), "two": text_of("fishing", 1)})
        yield archive


def read_chunks(archive: Archive) -> int:
    def work(tr: versioned.Transaction) -> int:
        view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, archive.head())
        chunks = [chunk for document in HierarchyReader(view).documents() for chunk in document.chunks]
        return sum(HierarchyReader(view).chunk(chunk) is not None for chunk in chunks)

    return archive.engine.run(work)


def test_a_chunk_copied_over_another_is_refused(archive: Archive) -> None:
    assert read_chunks(archive) > 1
    prefix = archive.keys.chunks().begin
    target, two = [key for key in archive.dump() if key.startswith(prefix)][:2]
    archive.engine.run(lambda tr: tr.set(target, tr.get(two) or b""))
    with pytest.raises(StoreCorruptError):
        read_chunks(archive)


def test_without_its_keyring_a_store_names_the_lost_key(archive: Archive, tmp_path: Path) -> None:
    """The same happens after a restore of the store alone: no backup of the store has the keyring."""
    with opened_archive(tmp_path / "another") as stranger:
        bare = archive.on(archive.engine)
        bare.keyring = stranger.keyring
        bare.sealed._keyring = stranger.keyring
        with pytest.raises(KeyLostError, match=r"the key \d+ is not in the keyring"):
            read_chunks(bare)
