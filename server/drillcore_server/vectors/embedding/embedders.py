"""The interface of embedders and their cache, the errors they raise, and the embedders of a server.

EmbeddingFailed
├── TextRefused      this text has no vector; others of the batch may
├── VectorRefused    a vector that was given to us cannot be used
├── ModelUnusable    the model's files or packages are missing or not the pinned ones; the message says what to do
└── ProviderFailed   the embedding server did not answer, or not with what was asked for

No message contains the text that was to be embedded: messages go to logs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import NotReady, Unavailable
from drillcore_server.vectors.model import Model


class EmbeddingFailed(Exception):  # noqa: N818 - its kinds have names that say what happened
    pass


class TextProblem(enum.Enum):
    EMPTY = "is empty or only white space, so it has no vector"
    TOO_LONG = "is too long; cut it into chunks first"
    NOT_UNICODE = "has half of a surrogate pair, which is not a character"


class TextRefused(EmbeddingFailed):
    def __init__(self, problem: TextProblem, position: int) -> None:
        super().__init__(f"text {position} {problem.value}")
        self.problem = problem
        self.position = position
        """The place of the text in the batch, from 0."""


class VectorProblem(enum.Enum):
    NOT_NUMBERS = "is not a flat list of numbers"
    WRONG_LENGTH = "has the wrong length"
    NOT_FINITE = "has a component that is NaN or infinite"
    ZERO = "is all zeros, which has no direction"


class VectorRefused(EmbeddingFailed):
    def __init__(self, problem: VectorProblem, position: int, detail: str = "") -> None:
        super().__init__(f"vector {position} {problem.value}{detail}")
        self.problem = problem
        self.position = position
        """The place of the vector among those given, from 0."""


class ModelUnusable(EmbeddingFailed):
    pass


class ProviderFailed(EmbeddingFailed):
    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same request may succeed later."""


Vector = npt.NDArray[np.float32]
"""Shape (dimensions,)."""
Vectors = npt.NDArray[np.float32]
"""Shape (number of vectors, dimensions): one vector in each row."""


class Embedder(Protocol):
    """Several threads may call it at once."""

    @property
    def model(self) -> str:
        """Names the weights by name and fingerprint: two models that give different vectors never have the
        same name."""

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one row of length 1 for each text, in order.

        A text gets the same bytes alone, in any batch and in every run on one machine. No vector can mean nothing:
        zeros break cosine, and a made-up direction would make all empty texts each other's nearest. So a text that is
        empty or only white space is refused (`TextRefused`, with its position) before any text is embedded. Characters
        that the model never saw are embedded as the model does: from bytes or its unknown token.
        """


class EmbeddingCache(Protocol):
    """Packed vectors by a key made from the content. It may drop anything at any time, but never mixes up keys."""

    def clear(self) -> None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns one answer for each key, in order; None for what it does not have."""

    def put_many(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes keys and values. Putting a key again changes nothing, since a key has only one value."""


TEXT_CHARACTERS_MAX: Final = 100_000
"""About ten times the longest fact. Longer text has not been chunked, and would block the tokenizer for seconds."""


def check_texts(texts: Sequence[str]) -> None:
    """Raises `TextRefused` for the first text without a vector."""
    if isinstance(texts, str):
        raise TypeError("expected a sequence of texts, not one string")
    for position, text in enumerate(texts):
        if (problem := _problem(text)) is not None:
            raise TextRefused(problem, position)


def _problem(text: str) -> TextProblem | None:
    if not text or text.isspace():
        return TextProblem.EMPTY
    if len(text) > TEXT_CHARACTERS_MAX:
        return TextProblem.TOO_LONG
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return TextProblem.NOT_UNICODE
    return None


def portions(texts: Sequence[str], texts_max: int, characters_max: int) -> Iterator[Sequence[str]]:
    """Yields the texts in order, in runs within both limits. A text that exceeds `characters_max` is a run
    of its own."""
    start = characters = 0
    for position, text in enumerate(texts):
        full = position - start == texts_max or characters + len(text) > characters_max
        if full and position > start:
            yield texts[start:position]
            start, characters = position, 0
        characters += len(text)
    if start < len(texts):
        yield texts[start:]


def model_of(embedder: Embedder) -> Model:
    return Model(embedder.model, embedder.dimensions)


@dataclass(frozen=True, slots=True)
class Embedders:
    own: Embedder
    """Embeds what comes into a corpus without vectors, and what a migration makes anew."""
    former: tuple[Embedder, ...] = ()

    def find(self, model: Model) -> Embedder | None:
        return next((embedder for embedder in (self.own, *self.former) if model_of(embedder) == model), None)

    def of(self, model: Model) -> Embedder:
        """Returns the embedder of a corpus's model. Raises `NotReady` if the server has none for it."""
        found = self.find(model)
        if found is None:
            message = (
                f"the corpus was embedded with {model}, and this server has {model_of(self.own)}; search it by vectors "
                "of its own model, name that in [[ingest.former]], or change the corpus with MigrateEmbeddings"
            )
            raise NotReady(Reason.MODEL_MISMATCH, message)
        return found


def embed_or_refuse(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Returns the vectors of texts. Raises `Unavailable` if the model's server fails."""
    try:
        return embedder.embed(texts)
    except ProviderFailed as failed:
        message = "the embedding model cannot be used now; try again later"
        raise Unavailable(Reason.MODEL_UNAVAILABLE, message) from failed
