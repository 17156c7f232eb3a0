"""What can go wrong between text and vector. The caller maps these to refusals or to a document's error.

EmbeddingFailed
├── TextRefused      this text has no vector; others of the batch may
├── VectorRefused    a vector that was given to us cannot be used
├── ModelUnusable    the model's files or packages are missing or not the pinned ones; the message says what to do
└── ProviderFailed   the embedding server did not answer, or not with what was asked for

No message contains the text that was to be embedded: messages go to logs.
"""

from __future__ import annotations

import enum


class EmbeddingFailed(Exception):  # noqa: N818 - its kinds are named as what they say
    pass


class TextProblem(enum.Enum):
    EMPTY = "is empty or only white space, which has no direction"
    TOO_LONG = "is too long; cut it into chunks first"
    NOT_UNICODE = "has half of a surrogate pair, which is no character"


class TextRefused(EmbeddingFailed):
    def __init__(self, problem: TextProblem, position: int) -> None:
        super().__init__(f"text {position} {problem.value}")
        self.problem = problem
        self.position = position
        """Of the text in the batch, from 0."""


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
        """Of the vector among those given, from 0."""


class ModelUnusable(EmbeddingFailed):
    pass


class ProviderFailed(EmbeddingFailed):
    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same request may succeed later."""
