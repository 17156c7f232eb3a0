"""What digests are made from, in memory: the chunks that masters cite, and the passages that sections choose from.

A small change of a corpus makes a new master and a new summary of a section, from nearly the same passages as the ones
before. So only those that are new are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Engine
from drillcore_server.hierarchy.model import ChunkWithRaws, Citation
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import DocumentId, NodeId
from drillcore_server.vectors.corpus_follower import Follower

DOCUMENTS_MAX: Final = 50_000
"""Documents of a corpus whose passages are kept. Beyond that, those that were kept first are dropped."""
_Passages = Mapping[tuple[NodeId, int, int], str]
"""Texts by chunk and span."""


class Cited:
    """What is known at one revision of a corpus. It may lack anything.

    Threads share it. So its mappings never change: they are only replaced, and what another thread has noted at the
    same time may be lost.
    """

    __slots__ = ("_passages", "chunks")

    def __init__(self, chunks: Mapping[NodeId, ChunkWithRaws], passages: Mapping[DocumentId, _Passages]) -> None:
        self.chunks = chunks
        """The chunks that the last master cites."""
        self._passages = passages

    def passage(self, citation: Citation) -> str | None:
        """The text of a passage."""
        return self._passages.get(citation.document, {}).get(_place(citation))

    def note(self, texts: Iterable[tuple[Citation, str]]) -> None:
        """Keeps the texts of passages."""
        passages = dict(self._passages)
        for citation, text in texts:
            passages[citation.document] = {**passages.get(citation.document, {}), _place(citation): text}
        self._passages = dict(islice(passages.items(), max(0, len(passages) - DOCUMENTS_MAX), None))

    def without(self, documents: set[DocumentId]) -> Cited:
        """What is still known after a change of these documents."""
        chunks = {id_: found for id_, found in self.chunks.items() if found.chunk.document not in documents}
        return Cited(chunks, {id_: texts for id_, texts in self._passages.items() if id_ not in documents})


def _place(citation: Citation) -> tuple[NodeId, int, int]:
    return citation.chunk, citation.span.start, citation.span.end


class CitedChunks(Follower[Cited]):
    """Follows the revisions of corpora: a revision that adds or removes a document may change its chunks."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, lambda _: Cited({}, {}), _follow)


def _follow(kept: Cited, since: Sequence[RevisionRecord], _snapshot: BatchedReads) -> Cited:
    return kept.without(set(_documents(since)))


def _documents(since: Iterable[RevisionRecord]) -> Iterator[DocumentId]:
    for record in since:
        yield from record.documents_added
        yield from record.documents_removed
