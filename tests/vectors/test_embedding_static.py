"""The built-in model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from drillcore_server.vectors.embedding import static
from drillcore_server.vectors.embedding.embedders import ModelUnusable, TextRefused
from drillcore_server.vectors.embedding.static import StaticEmbedder, load_static, package_folder
from drillcore_server.vectors.embedding.unit_vectors import checked_vectors
from tests.support.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "embeddings.json").read_text(encoding="utf-8"))
SIGNATURE = "Each electronic signature shall be unique to one individual."
SIGNING = "Nobody may share their digital signature with another person."
ERASURE = "Personal data must be erased when the data subject withdraws consent."
DELETING = "The controller deletes information about a person on request."
STERILE = "Filters used in sterile filling are tested for integrity after each batch."


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return load_static()


def test_vectors_are_those_of_the_models_own_library(embedder: StaticEmbedder) -> None:
    np.testing.assert_allclose(embedder.embed(GOLDEN["texts"]), GOLDEN["wordllama"], rtol=0, atol=1e-6)


def test_rows_have_length_one_and_the_promised_type(embedder: StaticEmbedder) -> None:
    rows = embedder.embed(GOLDEN["texts"])
    assert rows.shape == (len(GOLDEN["texts"]), embedder.dimensions)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_a_text_has_the_same_bytes_alone_and_in_any_batch(embedder: StaticEmbedder) -> None:
    texts = [*GOLDEN["texts"], "word " * 3000, SIGNATURE, "\x00", "🙂"]
    together = embedder.embed(texts)
    alone = [embedder.embed([text])[0] for text in texts]
    backwards = embedder.embed(texts[::-1])[::-1]
    assert together.tobytes() == np.stack(alone).tobytes() == backwards.tobytes()


def test_more_texts_than_one_portion_come_back_in_order(
    embedder: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"clause {number}" for number in range(50)]
    whole = embedder.embed(texts)
    monkeypatch.setattr(static, "PORTION_TEXTS_MAX", 7)
    assert embedder.embed(texts).tobytes() == whole.tobytes()


def test_threads_get_the_same_bytes(embedder: StaticEmbedder) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: embedder.embed(GOLDEN["texts"]).tobytes(), range(16)))
    assert set(results) == {embedder.embed(GOLDEN["texts"]).tobytes()}


def test_related_sentences_are_closer_than_unrelated_ones(embedder: StaticEmbedder) -> None:
    signature, signing, erasure, deleting, sterile = embedder.embed([SIGNATURE, SIGNING, ERASURE, DELETING, STERILE])
    assert signature @ signing > max(signature @ erasure, signature @ sterile) + 0.1
    assert erasure @ deleting > max(erasure @ signature, erasure @ sterile) + 0.1


def test_a_client_may_send_back_a_vector_of_the_model_without_changing_a_bit(embedder: StaticEmbedder) -> None:
    rows = embedder.embed([f"{number} {text}" for number in range(100) for text in GOLDEN["texts"]])
    assert checked_vectors(rows.tolist(), 256).tobytes() == rows.tobytes()


def test_no_texts_give_no_rows(embedder: StaticEmbedder) -> None:
    assert embedder.embed([]).shape == (0, 256)


def test_an_empty_text_is_refused(embedder: StaticEmbedder) -> None:
    with pytest.raises(TextRefused):
        embedder.embed([SIGNATURE, ""])


def test_the_name_is_fixed_by_the_weights_the_tokenizer_and_their_use(embedder: StaticEmbedder) -> None:
    """Stored vectors are kept under this name. If it changes, corpora must be embedded anew."""
    assert embedder.model == "wordllama-l2-supercat-256@aabc9a7f13c031f2"


@pytest.mark.parametrize("name", [static.WEIGHTS, static.TOKENIZER])
def test_a_file_with_one_flipped_bit_is_refused_by_name(tmp_path: Path, name: str) -> None:
    installed = package_folder(static.PACKAGE, static.REMEDY)
    for file in (static.WEIGHTS, static.TOKENIZER):
        (tmp_path / file).parent.mkdir()
        shutil.copy(installed / file, tmp_path / file)
    content = bytearray((tmp_path / name).read_bytes())
    content[-1000] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelUnusable, match=r"not the pinned file.*pip install") as refused:
        load_static(tmp_path)
    assert name in str(refused.value)


def test_a_missing_file_is_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"cannot read .* pip install"):
        load_static(tmp_path)


def test_a_missing_package_is_reported_with_the_remedy() -> None:
    with pytest.raises(ModelUnusable, match="no_such_package is not installed: do this"):
        package_folder("no_such_package", "do this")


ALONE = """
import os, sys
threads = lambda: len(os.listdir("/proc/self/task"))
from drillcore_server.vectors.embedding.static import load_static
before = threads()
embedder = load_static()
vectors = embedder.embed(["one text", "another text"] * 200)
assert threads() == before, (before, threads())
for package in ("wordllama", "requests", "pydantic", "huggingface_hub", "onnxruntime"):
    assert package not in sys.modules, package
child = os.fork()
if child == 0:
    os._exit(0 if embedder.embed(["one text", "another text"] * 200).tobytes() == vectors.tobytes() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_the_model_starts_no_threads_survives_a_fork_and_imports_no_foreign_package() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
