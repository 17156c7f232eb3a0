"""What a search looks for: a text, embedded with the model of each corpus, or a vector that the caller made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, NotReady, Refused
from drillcore_server.storage.ids import CorpusId
from drillcore_server.vectors.embedding.embedders import Embedders, Vector, embed_or_refuse, model_of
from drillcore_server.vectors.embedding.unit_vectors import client_vector
from drillcore_server.vectors.model import Model

T = TypeVar("T")


class _NotEmbeddedYet(Exception):  # noqa: N818 - a signal, not an error
    """The search reached a corpus whose model has not embedded the text yet."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model


class SoughtVector:
    """A vector that the caller made with the model that it names."""

    def __init__(self, vector: Sequence[float], model: str) -> None:
        """Raises `BadInput` for a vector that cannot be used in a search."""
        self._vector = client_vector(vector, "vector")
        self._model = model

    def of(self, corpus: CorpusId, model: Model) -> Vector:
        """The vector to compare a corpus's vectors with. Raises `Refused` if another model made those."""
        if model.name != self._model:
            message = f"corpus {corpus} was embedded with {model}, but embedding_model is {self._model}"
            raise NotReady(Reason.MODEL_MISMATCH, message)
        if model.dimensions != len(self._vector):
            message = f"corpus {corpus} has vectors of {model.dimensions} components; yours has {len(self._vector)}"
            raise BadInput(Reason.INVALID_VECTOR, message, field="vector")
        return self._vector

    def run(self, search: Callable[[], T]) -> T:
        return search()


class SoughtTexts:
    """Texts that are embedded once for each model, never inside a transaction.

    Most corpora use the server's own model, so the texts are embedded with that model before the first transaction.
    """

    def __init__(self, embedders: Embedders, texts: Sequence[str], *, at_once: bool = True) -> None:
        """Without `at_once`, nothing is embedded until a search needs it."""
        self._embedders = embedders
        self._texts = texts
        self._at_once = at_once
        self._made: dict[Model, Sequence[Vector] | Refused] = {}

    def of(self, corpus: CorpusId, model: Model) -> Sequence[Vector]:
        """The vectors to compare a corpus's vectors with. Call it only from a search that `run` runs."""
        found = self._made.get(model)
        if found is None:
            self._check(corpus, model)
            raise _NotEmbeddedYet(model)
        if isinstance(found, Refused):
            raise found
        return found

    def run(self, search: Callable[[], T]) -> T:
        """Returns what the search finds. Runs it again for each further model that its corpora use."""
        if self._at_once:
            self._embed(model_of(self._embedders.own))
        while True:
            try:
                return search()
            except _NotEmbeddedYet as missing:
                self._embed(missing.model)

    def _check(self, corpus: CorpusId, model: Model) -> None:
        try:
            self._embedders.of(model)
        except NotReady as refused:
            raise NotReady(refused.reason, f"corpus {corpus}: {refused.message}") from refused

    def _embed(self, model: Model) -> None:
        """Embeds the texts. Defers a model's failure until a corpus needs that model."""
        try:
            self._made[model] = list(embed_or_refuse(self._embedders.of(model), self._texts))
        except Refused as refused:
            self._made[model] = refused


class SoughtText:
    """A single text, embedded once for each model."""

    def __init__(self, embedders: Embedders, text: str) -> None:
        self._texts = SoughtTexts(embedders, [text])

    def of(self, corpus: CorpusId, model: Model) -> Vector:
        return self._texts.of(corpus, model)[0]

    def run(self, search: Callable[[], T]) -> T:
        return self._texts.run(search)


Sought = SoughtText | SoughtVector
