"""Embeds texts for one corpus. A text that already has a vector in the corpus is not embedded again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from drillcore_server.facts.model import fact_hash
from drillcore_server.facts.store import FactReader, blocks_of_source
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.storage.ids import SourceId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.cache import embedding_key
from drillcore_server.vectors.embedding.embedders import (
    Embedder,
    ProviderFailed,
    Vector,
    check_texts,
    embed_or_refuse,
    model_of,
)
from drillcore_server.vectors.embedding.unit_vectors import packed_in_portions
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import as_stored, unpacked

_KEY_BYTES: Final = 12
_BLOCKS_AT_ONCE: Final = 250
"""Blocks of facts whose vectors are read together."""


@dataclass(frozen=True, slots=True)
class CorpusEmbeddings:
    """Finds known vectors through the corpus's index of embedded texts.

    The index follows the chunks and is erased with their sources. Texts are hashed with a secret of the corpus, so
    nobody who sees the index can find out by trial what was embedded.
    """

    embedder: Embedder
    snapshot: BatchedReads
    secret: bytes
    next: Embedder | None = None
    """The embedder of the model that the corpus is being changed to, if any."""

    @property
    def model(self) -> Model:
        return model_of(self.embedder)

    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Returns the vectors of chunks' texts, in order. Raises `TextRefused`, or `Unavailable` if the model fails."""
        check_texts(texts)
        keys = [embedding_key(self.embedder.model, text, self.secret)[:_KEY_BYTES] for text in texts]
        known = dict(zip(keys, self._kept(keys), strict=True))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if known[key] is None}
        made = dict(zip(missing, self._made(list(missing.values())), strict=True))
        stored = {key: unpacked(vector) for key, vector in known.items() if vector is not None}
        vectors = [made[key] if key in made else stored[key] for key in keys]
        made_texts = zip(vectors, keys, self._next(texts), strict=True)
        return [EmbeddedText(vector, key, next_vector) for vector, key, next_vector in made_texts]

    def _next(self, texts: Sequence[str]) -> Iterable[Vector | None]:
        """Returns vectors of the next model; None where that model fails, since the migration adds them later."""
        if self.next is None:
            return [None] * len(texts)
        try:
            return as_stored(self.next.embed(texts))
        except ProviderFailed:
            return [None] * len(texts)

    def _kept(self, keys: Sequence[bytes]) -> Iterable[bytes | None]:
        number = self._number()
        if number is None:
            return [None] * len(keys)
        return self.snapshot.together(keys, lambda view, some: HierarchyReader(view).vectors_of_texts(number, some))

    def embed_facts(self, source: SourceId, texts: Sequence[str]) -> list[bytes]:
        """Returns the packed vectors of facts, in order. A text that the source already has as a fact is not embedded
        again; facts of other sources are not compared. Raises as `embed` does."""
        known = self._fact_vectors(source)
        missing = [text for text in texts if fact_hash(text) not in known]
        made = dict(zip(missing, packed_in_portions(partial(embed_or_refuse, self.embedder), missing), strict=True))
        return [made[text] if text in made else known[fact_hash(text)] for text in texts]

    def _fact_vectors(self, source: SourceId) -> dict[str, bytes]:
        """Returns the vectors of the source's facts by the hash of their content. An erased source has none."""
        number = self._number()
        record = self.snapshot.read(lambda view: HierarchyReader(view).source_unless_erased(source))
        if number is None or record is None or not record.fact_count:
            return {}
        try:
            return self._vectors_of_source(number, source)
        except KeyErased:
            return {}

    def _vectors_of_source(self, number: int, source: SourceId) -> dict[str, bytes]:
        known: dict[str, bytes] = {}
        blocks = blocks_of_source(self.snapshot, source)
        while some := list(islice(blocks, _BLOCKS_AT_ONCE)):
            ids = [block.id for block in some]
            vectors = self.snapshot.read(lambda view, at=ids: FactReader(view).vectors_of_blocks(number, at))  # type: ignore[misc]
            for block, own in zip(some, vectors, strict=True):
                known |= {fact.content_hash: own[fact.id] for fact in block.facts if own and fact.id in own}
        return known

    def _number(self) -> int | None:
        """Returns the number of the embedder's model; None if the corpus has another model or no vectors."""
        now = self.snapshot.read(embeddings_of)
        return None if now is None or now.current.model != self.model else now.current.number

    def _made(self, texts: Sequence[str]) -> Iterable[Vector]:
        return as_stored(embed_or_refuse(self.embedder, texts)) if texts else ()


class EmbeddedText(NamedTuple):
    vector: Vector
    """Rounded as it is stored, so that a new vector and a stored one are equal."""
    key: bytes
    """The key under which the vector is found again for the same text; empty if the text is not indexed."""
    next_vector: Vector | None = None
    """See `PreparedChunk`."""
