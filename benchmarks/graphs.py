"""Compares libraries for the graph of near vectors on real texts, with the settings of the server.

Each library runs in a process of its own, in turn with the others, once in each round; figures are medians.

recall_at_10       share of the ten nearest vectors, found by comparing all, that a search finds
queries_per_s      one query at a time, on one thread
two_threads        queries a second on two threads, divided by those on one
inserts_per_s      building, on one thread
save_s, load_s     writing the graph to memory or to a file, and reading it back
bytes_per_vector   memory of the process after building, minus what it had before
stall_ms           the longest time that another Python thread waited while the graph was built, saved and loaded
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks._measure import in_threads, seconds
from benchmarks._texts import DATA, texts
from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.vectors.settings import VectorSettings

Rows = npt.NDArray[np.float32]
SETTINGS = VectorSettings()
FOUND = 10


class Library(Protocol):
    def __init__(self, dimensions: int, count: int) -> None: ...
    def add(self, rows: Rows) -> None: ...
    def nearest(self, row: Rows) -> npt.NDArray[Any]: ...
    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...


class Faiss:
    module = "faiss"

    def __init__(self, dimensions: int, count: int) -> None:
        import faiss

        self._faiss: Any = faiss
        faiss.omp_set_num_threads(1)
        self._index: Any = faiss.IndexHNSWFlat(dimensions, SETTINGS.m, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = SETTINGS.ef_construction
        self._index.hnsw.efSearch = SETTINGS.ef_search

    def add(self, rows: Rows) -> None:
        self._index.add(rows)

    def nearest(self, row: Rows) -> npt.NDArray[Any]:
        return np.asarray(self._index.search(row[np.newaxis], FOUND)[1][0])

    def save(self, folder: Path) -> None:
        self._saved = self._faiss.serialize_index(self._index)

    def load(self, folder: Path) -> None:
        self._index = self._faiss.deserialize_index(self._saved)


class Hnswlib:
    module = "hnswlib"

    def __init__(self, dimensions: int, count: int) -> None:
        import hnswlib

        self._hnswlib: Any = hnswlib
        self._index: Any = hnswlib.Index("ip", dimensions)
        self._index.init_index(count, M=SETTINGS.m, ef_construction=SETTINGS.ef_construction)
        self._index.set_ef(SETTINGS.ef_search)

    def add(self, rows: Rows) -> None:
        self._index.add_items(rows, num_threads=1)

    def nearest(self, row: Rows) -> npt.NDArray[Any]:
        return np.asarray(self._index.knn_query(row, k=FOUND, num_threads=1)[0][0])

    def save(self, folder: Path) -> None:
        self._index.save_index(str(folder / "graph"))

    def load(self, folder: Path) -> None:
        self._index = self._hnswlib.Index("ip", self._index.dim)
        self._index.load_index(str(folder / "graph"))
        self._index.set_ef(SETTINGS.ef_search)  # a file does not keep it


class Usearch:
    module = "usearch"

    def __init__(self, dimensions: int, count: int) -> None:
        from usearch.index import Index

        self._index: Any = Index(
            ndim=dimensions,
            metric="ip",
            dtype="f32",
            connectivity=SETTINGS.m,
            expansion_add=SETTINGS.ef_construction,
            expansion_search=SETTINGS.ef_search,
        )

    def add(self, rows: Rows) -> None:
        self._index.add(np.arange(len(rows)), rows, threads=1)

    def nearest(self, row: Rows) -> npt.NDArray[Any]:
        return np.asarray(self._index.search(row, FOUND, threads=1).keys)

    def save(self, folder: Path) -> None:
        self._saved = self._index.save()

    def load(self, folder: Path) -> None:
        self._index.load(self._saved)


class Voyager:
    module = "voyager"

    def __init__(self, dimensions: int, count: int) -> None:
        import voyager

        self._voyager: Any = voyager
        self._index: Any = voyager.Index(
            voyager.Space.InnerProduct, dimensions, M=SETTINGS.m, ef_construction=SETTINGS.ef_construction
        )

    def add(self, rows: Rows) -> None:
        self._index.add_items(rows, num_threads=1)

    def nearest(self, row: Rows) -> npt.NDArray[Any]:
        return np.asarray(self._index.query(row, FOUND, num_threads=1, query_ef=SETTINGS.ef_search)[0])

    def save(self, folder: Path) -> None:
        self._saved = self._index.as_bytes()

    def load(self, folder: Path) -> None:
        import io

        self._index = self._voyager.Index.load(io.BytesIO(self._saved))


LIBRARIES: dict[str, Any] = {"faiss": Faiss, "hnswlib": Hnswlib, "usearch": Usearch, "voyager": Voyager}


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks graphs")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/*.jsonl.gz")
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=[*LIBRARIES], help="libraries to compare")
    parser.add_argument("--alone", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        return _figures(LIBRARIES[options.alone], np.load(options.rows), options.queries)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, builtin_embedder().embed(list(islice(texts(options.data), options.vectors + options.queries))))
        names = [name for name in options.only if importlib.util.find_spec(LIBRARIES[name].module)]
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                measured[name].append(_alone(name, path, options.queries))
    figures = {name: _medians(rounds) for name, rounds in measured.items()}
    return {"benchmark": "graphs", "vectors": options.vectors, **figures}


def _alone(name: str, rows: Path, queries: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", "graphs", "--alone", name, "--rows", str(rows)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(
        [*command, "--queries", str(queries)], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    figures: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    print(name, figures, file=sys.stderr, flush=True)
    return figures


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {figure: statistics.median(measured[figure] for measured in rounds) for figure in rounds[0]}


def _figures(library: type[Library], rows: Rows, queries: int) -> dict[str, object]:
    asked, stored = rows[:queries], np.ascontiguousarray(rows[queries:])
    best = np.vstack([np.argpartition(-(stored @ row), FOUND)[:FOUND] for row in asked])
    with tempfile.TemporaryDirectory() as name:
        folder, before_bytes = Path(name), _memory_bytes()
        graph = library(stored.shape[1], len(stored))
        with _stalls() as stall_ms:
            build_s = seconds(lambda: graph.add(stored))
            grown_bytes = _memory_bytes() - before_bytes
            save_s = seconds(lambda: graph.save(folder))
            load_s = seconds(lambda: graph.load(folder))
    found = [graph.nearest(row) for row in asked]
    hits = sum(len(set(near.tolist()) & set(own.tolist())) for near, own in zip(found, best, strict=True))
    one_thread = len(asked) / seconds(_asks(graph, asked))
    two_threads = 2 * len(asked) / seconds(lambda: in_threads(2, lambda _: _asks(graph, asked)()))
    return {
        "recall_at_10": round(hits / best.size, 4),
        "queries_per_s": round(one_thread),
        "two_threads": round(two_threads / one_thread, 2),
        "inserts_per_s": round(len(stored) / build_s),
        "save_s": round(save_s, 3),
        "load_s": round(load_s, 3),
        "bytes_per_vector": round(grown_bytes / len(stored)),
        "stall_ms": round(max(stall_ms)),
    }


def _asks(graph: Library, asked: Rows) -> Callable[[], None]:
    def ask() -> None:
        for row in asked:
            graph.nearest(row)

    return ask


@contextmanager
def _stalls() -> Iterator[list[float]]:
    """Measures how long another thread, which wakes every millisecond, had to wait for the interpreter."""
    waits, done = [0.0], threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.wait(0.001):
            waits.append((time.perf_counter() - last) * 1e3)
            last = time.perf_counter()
        waits.append((time.perf_counter() - last) * 1e3)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield waits
    finally:
        done.set()
        thread.join()


def _memory_bytes() -> int:
    """Returns the resident memory of this process. Linux only, like the other benchmarks."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
