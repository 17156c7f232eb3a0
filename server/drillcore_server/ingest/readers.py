"""Who reads uploads: this process, or workers of their own (`workers`). Both give the same results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from drillcore_server.ingest.digesting import Content, DigestedDocument, Digester, Known
from drillcore_server.ingest.parsing import Unparsable


class Reading(Protocol):
    """One upload, being read."""

    def results(self) -> Iterator[DigestedDocument | Unparsable]:
        """Its documents in order, as they are done; to be asked for once. Ends early when the reading is dropped."""
        ...

    def drop(self) -> None:
        """Nobody wants the rest: what is under way ends. From any thread, and more than once if need be."""
        ...


class Readers(Protocol):
    @property
    def at_once(self) -> int:
        """How many uploads to have under way, so that all are busy."""
        ...

    def begin(self, content: Content, known: Known) -> Reading:
        """`known` may be called from another thread."""
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
        pass  # nothing goes on unless its results are asked for


@dataclass(frozen=True, slots=True)
class ReadersHere:
    """In the calling thread: without isolation, a parser that crashes or never ends takes the process with it."""

    digester: Digester

    @property
    def at_once(self) -> int:
        return 1

    def begin(self, content: Content, known: Known) -> Reading:
        return _ReadHere(self.digester, content, known)

    def close(self) -> None:
        pass
