"""What an embedder and an embedding cache promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""Shape (dimensions,)."""
Vectors = npt.NDArray[np.float32]
"""Shape (number of vectors, dimensions), one vector a row."""


class Embedder(Protocol):
    """May be called from several threads at once."""

    @property
    def model(self) -> str:
        """Name and fingerprint of the weights: two models that give different vectors never have the same name."""

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order, each of length 1.

        A text gets the same bytes alone, in any batch and in every run on one machine. There is no vector that means
        nothing: zeros break cosine, and a made-up direction would make all empty texts each other's nearest. So a text
        that is empty or only white space is refused (TextRefused, with its position) before any text is embedded.
        A text of characters that the model never saw is embedded as the model does: from bytes or its unknown token.
        """


class EmbeddingCache(Protocol):
    """Packed vectors by content-derived key. It may forget anything at any time, but never mix up keys."""

    def clear(self) -> None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """One answer a key, in order; None for what it does not have."""

    def put_many(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Keys and values. Putting again what is there changes nothing, since a key has only one value."""
