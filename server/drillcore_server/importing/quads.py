"""The triples of a core, checked and put in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from drillcore.cores.failures import InvalidTerm, WrongShape
from drillcore.cores.records import Listing
from drillcore.cores.terms import read_triple
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.provenance_quads import is_derived
from drillcore_server.domain.quads import SourcedQuad
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX
from drillcore_server.exporting.sorted_file import SortedFile
from drillcore_server.importing.report import DERIVED, INVALID_TERM, Skips
from drillcore_server.importing.terms import quad_of
from drillcore_server.store.quads import decode_record, encode_record

_NO_SOURCE = SourceId("")


class QuadIntake:
    """Each quad is kept once for each source. Those of a core of another system have none until they are stored."""

    def __init__(self, skips: Skips, *, is_full: bool) -> None:
        self._skips = skips
        self._is_full = is_full
        self._file = SortedFile()
        self.sources: Counter[SourceId] = Counter()
        self.taken = 0
        """Triples in the file."""

    def take(self, listing: Listing) -> None:
        """Raises `WrongShape`."""
        source = said_source(listing) if self._is_full else _NO_SOURCE
        derived = 0
        for item in _triples(listing):
            self.taken += 1
            try:
                quad = quad_of(read_triple(item))
            except InvalidTerm as error:
                self._skips.skip(listing.record, INVALID_TERM, str(error))
                continue
            if self._is_full and not source and is_derived(quad):
                derived += 1
                continue
            self.sources[source] += 1
            self._file.add(encode_record(quad, source))
        if derived:
            message = f"{derived} quads are made anew from the records of the core"
            self._skips.skip(listing.record, DERIVED, message, times=derived)

    def __iter__(self) -> Iterator[SourcedQuad]:
        """As often as it is asked for."""
        return map(decode_record, self._file)

    def close(self) -> None:
        self._file.close()


def said_source(listing: Listing) -> SourceId:
    """Which a record of a full core is of. Raises `WrongShape`."""
    if len(listing.meta.source) > SOURCE_CHARACTERS_MAX:
        raise WrongShape(f"the id of its source has more than {SOURCE_CHARACTERS_MAX:,} characters")
    return SourceId(listing.meta.source)


def _triples(listing: Listing) -> Iterable[object]:
    """Those about the core itself, in older files, are triples as any other."""
    yield from listing.meta.triples
    yield from listing.items()
