"""Notes of erasures. Every server reads them before it reads anything else, and stops using the keys they name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader
from drillcore_server.storage.ids import CorpusId, CorpusNumber, TenantId
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.spaces import ErasureNotes


@dataclass(frozen=True, slots=True)
class NotedErasure:
    """An erasure, as every server must know it before it reads anything else."""

    corpus: CorpusNumber
    erasure: int
    """The number of the erasure in its corpus."""
    keys: tuple[int, ...]
    tenant_id: TenantId
    corpus_id: CorpusId


NOTED: Final = RecordKind(NotedErasure)


def noted(tr: Reader, notes: ErasureNotes, after: int = 0) -> Iterator[NotedErasure]:
    """All notes of the store after a number, oldest first."""
    for _, stored in codec.scan(tr, *notes.after(after)):
        yield NOTED.decode(stored)


def follow(tr: Reader, notes: ErasureNotes, keyring: Keyring) -> None:
    """Tells this server's keyring about all erasures up to the reader's version of the store.

    Costs one read if the keyring knows them already.
    """
    count = noted_count(tr, notes)
    if count <= keyring.erasures_known:
        return
    found = list(noted(tr, notes, keyring.erasures_known))
    keyring.forget(KeyNumber(key) for note in found for key in note.keys)
    keyring.note_erasures(count, {note.corpus for note in found})


def noted_count(tr: Reader, notes: ErasureNotes) -> int:
    return int.from_bytes(tr.get(notes.count) or b"", "big")
