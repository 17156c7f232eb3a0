"""Vectors for the texts of one corpus: a text that the corpus has a vector of is not embedded again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.errors import Unavailable
from drillcore_server.ingest.embedding.cache import embedding_key
from drillcore_server.ingest.embedding.errors import ProviderFailed
from drillcore_server.ingest.embedding.ports import Embedder, Vector, Vectors
from drillcore_server.ingest.embedding.texts import check_texts
from drillcore_server.ingest.prepare import EmbeddedText, as_stored
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyLostError
from drillcore_server.store.snapshot import Snapshot

_KEY_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class CorpusEmbeddings:
    """Finds vectors through the index of embedded texts, which goes with the chunks and is erased with their sources.

    Texts are hashed with a secret of the corpus: who sees the index cannot find out by trial what was embedded.
    """

    embedder: Embedder
    snapshot: Snapshot
    secret: bytes

    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]:
        check_texts(texts)
        keys = [embedding_key(self.embedder.model, text, self.secret)[:_KEY_BYTES] for text in texts]
        known = dict(zip(keys, self.snapshot.find(keys, _kept), strict=True))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if known[key] is None}
        made = dict(zip(missing, self._made(list(missing.values())), strict=True))
        stored = {key: unpacked(vector) for key, vector in known.items() if vector is not None}
        return [EmbeddedText(made[key] if key in made else stored[key], key) for key in keys]

    def _made(self, texts: Sequence[str]) -> Iterable[Vector]:
        return as_stored(embed_or_refuse(self.embedder, texts)) if texts else ()


def embed_or_refuse(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """What the model makes of texts. Raises `Unavailable` if its server fails."""
    try:
        return embedder.embed(texts)
    except ProviderFailed as failed:
        message = "the embedding model cannot be used now; try again later"
        raise Unavailable(Reason.MODEL_UNAVAILABLE, message) from failed


def _kept(view: CorpusView, key: bytes) -> bytes | None:
    try:
        return view.vector_of_text(key)
    except KeyLostError:
        return None
