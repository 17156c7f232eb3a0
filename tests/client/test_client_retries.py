"""When the client tries again, and what it then sends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from drillcore import AsyncClient, Client, Conflict, DeadlineExceeded, DrillcoreError, Reason, Unavailable
from tests.support.servers.in_memory_server import Peer, because, running


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def create_tenant(kind: str, address: str, *, timeout_s: float = 30, attempts: int = 5) -> None:
    if kind == "Client":
        with Client(address, timeout_s=timeout_s, attempts=attempts) as client:
            client.create_tenant("acme")
        return

    async def create() -> None:
        async with AsyncClient(address, timeout_s=timeout_s, attempts=attempts) as client:
            await client.create_tenant("acme")

    asyncio.run(create())


both_clients = pytest.mark.parametrize("kind", ["Client", "AsyncClient"])


@both_clients
def test_a_write_is_retried_with_the_same_request_id(kind: str, peer: Peer) -> None:
    peer.failures = [because(Reason.OUTCOME_UNKNOWN), because(Reason.SHUTTING_DOWN)]
    create_tenant(kind, peer.address)
    assert len(peer.seen) == 3
    assert len(set(peer.request_ids())) == 1
    assert len(peer.records) == 1


@both_clients
def test_attempts_are_bounded(kind: str, peer: Peer) -> None:
    peer.failures = [because(Reason.STORE_UNAVAILABLE)] * 10
    with pytest.raises(Unavailable) as caught:
        create_tenant(kind, peer.address, attempts=2)
    assert caught.value.reason is Reason.STORE_UNAVAILABLE
    assert len(peer.seen) == 2


def test_a_single_attempt_means_no_retry(peer: Peer) -> None:
    peer.failures = [because(Reason.STORE_UNAVAILABLE)]
    with pytest.raises(Unavailable):
        create_tenant("Client", peer.address, attempts=1)
    assert len(peer.seen) == 1


@both_clients
def test_the_client_waits_for_a_connection_that_takes_a_second(kind: str, peer: Peer) -> None:
    """Connections to a distant server or on a busy machine may be slow. Nothing is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as slow, ThreadPoolExecutor(3) as pool:

        def relay() -> None:
            near, _ = slow.accept()
            threading.Event().wait(1.0)
            host, port = peer.address.split(":")
            with near, socket.create_connection((host, int(port))) as far:
                there = pool.submit(copy, near, far)
                copy(far, near)
                there.result(30)

        relayed = pool.submit(relay)
        create_tenant(kind, f"127.0.0.1:{slow.getsockname()[1]}", attempts=1)
        relayed.result(30)
    assert len(peer.seen) == 1


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@both_clients
def test_retries_end_with_the_deadline_of_the_call(kind: str, peer: Peer) -> None:
    peer.failures = [because(Reason.STORE_UNAVAILABLE)] * 10
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        create_tenant(kind, peer.address, timeout_s=0.5)
    assert time.monotonic() - start < 5


RETRIED = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
"""A server that stops answers the calls in progress with CANCELLED."""


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.code not in RETRIED])
def test_no_other_reason_is_retried(reason: Reason, peer: Peer) -> None:
    peer.failures = [because(reason)]
    with pytest.raises(DrillcoreError), Client(peer.address) as client:
        client.create_tenant("acme")
    assert len(peer.seen) == 1


@both_clients
def test_a_call_to_a_server_that_is_still_starting_succeeds(kind: str) -> None:
    with running() as peer:
        address = peer.address
    peer, stop = Peer(), threading.Event()

    def start_late() -> None:
        stop.wait(0.3)  # by then the client was refused; if not, the test only proves less
        with running(peer, address=address):
            stop.wait()

    server = threading.Thread(target=start_late)
    server.start()
    try:
        create_tenant(kind, address)
    finally:
        stop.set()
        server.join()
    assert len(peer.records) == 1


def test_a_client_survives_a_restart_of_its_server() -> None:
    with running() as peer:
        address = peer.address
    with Client(address) as client:
        with running(address=address):
            client.create_tenant("acme")
        with running(address=address) as second:
            client.create_tenant("acme")
            assert len(second.records) == 1


def test_a_conflict_is_left_to_the_caller(peer: Peer) -> None:
    peer.failures = [because(Reason.VERSION_MISMATCH)]
    with pytest.raises(Conflict), Client(peer.address) as client:
        client.create_tenant("acme")
