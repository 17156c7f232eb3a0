"""Which model embeds what comes into a corpus."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.vectors.embedding.embedders import (
    Embedder,
    Embedders,
)
from drillcore_server.vectors.model import Embeddings, Model, first, replaced
from drillcore_server.vectors.store import embeddings_of


@dataclass(frozen=True, slots=True)
class CorpusModels:
    """Of a corpus at one revision. A corpus without vectors takes any model; one that has some keeps to theirs."""

    snapshot: BatchedReads
    embedders: Embedders

    def now(self) -> Embeddings | None:
        return self.snapshot.read(embeddings_of)

    def embedder(self) -> Embedder:
        """Raises `NotReady` if the corpus needs one that is not here."""
        now = self.now()
        if now is None or self.embedders.find(now.current.model) is self.embedders.own or self.is_empty(now):
            return self.embedders.own
        return self.embedders.of(now.current.model)

    def after(self, made_with: Model, *, was_current: bool = False) -> Embeddings:
        """Once vectors of a model are added. Raises `Refused` if those that are there are another's.

        With `was_current` it was the corpus's model when they were made.
        """
        now = self.now()
        if now is None:
            return first(made_with)
        if now.current.model == made_with:
            return now
        if self.is_empty(now):
            return replaced(now, made_with)
        if was_current:
            message = "the embedding model of the corpus has changed meanwhile; nothing was written, send all again"
            raise Unavailable(Reason.CONFLICT, message)
        now.check(*made_with)
        return now

    def replacing_embedder(self) -> Embedder:
        """For a hierarchy that takes the place of everything but facts."""
        now = self.now()
        return self.embedders.of(now.current.model) if now is not None and self._has_facts(now) else self.embedders.own

    def after_replacing(self, made_with: Model) -> Embeddings:
        """Once a hierarchy with vectors of a model takes the place of what is there. Facts stay, and so does theirs."""
        now = self.now()
        if now is None:
            return first(made_with)
        if now.current.model == made_with:
            return now
        if self._has_facts(now):
            now.check(*made_with)
        return replaced(now, made_with)

    def is_empty(self, now: Embeddings) -> bool:
        """Whether neither a chunk nor a fact has a vector."""
        return not self._has(self.snapshot.keys.vectors(now.current.number)) and not self._has_facts(now)

    def _has_facts(self, now: Embeddings) -> bool:
        return self._has(self.snapshot.keys.fact_vectors(now.current.number))

    def _has(self, space: KeyRange) -> bool:
        return next(self.snapshot.entries(space), None) is not None
