"""fsck finds quads that do not agree with their indexes or with the source registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_formats.quads import Iri
from drillcore_server.graphs.quad_model import Quad, literal
from drillcore_server.graphs.quad_store import QuadWrites, encode_record, index_keys
from drillcore_server.hierarchy.source_model import source_without_document
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import Revision, SourceId
from tests.support.stores.archive import Archive, opened_archive, text_of

HEAD = Revision(1)
SOURCE = SourceId("a")
QUADS = [Quad(Iri("urn:s"), Iri("urn:p"), literal(f"text {number}"), "urn:g") for number in range(3)]


def writes(archive: Archive) -> QuadWrites:
    return QuadWrites(archive.keyspace, archive.corpus.number, archive.keyring)


def put(archive: Archive, tr: Transaction, quad: Quad, source: SourceId = SOURCE) -> None:
    """Writes a quad into the head without a manifest, since other tests check manifests."""
    for write in writes(archive).add(quad, source):
        write.apply(tr, HEAD, archive.sealed)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add({SOURCE: text_of("fishing", 1)})
        archive.engine.run(lambda tr: [put(archive, tr, quad) for quad in QUADS])
        assert quad_problems(archive) == []
        yield archive


def quad_problems(archive: Archive) -> list[str]:
    return [problem for problem in archive.fsck().problems if "quad" in problem]


def place(archive: Archive, quad: Quad = QUADS[0]) -> bytes:
    return writes(archive).hashes.place(quad, SOURCE)


def remove_an_entry(archive: Archive, tr: Transaction) -> None:
    versioned.remove(tr, index_keys(archive.keys, place(archive))[3], HEAD)


def remove_a_record(archive: Archive, tr: Transaction) -> None:
    versioned.remove(tr, archive.keys.quad(place(archive)), HEAD)


def add_an_entry(archive: Archive, tr: Transaction) -> None:
    versioned.put(tr, archive.keys.quad_entry(2, bytes(64)), HEAD, b"")


def keep_as_another(archive: Archive, tr: Transaction) -> None:
    (number,) = archive.keyring.numbers(archive.corpus.number, [SOURCE])
    record = encode_record(QUADS[1], SOURCE)
    archive.sealed.put(tr, archive.keys.quad(place(archive)), HEAD, number, record)


def put_of_nobody(archive: Archive, tr: Transaction) -> None:
    put(archive, tr, QUADS[0], SourceId("nobody"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove_an_entry, "the quads' index lacks"),
        (remove_a_record, "which leads nowhere"),
        (add_an_entry, "which leads nowhere"),
        (keep_as_another, "a quad is stored under the key of another quad"),
        (put_of_nobody, "1 sources of quads are not registered"),
    ],
)
def test_a_quad_that_disagrees_is_found(
    archive: Archive, damage: Callable[[Archive, Transaction], None], said: str
) -> None:
    archive.engine.run(lambda tr: damage(archive, tr))
    assert any(said in problem for problem in quad_problems(archive))


def test_a_registered_source_of_quads_alone_is_fine(archive: Archive) -> None:
    source = SourceId("memo")
    make = HierarchyWrites(archive.keyspace, archive.corpus.tenant_id, archive.corpus.number, archive.keyring)

    def register(tr: Transaction) -> None:
        put(archive, tr, QUADS[0], source)
        for write in make.put_source(source_without_document(source, archive.corpus.created_at)):
            write.apply(tr, HEAD, archive.sealed)

    archive.engine.run(register)
    assert quad_problems(archive) == []
