"""Compares calls through the real server with a bare gRPC echo of the same messages, each server in its own process."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import grpc.aio

from benchmarks._measure import in_threads, percentile
from benchmarks._server import real_server
from drillcore import AsyncClient, Client
from drillcore_proto.v1 import corpora_pb2 as pb

ECHO = "/benchmarks.Echo/GetCorpus"


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks rpc")
    parser.add_argument("--calls", type=int, default=1_500, help="calls of each kind in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--echo-server", choices=["threaded", "asyncio"], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.echo_server == "threaded":
        _serve_echo()
    elif options.echo_server == "asyncio":
        asyncio.run(_serve_echo_asyncio())
    with (
        tempfile.TemporaryDirectory(dir=".") as directory,
        _echo_server("threaded") as echo,
        _echo_server("asyncio") as asyncio_echo,
        real_server(directory) as (address, token, _),
    ):
        samples = _Samples(options.calls, options.threads)
        tenant, corpus = _corpus(address, token)
        for _ in range(options.rounds):
            _echo_round(samples, "asyncio_server_echo", asyncio_echo)
            _one_round(samples, echo, address, token, tenant, corpus)
        return {"benchmark": "rpc", **samples.report()}


class _Samples:
    """Latencies of sequential calls and rates of concurrent ones, by kind of call, with a list entry for each round."""

    def __init__(self, calls: int, threads: int) -> None:
        self._calls = calls
        self._threads = threads
        self._latencies: dict[str, list[list[float]]] = {}
        self._rates: dict[str, list[float]] = {}

    def sequential(self, kind: str, call: Callable[[], object], share: int = 1) -> None:
        self._add(kind, [_timed(call) for _ in range(self._calls // share)])

    def concurrent(self, kind: str, call: Callable[[], object], share: int = 1) -> None:
        each = self._calls // share // self._threads
        started = time.perf_counter()
        in_threads(self._threads, lambda _number: [call() for _ in range(each)] and None)
        self._rates.setdefault(kind, []).append(each * self._threads / (time.perf_counter() - started))

    async def asynchronous(self, kind: str, call: Callable[[], Awaitable[object]], share: int = 1) -> None:
        latencies = []
        for _ in range(self._calls // share):
            started = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - started)
        self._add(kind, latencies)
        each = self._calls // share // self._threads

        async def several() -> None:
            for _ in range(each):
                await call()

        started = time.perf_counter()
        await asyncio.gather(*(several() for _ in range(self._threads)))
        self._rates.setdefault(kind, []).append(each * self._threads / (time.perf_counter() - started))

    def report(self) -> dict[str, object]:
        figures: dict[str, object] = {}
        for kind, rounds in self._latencies.items():
            figures[f"{kind}_p50_ms"] = round(statistics.median(percentile(times, 0.5) for times in rounds) * 1e3, 3)
            figures[f"{kind}_p99_ms"] = round(statistics.median(percentile(times, 0.99) for times in rounds) * 1e3, 3)
            figures[f"{kind}_calls_per_s"] = round(statistics.median(self._rates[kind]))
        for client in ("sync", "async"):
            for call in ("read", "write"):
                figures[f"{client}_{call}_ratio"] = self._ratio(f"{client}_{call}", f"{client}_echo")
                own, echo = self._rates[f"{client}_{call}"], self._rates[f"{client}_echo"]
                pairs = zip(own, echo, strict=True)
                figures[f"{client}_{call}_concurrent_ratio"] = round(statistics.median(o / e for o, e in pairs), 3)
        figures["read_ratio"] = figures["sync_read_ratio"]
        return figures

    def _ratio(self, ours: str, theirs: str) -> float:
        """Returns how many of our sequential calls fit into the time of one of theirs."""
        pairs = zip(self._latencies[ours], self._latencies[theirs], strict=True)
        return round(statistics.median(sum(echo) / len(echo) / (sum(own) / len(own)) for own, echo in pairs), 3)

    def _add(self, kind: str, latencies: list[float]) -> None:
        self._latencies.setdefault(kind, []).append(latencies)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _one_round(samples: _Samples, echo_address: str, address: str, token: str, tenant: str, corpus: str) -> None:
    _echo_round(samples, "sync_echo", echo_address)
    with Client(address, token=token, tenant_id=tenant) as client:
        samples.sequential("sync_read", lambda: client.get_corpus(corpus))
        samples.concurrent("sync_read", lambda: client.get_corpus(corpus))
        samples.sequential("sync_write", lambda: client.update_corpus(corpus, description="changed"), share=4)
        samples.concurrent("sync_write", _fresh_writer(client), share=4)
    asyncio.run(_one_async_round(samples, echo_address, address, token, tenant, corpus))


def _echo_round(samples: _Samples, kind: str, address: str) -> None:
    request = pb.GetCorpusRequest(tenant_id="1" * 36, id="0" * 36)
    with grpc.insecure_channel(address) as channel:
        echo = channel.unary_unary(ECHO, pb.GetCorpusRequest.SerializeToString, pb.GetCorpusResponse.FromString)
        samples.sequential(kind, lambda: echo(request))
        samples.concurrent(kind, lambda: echo(request))


def _fresh_writer(client: Client) -> Callable[[], object]:
    """Writes without contention for one record: each call makes a corpus of its own."""
    started = time.time_ns()
    numbers = iter(range(10**9))
    return lambda: client.create_corpus(f"corpus {started} {next(numbers)}")


async def _one_async_round(
    samples: _Samples, echo_address: str, address: str, token: str, tenant: str, corpus: str
) -> None:
    request = pb.GetCorpusRequest(tenant_id=tenant, id=corpus)
    async with grpc.aio.insecure_channel(echo_address) as channel:
        echo = channel.unary_unary(ECHO, pb.GetCorpusRequest.SerializeToString, pb.GetCorpusResponse.FromString)
        await samples.asynchronous("async_echo", lambda: echo(request))
    started = time.time_ns()
    numbers = iter(range(10**9))
    async with AsyncClient(address, token=token, tenant_id=tenant) as client:
        await samples.asynchronous("async_read", lambda: client.get_corpus(corpus))
        create = client.create_corpus
        await samples.asynchronous("async_write", lambda: create(f"async {started} {next(numbers)}"), share=4)


def _corpus(address: str, token: str) -> tuple[str, str]:
    """Returns the ids of a new tenant and its corpus."""
    with Client(address, token=token) as client:
        tenant = client.create_tenant("benchmark")
        corpus = client.create_corpus("first", description="a corpus", tenant_id=tenant.id)
    return str(tenant.id), str(corpus.id)


@contextmanager
def _echo_server(kind: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "rpc", "--echo-server", kind], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


def _corpus_of_usual_size() -> pb.Corpus:
    corpus = pb.Corpus(id="0" * 36, tenant_id="1" * 36, name="first", description="a corpus", created_by="operator")
    corpus.version = 1
    corpus.created_at.GetCurrentTime()
    corpus.updated_at.GetCurrentTime()
    return corpus


def _echo_handlers(answer: Callable[..., object]) -> tuple[grpc.GenericRpcHandler]:
    handler = grpc.unary_unary_rpc_method_handler(
        answer, pb.GetCorpusRequest.FromString, pb.GetCorpusResponse.SerializeToString
    )
    return (grpc.method_handlers_generic_handler("benchmarks.Echo", {"GetCorpus": handler}),)


def _serve_echo() -> None:
    """Answers every request with a corpus of the same size as the real one, from the same kind of server."""
    corpus = _corpus_of_usual_size()
    server = grpc.server(ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers(_echo_handlers(lambda _request, _context: pb.GetCorpusResponse(corpus=corpus)))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


async def _serve_echo_asyncio() -> None:
    """The same from gRPC's asyncio server."""
    corpus = _corpus_of_usual_size()

    async def answer(_request: pb.GetCorpusRequest, _context: object) -> pb.GetCorpusResponse:
        return pb.GetCorpusResponse(corpus=corpus)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(_echo_handlers(answer))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
