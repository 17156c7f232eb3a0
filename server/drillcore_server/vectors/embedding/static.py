"""The built-in model: WordLlama's static vectors, 256 numbers for each token, averaged. Offline, and the same
everywhere.

Weights and tokenizer are files of the package `wordllama`, checked against pinned hashes. The package itself is never
imported: it would set up logging for the whole process and bring in requests and pydantic. The vectors are bit for bit
those of its `embed`.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer

from drillcore_server.tokenizers.encodings import load_tokenizer
from drillcore_server.vectors.embedding.embedders import ModelUnusable, Vector, Vectors, check_texts, portions
from drillcore_server.vectors.embedding.unit_vectors import unit_rows

FINGERPRINT_CHARACTERS: Final = 16


def package_folder(package: str, remedy: str) -> Path:
    """Returns where a top-level package is installed, without running its code. Raises `ModelUnusable` with
    the remedy."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelUnusable(f"the package {package} is not installed: {remedy}")
    return Path(spec.origin).parent


def read_file(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelUnusable(f"cannot read {path} ({error.strerror}): {remedy}") from error


def read_pinned(path: Path, sha256: str, remedy: str) -> bytes:
    """Reads a file and checks its hash. Returns the bytes that were checked, so nothing can be swapped in between."""
    content = read_file(path, remedy)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ModelUnusable(f"{path} is not the pinned file: its SHA-256 is {found}, not {sha256}: {remedy}")
    return content


def fingerprint(*parts: bytes) -> str:
    """Returns a short name for everything that decides a model's vectors: weights, tokenizer, and how they are used."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return digest.hexdigest()[:FINGERPRINT_CHARACTERS]


PACKAGE: Final = "wordllama"
WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
WEIGHTS_SHA256: Final = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
TOKENIZER_SHA256: Final = "bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83"
REMEDY: Final = "pip install --force-reinstall 'wordllama==0.2.2.post0'"
"""Names the last release whose wheel runs on every Python and processor. Later ones have the same weights and
tokenizer."""
_LINE_END: Final = b"\n"
"""Ends the tokenizer's file in later releases. The model's name, which stores contain, was made with it."""

PORTION_TEXTS_MAX: Final = 1_024
PORTION_CHARACTERS_MAX: Final = 1 << 20
"""Texts that are tokenised together: about 300,000 tokens, which take about 50 MB until they are averaged."""


class StaticEmbedder:
    """Every text has tokens: characters outside the vocabulary become their bytes."""

    def __init__(self, token_vectors: Vectors, tokenizer: Tokenizer, model: str) -> None:
        self._token_vectors = token_vectors
        self._tokenizer = tokenizer
        self.model = model
        self.dimensions: int = token_vectors.shape[1]

    def embed(self, texts: Sequence[str]) -> Vectors:
        check_texts(texts)
        means = np.empty((len(texts), self.dimensions), np.float32)
        row = 0
        for portion in portions(texts, PORTION_TEXTS_MAX, PORTION_CHARACTERS_MAX):
            for encoding in self._tokenizer.encode_batch_fast(list(portion), add_special_tokens=False):
                means[row] = self._mean(encoding.ids)
                row += 1
        return unit_rows(means)

    def _mean(self, tokens: Sequence[int]) -> Vector:
        """Averages one text at a time: five times as fast as `np.add.reduceat` over the batch, and independent of the
        batch."""
        total: Vector = np.add.reduce(self._token_vectors[np.array(tokens, np.intp)], axis=0)
        return total / np.float32(len(tokens))


def load_static(folder: Path | None = None) -> StaticEmbedder:
    """Loads from the installed package, or from a folder with the same files. Raises `ModelUnusable`."""
    folder = folder or package_folder(PACKAGE, REMEDY)
    weights = read_pinned(folder / WEIGHTS, WEIGHTS_SHA256, REMEDY)
    tokenizer = read_pinned(folder / TOKENIZER, TOKENIZER_SHA256, REMEDY)
    token_vectors = safetensors.numpy.load(weights)["embedding.weight"].astype(np.float32)
    model = f"wordllama-l2-supercat-256@{fingerprint(weights, tokenizer + _LINE_END, b'mean')}"
    return StaticEmbedder(token_vectors, load_tokenizer(tokenizer), model)
