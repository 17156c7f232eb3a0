"""Facts through the real server against their parts alone: faiss, a gRPC echo, a durable commit.

search_overhead   SearchFacts divided by a bare query of the graph plus a bare echo plus a bare durable commit
recall_at_10      the share of ten facts found by exact search that SearchFacts finds
add_ratio         facts a second through PutFacts divided by bare inserts a second into a graph
start_ratio       the first search from a snapshot divided by reading all facts and building the graph
recluster_s       time to find communities: facts read, compared, grouped, labelled and written
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import faiss
import grpc
import numpy as np
import numpy.typing as npt

from benchmarks._communities import recluster_figures
from benchmarks._measure import percentile, seconds
from benchmarks._server import Serving, server_process
from benchmarks._texts import DATA, texts
from drillcore import Client
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import facts_pb2_grpc
from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.vectors.settings import VectorSettings

ECHO = "/benchmarks.Echo/SearchFacts"
MODEL = "benchmark"
CALL_FACTS = 1_000
"""Facts put by one call."""
RECORD_BYTES = 600
"""The size of the bare commit: about that of a search's audit record."""
LONG_S = 24 * 3600.0
Rows = npt.NDArray[np.float32]


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks facts")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/*.jsonl.gz")
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--bare", type=int, default=100_000, help="the most vectors in the bare graph")
    parser.add_argument("--directory", type=Path, default=Path(), help="folder for a temporary store")
    parser.add_argument("--echo-server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.echo_server:
        _serve_echo()
    real = list(islice(texts(options.data), options.facts + options.queries))
    assert len(real) == options.facts + options.queries, "there are not so many texts in the data"
    rows = builtin_embedder().embed(real)
    _say(f"{len(rows)} texts embedded")
    facts = Facts(real[options.queries :], rows[options.queries :], rows[: options.queries])
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        return {"benchmark": "facts", "facts": options.facts, **_measured(directory, facts, options.bare)}


@dataclass(frozen=True)
class Facts:
    texts: list[str]
    rows: Rows
    queries: Rows


def _measured(directory: str, facts: Facts, bare_max: int) -> dict[str, object]:
    bare, bare_per_s = _bare_graph(facts.rows[:bare_max])
    _say(f"bare graph: {bare_per_s:.0f} inserts/s")
    with server_process(directory) as serving:
        caller = Caller.with_corpus(serving)
        before_bytes = serving.memory_bytes
        ids, put_s = _put(caller, facts)
        _say(f"put: {len(ids) / put_s:.0f} facts/s")
        first_s = seconds(lambda: caller.search_in_the_end(facts.queries[0]))
        exact_ms = _median_ms([lambda q=q: caller.search(q) for q in facts.queries[:20]])  # type: ignore[misc]
        _say(f"first search {first_s:.1f} s, exact until there is a graph: {exact_ms:.1f} ms")
        build_s = seconds(lambda: _wait_for_snapshot(serving))
        rebuild_s = first_s + build_s
        _say(f"graph built and saved after {build_s:.1f} s more")
        figures: dict[str, object] = {
            "add_ratio": round(len(ids) / put_s / bare_per_s, 2),
            "add_facts_per_s": round(len(ids) / put_s),
            "bare_inserts_per_s": round(bare_per_s),
            **_search_figures(caller, bare, facts, directory),
            "recall_at_10": _recall(caller, ids, facts),
        }
        _say(f"searched: {figures}")
        figures |= recluster_figures(serving, caller.tenant, caller.corpus)
        _say(f"communities found in {figures['recluster_s']} s")
        grown_bytes = serving.memory_bytes - before_bytes
    with server_process(directory) as serving:
        caller = Caller(serving, caller.tenant, caller.corpus)
        before_bytes = serving.memory_bytes
        start_s = seconds(lambda: caller.search_in_the_end(facts.queries[0]))
        loaded_bytes = serving.memory_bytes - before_bytes
        _say(f"started from the snapshot in {start_s:.2f} s")
    return figures | {
        "start_ratio": round(start_s / rebuild_s, 4),
        "start_s": round(start_s, 2),
        "rebuild_s": round(rebuild_s, 1),
        "first_search_s": round(first_s, 2),
        "memory_bytes_per_fact": round(loaded_bytes / len(ids)),
        "memory_bytes_per_fact_after_building": round(grown_bytes / len(ids)),
        "snapshot_bytes_per_fact": round(sum(snapshot.stat().st_size for snapshot in _snapshots(directory)) / len(ids)),
    }


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


class Caller:
    """An operator who calls the service of facts."""

    def __init__(self, serving: Serving, tenant: str, corpus: str) -> None:
        self.tenant, self.corpus = tenant, corpus
        self._token = serving.token
        options = [("grpc.max_receive_message_length", -1)]
        channel = grpc.insecure_channel(serving.address, options=options)
        self._stub: Any = facts_pb2_grpc.FactServiceStub(channel)

    @classmethod
    def with_corpus(cls, serving: Serving) -> Caller:
        with Client(serving.address, token=serving.token) as client:
            tenant = client.create_tenant("benchmark").id
            return cls(serving, str(tenant), str(client.create_corpus("facts", tenant_id=tenant).id))

    def put(self, texts: list[str], rows: Rows) -> list[str]:
        drafts = [
            pb.FactDraft(content=text, source_id="data", embedding=row)
            for text, row in zip(texts, rows.tolist(), strict=True)
        ]
        request = pb.PutFactsRequest(tenant_id=self.tenant, corpus_id=self.corpus, facts=drafts, embedding_model=MODEL)
        return list(self._stub.PutFacts(request, **self._options()).fact_ids)

    def search(self, row: Rows) -> pb.SearchFactsResponse:
        found: pb.SearchFactsResponse = self._stub.SearchFacts(self.request(row), **self._options())
        return found

    def search_in_the_end(self, row: Rows) -> None:
        """Repeats the call: a server that reads very many facts for its first search may take longer than a
        call can."""
        while True:
            try:
                self.search(row)
                return
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise

    def request(self, row: Rows) -> pb.SearchFactsRequest:
        return pb.SearchFactsRequest(
            tenant_id=self.tenant, corpus_ids=[self.corpus], vector=row.tolist(), embedding_model=MODEL, limit=10
        )

    def _options(self) -> dict[str, Any]:
        headers = (("authorization", f"Bearer {self._token}"), ("drillcore-request-id", str(uuid4())))
        return {"metadata": headers, "timeout": LONG_S}


def _put(caller: Caller, facts: Facts) -> tuple[list[str], float]:
    ids: list[str] = []
    started = time.perf_counter()
    for start in range(0, len(facts.texts), CALL_FACTS):
        ids += caller.put(facts.texts[start : start + CALL_FACTS], facts.rows[start : start + CALL_FACTS])
    return ids, time.perf_counter() - started


def _bare_graph(rows: Rows) -> tuple[Any, float]:
    """Returns faiss alone on one thread, and how many vectors it takes a second."""
    settings = VectorSettings()
    index = faiss.IndexHNSWFlat(rows.shape[1], settings.m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = settings.ef_construction, settings.ef_search
    faiss.omp_set_num_threads(1)
    took_s = seconds(lambda: index.add(rows))
    return index, len(rows) / took_s


def _snapshots(directory: str) -> list[Path]:
    return list((Path(directory) / "data" / "indexes").glob("*-facts-*.index"))


def _wait_for_snapshot(serving: Serving) -> None:
    while not list((serving.data / "indexes").glob("*-facts-*.index")):
        time.sleep(0.2)


def _search_figures(caller: Caller, bare: Any, facts: Facts, directory: str) -> dict[str, object]:
    """Asks all four each query in turn, so that a busy moment affects them alike."""
    engine = EmbeddedEngine.open(EmbeddedSettings(Path(directory) / "bare", Durability.FULL))
    record = bytes(RECORD_BYTES)
    times: dict[str, list[float]] = {"search": [], "graph": [], "echo": [], "commit": []}
    try:
        with _echo_server() as echo:
            for number, row in enumerate(facts.queries):
                request = caller.request(row)
                times["search"].append(seconds(lambda r=row: caller.search(r)))  # type: ignore[misc]
                times["graph"].append(seconds(lambda r=row: bare.search(r[np.newaxis], 10)))  # type: ignore[misc]
                times["echo"].append(seconds(lambda r=request: echo(r)))  # type: ignore[misc]
                key = number.to_bytes(8, "big")
                times["commit"].append(seconds(lambda k=key: engine.run(lambda tr: tr.set(k, record))))  # type: ignore[misc]
    finally:
        engine.close()
    median = {name: statistics.median(values) for name, values in times.items()}
    parts_s = median["graph"] + median["echo"] + median["commit"]
    return {
        "search_overhead": round(median["search"] / parts_s, 2),
        "search_p50_ms": round(median["search"] * 1e3, 2),
        "search_p99_ms": round(percentile(times["search"], 0.99) * 1e3, 2),
        **{f"bare_{name}_ms": round(median[name] * 1e3, 2) for name in ("graph", "echo", "commit")},
    }


def _recall(caller: Caller, ids: list[str], facts: Facts) -> float:
    """Does the exact search here, with numpy, on the vectors as they are stored."""
    stored = facts.rows.astype(np.float16).astype(np.float32)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    hits = 0
    for row in facts.queries:
        scores = stored @ row
        best = {ids[place] for place in np.argpartition(-scores, 10)[:10]}
        hits += sum(hit.fact.fact_id in best for hit in caller.search(row).hits)
    return round(hits / (10 * len(facts.queries)), 4)


def _median_ms(calls: list[Callable[[], object]]) -> float:
    return statistics.median(map(seconds, calls)) * 1e3


@contextmanager
def _echo_server() -> Iterator[Callable[[pb.SearchFactsRequest], object]]:
    command = [sys.executable, "-m", "benchmarks", "facts", "--echo-server"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield channel.unary_unary(ECHO, pb.SearchFactsRequest.SerializeToString, pb.SearchFactsResponse.FromString)
    finally:
        process.terminate()
        process.wait()


def _serve_echo() -> None:
    """Answers every search with ten facts of the usual size, from the same kind of server."""
    fact = pb.Fact(fact_id="0" * 36, corpus_id="1" * 36, content="x" * 200, content_hash="2" * 64, source_id="data")
    answer = pb.SearchFactsResponse(hits=[pb.FactHit(fact=fact, score=0.5) for _ in range(10)])
    handler = grpc.unary_unary_rpc_method_handler(
        lambda _request, _context: answer, pb.SearchFactsRequest.FromString, pb.SearchFactsResponse.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("benchmarks.Echo", {"SearchFacts": handler}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()
