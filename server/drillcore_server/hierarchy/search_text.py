"""What a search compares with: a text, embedded with the model of each corpus, or a vector that the caller made."""

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


class _NotEmbeddedYet(Exception):  # noqa: N818 - a turn of events, not an error
    """A corpus has another model than those that the text was embedded with so far."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model


class SoughtVector:
    """Made by the caller, with a model that it names."""

    def __init__(self, vector: Sequence[float], model: str) -> None:
        """Raises `BadInput` for one that cannot be searched by."""
        self._vector = client_vector(vector, "vector")
        self._model = model

    def of(self, corpus: CorpusId, model: Model) -> Vector:
        """To compare the vectors of a corpus with. Raises `Refused` if they are of another model."""
        if model.name != self._model:
            message = f"corpus {corpus}: the corpus was embedded with {model}, not with {self._model}"
            raise NotReady(Reason.MODEL_MISMATCH, message)
        if model.dimensions != len(self._vector):
            message = f"the corpus's vectors have {model.dimensions} components, not {len(self._vector)}"
            raise BadInput(Reason.INVALID_VECTOR, message, field="vector")
        return self._vector

    def run(self, search: Callable[[], T]) -> T:
        return search()


class SoughtTexts:
    """Embedded once for each model, never within a transaction: mostly with the server's own model, before any."""

    def __init__(self, embedders: Embedders, texts: Sequence[str], *, at_once: bool = True) -> None:
        """Without `at_once` nothing is embedded before a search asks for it."""
        self._embedders = embedders
        self._texts = texts
        self._at_once = at_once
        self._made: dict[Model, Sequence[Vector] | Refused] = {}

    def of(self, corpus: CorpusId, model: Model) -> Sequence[Vector]:
        """To compare the vectors of a corpus with. For what is called by `run` only, which may call it again."""
        found = self._made.get(model)
        if found is None:
            self._check(corpus, model)
            raise _NotEmbeddedYet(model)
        if isinstance(found, Refused):
            raise found
        return found

    def run(self, search: Callable[[], T]) -> T:
        """What a search finds; it begins anew when it comes upon a corpus of a further model."""
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
        """A model that fails is told of only if a corpus needs it."""
        try:
            self._made[model] = list(embed_or_refuse(self._embedders.of(model), self._texts))
        except Refused as refused:
            self._made[model] = refused


class SoughtText:
    """One text."""

    def __init__(self, embedders: Embedders, text: str) -> None:
        self._texts = SoughtTexts(embedders, [text])

    def of(self, corpus: CorpusId, model: Model) -> Vector:
        return self._texts.of(corpus, model)[0]

    def run(self, search: Callable[[], T]) -> T:
        return self._texts.run(search)


Sought = SoughtText | SoughtVector
