"""Which embedding model made the vectors of a corpus, and how far a change to another one is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import CorpusId, Revision, TenantId

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
    """In the keys of its vectors, 1 for the first of a corpus, one more with each; after 255 it is 1 again."""
    name: str
    dimensions: int

    @property
    def model(self) -> Model:
        return Model(self.name, self.dimensions)


@dataclass(frozen=True, slots=True)
class Embeddings:
    current: EmbeddingModel
    """What searches use."""
    next: EmbeddingModel | None = None
    """What vectors are made with beside it, until all are there."""
    former: tuple[EmbeddingModel, ...] = ()
    """What is not used any more, as long as some of its vectors are there."""
    last: int = 0
    """The number that was given last. It is not given again soon: servers may have an index of it in memory."""

    @property
    def models(self) -> tuple[EmbeddingModel, ...]:
        """All that may have vectors, the current one first."""
        return (self.current, *(() if self.next is None else (self.next,)), *self.former)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(one.number for one in self.models)

    @property
    def others(self) -> tuple[int, ...]:
        """The numbers of those beside the current one."""
        return self.numbers[1:]

    def check(self, name: str, dimensions: int) -> None:
        """Refuses vectors of another model: they cannot be compared."""
        if (name, dimensions) != self.current.model:
            message = f"the corpus was embedded with {self.current.model}, not with {Model(name, dimensions)}"
            raise NotReady(Reason.MODEL_MISMATCH, message)

    def begun(self, model: Model) -> Embeddings:
        """From when on vectors of another model are made beside the current one's."""
        dropped = self.dropped()
        following = dropped.numbered(model)
        return replace(dropped, next=following, last=following.number)

    def dropped(self) -> Embeddings:
        """Without what was begun: it is not wanted any more."""
        return self if self.next is None else replace(self, next=None, former=(*self.former, self.next))

    def flipped(self) -> Embeddings:
        """From when on searches use the next model."""
        assert self.next is not None
        return Embeddings(self.next, None, (*self.former, self.current), self.last)

    def numbered(self, model: Model) -> EmbeddingModel:
        """With a number that no vector has."""
        number = (self.last or max(self.numbers)) % _NUMBERS + 1
        while number in self.numbers:
            number = number % _NUMBERS + 1
        return EmbeddingModel(number, *model)


def first(model: Model) -> Embeddings:
    """Of a corpus that gets its first vector."""
    return Embeddings(EmbeddingModel(1, *model))


def replaced(before: Embeddings, model: Model) -> Embeddings:
    """Of a corpus that has no vectors any more, and gets some of another model."""
    numbered = before.numbered(model)
    return Embeddings(numbered, last=numbered.number)


@dataclass(frozen=True, slots=True)
class Migration:
    """How far a corpus's change to another model is. Not part of a revision: kept as it is now."""

    tenant: TenantId
    corpus: CorpusId
    name: str
    dimensions: int
    begun_at: datetime
    total: int
    """Chunks and facts, as counted when it began and since."""
    since: Revision
    """What has changed after this revision is looked at once more before the new vectors are used."""
    done: int = 0
    """Chunks and facts that have their new vector."""
    cursor: bytes | None = b""
    """The key from which on there may be some without; None when all were looked at."""
    flipped_at: datetime | None = None
    """When searches began to use the new vectors."""
    finished_at: datetime | None = None
    """When the last of the old ones was gone."""

    @property
    def model(self) -> Model:
        return Model(self.name, self.dimensions)
