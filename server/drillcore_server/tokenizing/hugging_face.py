"""Tokenizers from Hugging Face's tokenizer.json."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Final

from tokenizers import Tokenizer

from drillcore_server.tokenizing.parts import at_word, parts

TEXT_CHARS_MAX: Final = 1_000_000
"""Longer texts are counted in parts: a million characters take up to a second and 80 MB."""


def load_tokenizer(content: bytes) -> Tokenizer:
    """A tokenizer that works in the thread that calls it.

    By itself it starts a thread per core, from every process, and warns or locks up after a fork. It lets go of the
    interpreter while it works, so callers who want more cores call from more threads. Only this variable governs it;
    whoever set it before us has the last word.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return Tokenizer.from_buffer(content)


class HuggingFaceTokenizer:
    """Exact up to TEXT_CHARS_MAX characters; beyond, each cut may add a token or two."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises whatever `tokenizers` does if that is no tokenizer."""
        self.name: Final = name
        self.fingerprint: Final = hashlib.sha256(content).hexdigest()
        self._tokenizer = load_tokenizer(content)
        # A file may say that texts are cut or filled up to a length, as embedding models want it.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # as the characters that they are written with

    def count(self, text: str) -> int:
        return sum(self.count_many(list(parts(text, TEXT_CHARS_MAX, at_word))))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        if any(len(text) > TEXT_CHARS_MAX for text in texts):
            return [self.count(text) for text in texts]
        return [len(encoded) for encoded in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def at_least(self, text: str) -> int:  # noqa: ARG002 - such files may have tokens of several words
        return 0
