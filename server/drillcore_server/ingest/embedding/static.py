"""The built-in model: WordLlama's static vectors, 256 a token, averaged. Offline, and the same on every machine.

Weights and tokenizer are files of the package `wordllama`. The package itself is never imported: it would set up
logging for the whole process and bring in requests and pydantic. The vectors are bit for bit those of its `embed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer

from drillcore_server.ingest.embedding.model_files import fingerprint, package_folder, read_pinned
from drillcore_server.ingest.embedding.ports import Vector, Vectors
from drillcore_server.ingest.embedding.texts import check_texts, portions
from drillcore_server.ingest.embedding.vectors import unit_rows
from drillcore_server.tokenizing.hugging_face import load_tokenizer

PACKAGE: Final = "wordllama"
WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
WEIGHTS_SHA256: Final = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
TOKENIZER_SHA256: Final = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
REMEDY: Final = "pip install --force-reinstall 'wordllama==0.4.*'"

PORTION_TEXTS_MAX: Final = 1_024
PORTION_CHARACTERS_MAX: Final = 1 << 20
"""What is tokenised at once: some 300,000 tokens, which take about 50 MB until they are averaged."""


class StaticEmbedder:
    """Every text has tokens, since characters outside the vocabulary fall back to their bytes."""

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
        """Of one text at a time: five times as fast as `np.add.reduceat` over the batch, and blind to the batch."""
        total: Vector = np.add.reduce(self._token_vectors[np.array(tokens, np.intp)], axis=0)
        return total / np.float32(len(tokens))


def load_static(folder: Path | None = None) -> StaticEmbedder:
    """From the installed package, or from a folder with the same files. Raises ModelUnusable."""
    folder = folder or package_folder(PACKAGE, REMEDY)
    weights = read_pinned(folder / WEIGHTS, WEIGHTS_SHA256, REMEDY)
    tokenizer = read_pinned(folder / TOKENIZER, TOKENIZER_SHA256, REMEDY)
    token_vectors = safetensors.numpy.load(weights)["embedding.weight"].astype(np.float32)
    model = f"wordllama-l2-supercat-256@{fingerprint(weights, tokenizer, b'mean')}"
    return StaticEmbedder(token_vectors, load_tokenizer(tokenizer), model)
