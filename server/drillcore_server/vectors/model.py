"""Which embedding model made the vectors of a corpus, and how far a migration to another model has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import NotReady
from drillcore_server.storage.ids import CorpusId, Revision, TenantId

_NUMBERS: Final = 255


class Model(NamedTuple):
    """A model as embedders name it."""

    name: str
    dimensions: int

    def __str__(self) -> str:
        return f"{self.name} of {self.dimensions} dimensions"


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    number: int
    """Part of the keys of its vectors. The first model of a corpus is 1, each further one is one more; 255 is followed
    by 1."""
    name: str
    dimensions: int

    @property
    def model(self) -> Model:
        return Model(self.name, self.dimensions)


@dataclass(frozen=True, slots=True)
class Embeddings:
    current: EmbeddingModel
    """The model that searches use."""
    next: EmbeddingModel | None = None
    """The model of a migration under way, which gets vectors beside the current one."""
    former: tuple[EmbeddingModel, ...] = ()
    """Models that are not used any more, while some of their vectors remain."""
    last: int = 0
    """The number given last. It is not given again soon: servers may have an index of it in memory."""

    @property
    def models(self) -> tuple[EmbeddingModel, ...]:
        """Returns all models that may have vectors, the current one first."""
        return (self.current, *(() if self.next is None else (self.next,)), *self.former)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(model.number for model in self.models)

    @property
    def others(self) -> tuple[int, ...]:
        """Returns the numbers of all models but the current one."""
        return self.numbers[1:]

    def check(self, name: str, dimensions: int) -> None:
        """Refuses vectors of another model, which cannot be compared."""
        if (name, dimensions) != self.current.model:
            message = f"the corpus was embedded with {self.current.model}, not with {Model(name, dimensions)}"
            raise NotReady(Reason.MODEL_MISMATCH, message)

    def begun(self, model: Model) -> Embeddings:
        """Starts a migration: vectors of another model are made beside the current one's."""
        dropped = self.dropped()
        following = dropped.numbered(model)
        return replace(dropped, next=following, last=following.number)

    def dropped(self) -> Embeddings:
        """Abandons a migration."""
        return self if self.next is None else replace(self, next=None, former=(*self.former, self.next))

    def flipped(self) -> Embeddings:
        """Completes a migration: searches use the next model from now on."""
        assert self.next is not None
        return Embeddings(self.next, None, (*self.former, self.current), self.last)

    def numbered(self, model: Model) -> EmbeddingModel:
        """Returns the model with a number that no vector has."""
        number = (self.last or max(self.numbers)) % _NUMBERS + 1
        while number in self.numbers:
            number = number % _NUMBERS + 1
        return EmbeddingModel(number, *model)


def first(model: Model) -> Embeddings:
    """Returns the embeddings of a corpus that gets its first vector."""
    return Embeddings(EmbeddingModel(1, *model))


def replaced(before: Embeddings, model: Model) -> Embeddings:
    """Returns the embeddings of a corpus that has lost all vectors and gets some of another model."""
    numbered = before.numbered(model)
    return Embeddings(numbered, last=numbered.number)


@dataclass(frozen=True, slots=True)
class Migration:
    """How far a corpus's migration to another model has come. It is not part of a revision: only the present state is
    kept."""

    tenant: TenantId
    corpus: CorpusId
    name: str
    dimensions: int
    begun_at: datetime
    total: int
    """Chunks and facts, counted at the beginning and since."""
    since: Revision
    """Changes after this revision are checked once more before the new vectors are used."""
    done: int = 0
    """Chunks and facts that have their new vector."""
    cursor: bytes | None = b""
    """The key from which on vectors may be missing; None when everything was checked."""
    flipped_at: datetime | None = None
    """When searches began to use the new vectors."""
    finished_at: datetime | None = None
    """When the last old vector was gone."""

    @property
    def model(self) -> Model:
        return Model(self.name, self.dimensions)
