"""The checker finds every fault: a record too many, too few or changed, in any space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import prefix_end
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.spaces import BY_REVISION, Space
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.consistent import check

NOT_HERE = {
    Space.FACT_EXPIRIES,
    Space.COMMUNITIES,
    Space.QUADS,
    Space.QUAD_INDEX,
    Space.LIBRARY,
    Space.LIBRARY_BLOBS,
    Space.ENTITY_VECTORS,
    Space.TURNS,
    Space.EDGES,
    Space.GRAPH_INDEX,
    Space.FOREIGN_SIGNATURES,
}
"""Spaces that this corpus leaves empty: no fact expires, no communities were computed, and there are no quads or turns.

Damage in these is found by fsck: see test_fsck_quads, test_foreign_checks and test_turns."""
VERSIONED = [space for space in BY_REVISION if space not in NOT_HERE]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    path: Path = tmp_path_factory.mktemp("archive")
    with opened_archive(path) as archive:
        archive.add({"a": text_of("fishing", 1), "b": text_of("banking", 1)})
        archive.add({"a": text_of("fishing", 2), "c": text_of("school", 1)})
        archive.remove([archive.documents()["b"]])
        check(archive)
        yield archive


def refused(archive: Archive, changed: dict[bytes, bytes | None]) -> bool:
    """Whether the checker refuses the store with these keys changed. The old values are then put back."""
    before = archive.dump()
    _write(archive, changed)
    try:
        check(archive)
    except (AssertionError, EngineError, KeyError):
        return True
    finally:
        _write(archive, {key: before.get(key) for key in changed})
    return False


def _write(archive: Archive, changed: dict[bytes, bytes | None]) -> None:
    for key, value in changed.items():
        archive.engine.run(lambda tr, k=key, v=value: tr.clear(k) if v is None else tr.set(k, v))  # type: ignore[misc]


def visible(archive: Archive, space: Space) -> list[bytes]:
    prefix, head = archive.keys._prefixes[space], archive.head()
    entries = archive.engine.run(lambda tr: list(versioned.scan(tr, prefix, prefix_end(prefix), head)))
    return [entry.key + entry.revision.to_bytes(6, "big") + b"\0\0" for entry in entries]


@pytest.mark.parametrize("space", VERSIONED, ids=lambda space: space.name)
def test_a_record_that_is_missing_is_found(archive: Archive, space: Space) -> None:
    stored, everything = visible(archive, space), archive.dump()
    assert stored
    for key in stored:
        assert refused(archive, {stored_key: None for stored_key in everything if stored_key.startswith(key[:-8])})


@pytest.mark.parametrize("space", VERSIONED, ids=lambda space: space.name)
def test_a_record_that_should_be_gone_or_belongs_to_nothing_is_found(archive: Archive, space: Space) -> None:
    key = visible(archive, space)[0]
    value = archive.dump()[key]
    if space not in {Space.MASTERS, Space.EMBEDDINGS}:  # a corpus has only one record in each of these
        stranger = key[:-9] + bytes([key[-9] ^ 1]) + key[-8:]
        assert refused(archive, {stranger: value})
    beyond = key[:-8] + Revision(archive.head() + 1).to_bytes(6, "big") + b"\0\0"
    assert refused(archive, {beyond: value})
    assert refused(archive, {beyond: b""}), "a tombstone of a revision that is not published"


@pytest.mark.parametrize("space", [Space.LOCATORS, Space.REVISIONS, Space.REVISION_TIMES], ids=lambda space: space.name)
def test_a_lost_or_unknown_plain_record_is_found(archive: Archive, space: Space) -> None:
    prefix = archive.keyspace._spaces[space].prefix
    stored = {key: value for key, value in archive.dump().items() if key.startswith(prefix)}
    assert all(refused(archive, {key: None}) for key in stored)
    key, value = max(stored.items())
    assert refused(archive, {key[:-1] + bytes([key[-1] ^ 64]): value})


def test_the_remains_of_a_claim_are_found(archive: Archive) -> None:
    assert refused(archive, {archive.keys.claim(): b"claim"})
    assert refused(archive, {archive.keys.staged(Revision(9), 1): b""})
