"""`[[envelopes.models]]`: models whose tokens the server counts, besides the built-in models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drillcore_server.tokenizers.encodings import EncodingName

DEFAULT_MODEL: Final = "gpt-4o"
HUGGING_FACE_SUFFIX: Final = ".json"
SENTENCE_PIECE_SUFFIX: Final = ".model"
_ENCODINGS: Final = tuple(name.value for name in EncodingName)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model, or a family of them."""

    name: str
    """The name that callers use. A * at its end stands for any ending. The longest name that matches is used."""
    tokenizer: Path
    """cl100k_base, o200k_base, a Hugging Face tokenizer.json, or a sentencepiece file whose name ends in .model."""
    context_window: int | None = None
    """In tokens. Without it, callers must give a budget in tokens or the size of the window."""

    def __post_init__(self) -> None:
        if not self.name or "*" in self.name[:-1]:
            raise ValueError(
                f"a model cannot be named {self.name!r}: a name must not be empty, and may have a * only at its end"
            )
        if self.context_window is not None and self.context_window <= 0:
            raise ValueError(f"context_window of the model {self.name!r} must be more than 0")
        if self.encoding is None and self.tokenizer.suffix not in (HUGGING_FACE_SUFFIX, SENTENCE_PIECE_SUFFIX):
            raise ValueError(
                f"the tokenizer of the model {self.name!r} must be {', '.join(_ENCODINGS)}, a Hugging Face "
                f"tokenizer.json or a sentencepiece *.model, not {self.tokenizer.name!r}"
            )

    @property
    def encoding(self) -> EncodingName | None:
        """The built-in encoding that `tokenizer` names; None if it is a file. Files always have a suffix."""
        name = self.tokenizer.name  # relative paths in a settings file get the folder of that file
        return EncodingName(name) if name in _ENCODINGS else None
