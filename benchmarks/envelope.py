"""Packs envelopes through the real server and gRPC, with their audit records, at growing numbers of facts.

growth              median time of a pack at the largest number of facts divided by that at the smallest
not_modified_ratio  time of a NOT_MODIFIED answer divided by that of a full pack, where it is highest
peer_speed          time of crprotocol's construct() divided by that of a pack: same facts, queries, budget and run

Facts are real sentences, in communities that the server has found. They come from no documents, so there are no
sections to drill into. Queries are other sentences of the same texts; each is asked once of each corpus, and all
corpora take turns. The time of a pack is what a caller waits: it includes embedding the query, the durable audit record
and the network. `server_p50_ms` is the server's own part. `_peer` says what the peer's time includes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc

from benchmarks._communities import recluster_figures
from benchmarks._measure import percentile, seconds
from benchmarks._peer import is_installed, peer_process
from benchmarks._server import Serving, server_process
from benchmarks._texts import DATA, texts
from drillcore import Client
from drillcore_fdb import codec
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import envelopes_pb2_grpc, facts_pb2, facts_pb2_grpc
from drillcore_server.storage.ids import EnvelopeId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from drillcore_server.vectors.settings import VectorSettings

SIZES = (1_000, 10_000, 100_000)
PEER_FACTS = 2_000
PEER_QUERIES = 15
WARM_UP = 10
"""Queries that are not counted."""
BUDGET_TOKENS = 2_000
MODEL = "gpt-4o"
"""The model whose tokens are counted."""
CALL_FACTS = 1_000
"""Facts put by one call."""
LONG_S = 24 * 3600.0
LOOK_AGAIN_S = 0.2


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks envelope")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/*.jsonl.gz")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of facts in a corpus")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--directory", type=Path, default=Path(), help="folder for a temporary store")
    options = parser.parse_args(arguments)
    sizes = sorted(options.sizes)
    queries, facts = _apart(options.data, options.queries + WARM_UP + PEER_QUERIES, max(*sizes, PEER_FACTS))
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        return {
            "benchmark": "envelope",
            "sizes": sizes,
            "queries": options.queries,
            "budget_tokens": BUDGET_TOKENS,
            **_measured(directory, sizes, facts, queries),
        }


def _apart(data: Path, queries: int, facts: int) -> tuple[list[str], list[str]]:
    """Returns so many queries, spread over the texts, and the rest."""
    found = list(islice(texts(data), queries + facts))
    assert len(found) == queries + facts, "there are not so many texts in the data"
    step = len(found) // queries
    asked = set(range(0, step * queries, step))
    return [found[place] for place in sorted(asked)], [text for place, text in enumerate(found) if place not in asked]


def _spread(facts: Sequence[str], size: int) -> list[str]:
    """Returns so many facts, spread over the texts: a smaller corpus is not about less."""
    return list(facts[:: len(facts) // size][:size])


def _measured(directory: str, sizes: list[int], facts: list[str], queries: list[str]) -> dict[str, object]:
    first, counted = queries[: WARM_UP + PEER_QUERIES], queries[WARM_UP + PEER_QUERIES :]
    with server_process(directory) as serving:
        tenant = _tenant(serving)
        corpora = {size: _filled(serving, tenant, _spread(facts, size)) for size in {*sizes, PEER_FACTS}}
        packers = {size: Packer(serving, tenant, corpus) for size, corpus in corpora.items()}
        _wait_for_graphs(serving, packers, first[0])
        for query in first[:WARM_UP]:
            for packer in packers.values():
                packer.pack(query)
        turns = {size: packers[size] for size in sizes}
        for packer in packers.values():
            packer.begin()
        for query in counted:
            for packer in turns.values():
                packer.pack_twice(query)
        _say("packed")
        server_ms = _logged(directory)
        figures = {size: packer.figures(server_ms) for size, packer in turns.items()}
        _say(str(figures))
        envelopes = [envelope for packer in turns.values() for envelope in packer.envelopes]
        packers[PEER_FACTS].begin()
        peer = _peer_figures(directory, packers[PEER_FACTS], _spread(facts, PEER_FACTS), first[WARM_UP:])
        _say(str(peer))
    for size in sizes:
        with server_process(directory) as serving:
            figures[size] |= Packer(serving, tenant, corpora[size]).first_figures(first)
    smallest, largest = figures[sizes[0]], figures[sizes[-1]]
    return {
        "growth": round(largest["p50_ms"] / smallest["p50_ms"], 2),
        "not_modified_ratio": max(figure["not_modified_ratio"] for figure in figures.values()),
        **peer,
        "stored_bytes_per_envelope": _stored_bytes(directory, tenant, envelopes),
        "memory_mb": largest["memory_mb"],
        "at": figures,
    }


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def _tenant(serving: Serving) -> str:
    with Client(serving.address, token=serving.token) as client:
        return str(client.create_tenant("benchmark").id)


def _filled(serving: Serving, tenant: str, facts: list[str]) -> str:
    """Makes a corpus of these facts, in communities."""
    with Client(serving.address, token=serving.token) as client:
        corpus = str(client.create_corpus(f"{len(facts)} facts", tenant_id=UUID(tenant)).id)
    with grpc.insecure_channel(serving.address) as channel:
        stub: Any = facts_pb2_grpc.FactServiceStub(channel)
        for start in range(0, len(facts), CALL_FACTS):
            drafts = [facts_pb2.FactDraft(content=text, source_id="data") for text in facts[start : start + CALL_FACTS]]
            request = facts_pb2.PutFactsRequest(tenant_id=tenant, corpus_id=corpus, facts=drafts)
            stub.PutFacts(request, **_options(serving, str(uuid4())))
    found = recluster_figures(serving, tenant, corpus)
    _say(f"{len(facts)} facts put, {found['communities']} communities found in {found['recluster_s']} s")
    return corpus


def _options(serving: Serving, request_id: str) -> dict[str, Any]:
    headers = (("authorization", f"Bearer {serving.token}"), ("drillcore-request-id", request_id))
    return {"metadata": headers, "timeout": LONG_S}


@dataclass
class Packer:
    """An operator who asks for envelopes of one corpus, with the times of the calls."""

    serving: Serving
    tenant: str
    corpus: str
    times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    requests: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answers: list[pb.PackEnvelopeResponse] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stub: Any = envelopes_pb2_grpc.EnvelopeServiceStub(grpc.insecure_channel(self.serving.address))

    def begin(self) -> None:
        """Forgets what was measured so far."""
        self.times_s.clear()
        self.requests.clear()
        self.answers.clear()

    @property
    def envelopes(self) -> list[str]:
        return [answer.envelope_id for answer in self.answers]

    def pack(self, query: str) -> pb.PackEnvelopeResponse:
        answer = self._call("pack", query, "")
        self.answers.append(answer)
        return answer

    def pack_twice(self, query: str) -> None:
        """Packs twice; the second answer is NOT_MODIFIED."""
        again = self._call("not_modified", query, self.pack(query).envelope.etag)
        assert again.not_modified, "an envelope was packed again though nothing has changed"

    def pack_in_the_end(self, query: str) -> pb.PackEnvelopeResponse:
        """Repeats the call: a server that reads very many facts for its first envelope may take longer than
        a call can."""
        while True:
            try:
                return self.pack(query)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise

    def _call(self, what: str, query: str, etag: str) -> pb.PackEnvelopeResponse:
        request = pb.PackEnvelopeRequest(
            tenant_id=self.tenant,
            question=pb.EnvelopeQuestion(
                query=query, corpus_ids=[self.corpus], budget=pb.TokenBudget(model=MODEL, tokens=BUDGET_TOKENS)
            ),
            if_match=etag,
        )
        request_id = str(uuid4())
        started = time.perf_counter()
        answer: pb.PackEnvelopeResponse = self._stub.PackEnvelope(request, **_options(self.serving, request_id))
        self.times_s[what].append(time.perf_counter() - started)
        self.requests[what].append(request_id)
        return answer

    def figures(self, server_ms: dict[str, float]) -> dict[str, Any]:
        packed, unmodified = self.times_s["pack"], self.times_s["not_modified"]
        return {
            "p50_ms": _ms(statistics.median(packed)),
            "p99_ms": _ms(percentile(packed, 0.99)),
            "server_p50_ms": round(statistics.median(server_ms[request] for request in self.requests["pack"]), 2),
            "not_modified_p50_ms": _ms(statistics.median(unmodified)),
            "not_modified_ratio": round(statistics.median(unmodified) / statistics.median(packed), 3),
            "candidates": statistics.median(answer.envelope.total_facts_available for answer in self.answers),
            "facts": statistics.median(answer.envelope.total_facts_included for answer in self.answers),
            "is_exact": all(answer.envelope.exact for answer in self.answers),
        }

    def first_figures(self, queries: Sequence[str]) -> dict[str, Any]:
        """Measures the first pack of a server that has just started, and its memory after some packs."""
        first_s = seconds(lambda: self.pack_in_the_end(queries[0]))
        for query in queries[1:]:
            self.pack(query)
        return {"first_pack_ms": _ms(first_s), "memory_mb": round(self.serving.memory_bytes / 2**20)}


def _ms(value_s: float) -> float:
    return round(value_s * 1e3, 2)


def _wait_for_graphs(serving: Serving, packers: dict[int, Packer], query: str) -> None:
    """Waits until graphs are saved. The first query of a large corpus starts its graph; a complete graph is saved."""
    for packer in packers.values():
        packer.pack_in_the_end(query)
    awaited = sum(size > VectorSettings().exact_below for size in packers)
    took_s = seconds(lambda: _wait_for_snapshots(serving, awaited))
    _say(f"graphs built and saved after {took_s:.1f} s")


def _wait_for_snapshots(serving: Serving, awaited: int) -> None:
    while len(list((serving.data / "indexes").glob("*-facts-*.index"))) < awaited:
        time.sleep(LOOK_AGAIN_S)


def _logged(directory: str) -> dict[str, float]:
    """Returns what the server logged as the time of each call, by request id."""
    lines = (Path(directory) / "server.log").read_text("utf-8").splitlines()
    calls = (json.loads(line) for line in lines if '"PackEnvelope"' in line)
    return {call["request_id"]: call["ms"] for call in calls}


def _peer_figures(directory: str, packer: Packer, facts: list[str], queries: list[str]) -> dict[str, Any]:
    """Asks both each query in turn, so that a busy moment affects them alike."""
    if not is_installed():
        _say("crprotocol is not installed, so nothing is compared with it: make bench")
        return {"peer_speed": None}
    theirs = []
    with peer_process(directory, facts, BUDGET_TOKENS) as peer:
        for query in queries:
            packer.pack(query)
            theirs.append(peer.construct(query))
    ours_s, theirs_s = packer.times_s["pack"], [run["seconds"] for run in theirs]
    return {
        "peer_speed": round(statistics.median(theirs_s) / statistics.median(ours_s), 1),
        "peer_facts": len(facts),
        "peer_ms": _ms(statistics.median(theirs_s)),
        "ours_ms": _ms(statistics.median(ours_s)),
        "peer_aspects": statistics.median(run["aspects"] for run in theirs),
        "peer_included": statistics.median(run["facts"] for run in theirs),
        "ours_included": statistics.median(answer.envelope.total_facts_included for answer in packer.answers),
    }


def _stored_bytes(directory: str, tenant: str, envelopes: list[str]) -> float:
    """Returns the median size of the sealed record that the store keeps of an envelope."""
    engine = EmbeddedEngine.open(EmbeddedSettings(Path(directory) / "data", Durability.RELAXED))
    try:
        keys = Keyspace(open_store(engine)[0])
        wanted = [keys.envelope(TenantId(UUID(tenant)), EnvelopeId(UUID(envelope))) for envelope in envelopes]
        found = engine.run(lambda tr: [codec.read(tr, key) for key in wanted])
    finally:
        engine.close()
    return statistics.median(len(stored) for stored in found if stored is not None)
