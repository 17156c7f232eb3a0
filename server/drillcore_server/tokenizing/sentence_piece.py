"""Tokenizers from sentencepiece's model files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from drillcore_server.tokenizing.parts import at_word, parts

TEXT_CHARS_MAX: Final = 1_000_000
"""Longer texts are counted in parts, which bounds the memory that a text takes."""


class SentencePieceTokenizer:
    """Exact up to TEXT_CHARS_MAX characters; beyond, each cut may add a token or two."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises whatever `sentencepiece` does if that is no model."""
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
