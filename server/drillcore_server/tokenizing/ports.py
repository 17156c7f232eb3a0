"""What counts tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class TokenCounter(Protocol):
    def __hash__(self) -> int: ...

    def count(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...


@runtime_checkable
class AdditiveTokenCounter(TokenCounter, Protocol):
    """A counter that knows where a text can be cut so that the counts of both sides add up to that of the whole."""

    def adds_up(self, text: str, at: int) -> bool: ...


class ModelTokenizer(TokenCounter, Protocol):
    """Counts as a language model does. Special tokens in a text are ordinary characters, and none are added to it."""

    @property
    def name(self) -> str:
        """For people: the encoding's, or that of its file without the folder."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex of what decides the counts. Two tokenizers of one fingerprint count alike."""

    def at_least(self, text: str) -> int:
        """No more than `count` would say, and found in a tenth of the time; 0 if that cannot be known."""
