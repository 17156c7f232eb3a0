"""The records of a revision that are sealed under one encryption key, found by the index by source.

Only the key's own lists are read, and the records that they name: the cost is that of the source, not of the corpus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from drillcore_server.kernel import by_source
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage import versioned
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import keys_of
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Entry

_LISTS_MAX: Final = 50
"""How many stored values of the lists one transaction reads."""
_RECORDS_MAX: Final = 100
"""How many records one transaction reads. One may have 100 kB."""
_RECORDS: Final = frozenset(
    {
        Space.SOURCES,
        Space.DOCUMENTS,
        Space.FACTS,
        Space.COMMUNITIES,
        Space.QUADS,
        Space.TURNS,
        Space.LIBRARY,
        Space.LIBRARY_BLOBS,
        Space.ENTITY_VECTORS,
        Space.FOREIGN_SIGNATURES,
    }
)
"""The spaces of the records that whoever removes a source has to look at. All others follow from them."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a revision has of the source to which an encryption key belongs."""

    snapshot: BatchedReads
    number: KeyNumber
    listed: Mapping[Space, Sequence[bytes]]
    """The logical keys of records that revisions wrote under the encryption key. The revision may not have all."""
    _known: dict[bytes, Entry | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, snapshot: BatchedReads, view: CorpusAtRevision, number: KeyNumber, ahead: Sequence[bytes] = ()
    ) -> Holdings:
        """Finds what the key has sealed. If that is little, all of it is read in the transaction of `view`.

        `view` is of the same revision as `snapshot`. `ahead` are keys of further records to read ahead.
        """
        reads = BatchedReads.following(snapshot.engine, view)
        found = cls(snapshot, number, _listed(reads, number))
        wanted = [key for keys in found.listed.values() for key in keys]
        if len(wanted) <= _RECORDS_MAX:
            records = reads.read(lambda view: _read(view, [*wanted, *ahead]))
            found._known.update(zip([*wanted, *ahead], records, strict=True))
        return found

    def entries(self, space: Space) -> Iterator[Entry]:
        """The records in a space as they are stored, in the order of their keys."""
        wanted = self.listed.get(space, ())
        for start in range(0, len(wanted), _RECORDS_MAX):
            keys = wanted[start : start + _RECORDS_MAX]
            for entry in self._read(keys):
                if entry is not None and self.number in keys_of(entry.value):
                    yield entry

    def _read(self, keys: Sequence[bytes]) -> Sequence[Entry | None]:
        if all(key in self._known for key in keys):
            return [self._known[key] for key in keys]
        return self.snapshot.read(lambda view: _read(view, keys))


def _listed(reads: BatchedReads, number: KeyNumber) -> dict[Space, list[bytes]]:
    """What the lists of revisions up to the one that is read have of each space of `_RECORDS`, in order."""
    keys, listed = _listed_keys(reads, number), {}
    for begin, end in reads.keys.by_revision():
        space = reads.keys.space_of(begin)
        if space in _RECORDS:
            listed[space] = keys[bisect_left(keys, begin) : bisect_left(keys, end)]
    return listed


def _listed_keys(reads: BatchedReads, number: KeyNumber) -> list[bytes]:
    keys: set[bytes] = set()
    begin, end = reads.keys.all_by_source(number)
    following: bytes | None = begin
    while following is not None:
        page, following = reads.read(
            lambda view, b=following: by_source.page(view.tr, view.keys, b, end, _LISTS_MAX)  # type: ignore[misc]
        )
        keys.update(key for listing in page if listing.revision <= reads.revision for key in listing.keys)
    return sorted(keys)


def _read(view: CorpusAtRevision, keys: Sequence[bytes]) -> list[Entry | None]:
    return versioned.get_many(view.tr, keys, view.revision) if keys else []
