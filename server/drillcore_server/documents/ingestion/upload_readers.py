"""The interface for reading uploads, and the reader in this process. `reader_pool` reads in child processes, with the
same results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from drillcore_server.documents.ingestion.digest import Content, DigestedDocument, Digester, Known
from drillcore_server.documents.parsing import Unparsable


class Reading(Protocol):
    """One upload while it is read."""

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        """Yields its documents in order, as they are done. Call it once. Ends early when the reading is dropped."""
        ...

    def drop(self) -> None:
        """Ends the reading: nobody wants the rest. Any thread may call it, also more than once."""
        ...


class Readers(Protocol):
    @property
    def at_once(self) -> int:
        """The number of uploads to have under way so that all readers are busy."""
        ...

    def begin(self, content: Content, known: Known) -> Reading:
        """May call `known` from another thread."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _ReadHere:
    digester: Digester
    content: Content
    known: Known

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        return self.digester.read(self.content, self.known)

    def drop(self) -> None:
        pass  # nothing runs unless its results are asked for


@dataclass(frozen=True, slots=True)
class ReadersHere:
    """Reads in the calling thread, without isolation: a parser that crashes or never ends takes the process with it."""

    digester: Digester

    @property
    def at_once(self) -> int:
        return 1

    def begin(self, content: Content, known: Known) -> Reading:
        return _ReadHere(self.digester, content, known)

    def close(self) -> None:
        pass
