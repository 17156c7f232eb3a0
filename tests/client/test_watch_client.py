"""Watching events through the clients while the server stops, dies and comes back."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import AsyncClient, Cancelled, Client, Event, EventKind, NewFact, Unavailable
from tests.support.fixtures import new_corpus
from tests.support.processes.children import gone_afterwards
from tests.support.processes.drillcore_process import environment, serving
from tests.support.servers.running import ACME, Running, create_tenants, running

ROUNDS = 3
LAST = UUID("99999999-9999-4999-8999-999999999999")
"""The fact that ends a watch which nobody closes."""

Heard = queue.Queue[Event | str]
"""Events and tokens in the order in which they were received."""
Watch = Callable[[Client, Heard], None]


def sync(client: Client, heard: Heard) -> None:
    for event in client.watch_events(kinds=[EventKind.FACT_ADDED], on_token=heard.put):
        heard.put(event)


def asynchronous(client: Client, heard: Heard) -> None:
    async def watch() -> None:
        async with AsyncClient.from_settings(client.settings) as own:
            async for event in own.watch_events(kinds=[EventKind.FACT_ADDED], on_token=heard.put):
                heard.put(event)
                if event.fact_id == LAST:
                    return

    asyncio.run(watch())


@contextmanager
def watching(watch: Watch, client: Client) -> Iterator[Heard]:
    heard: Heard = queue.Queue()

    def listen() -> None:
        with suppress(Cancelled, Unavailable):  # at the end, when the test has stopped the server and closed the client
            watch(client, heard)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield heard
    finally:
        client.close()
        thread.join(timeout=30)
        assert not thread.is_alive()


def facts_of(heard: Heard, *, until: UUID) -> list[UUID | None]:
    """The facts of the received events, up to that fact."""
    found: list[UUID | None] = []
    while until not in found:
        if isinstance(item := heard.get(timeout=60), Event):
            found.append(item.fact_id)
    return found


def put(client: Client, corpus: UUID | str, number: int, fact_id: UUID | None = None) -> UUID:
    fact = NewFact(f"Site {number} keeps its training records for {number} years after the trial.", "sop", id=fact_id)
    return client.put_facts(corpus, [fact]).fact_ids[0]


def again(server: Running) -> Client:
    """A client that retries: gRPC may remember that nobody answered at this address a moment ago."""
    return server.client(ACME, attempts=5)


@pytest.mark.parametrize("watch", [sync, asynchronous], ids=["Client", "AsyncClient"])
def test_no_event_is_lost_or_doubled_while_the_server_is_restarted(tmp_path: Path, watch: Watch) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client())
        corpus, address = new_corpus(server), server.address
    added: list[UUID] = []
    heard_of: list[UUID | None] = []
    with watching(watch, Client(address, token=ACME, timeout_s=60)) as heard:
        for number in range(ROUNDS):
            with running(tmp_path, listen=address) as server:
                if number == 0:
                    assert isinstance(heard.get(timeout=60), str), "the watch has begun"
                added.append(put(again(server), corpus, 2 * number))
                heard_of += facts_of(heard, until=added[-1])
                added.append(put(again(server), corpus, 2 * number + 1))  # this server or the next one sends the event
        with running(tmp_path, listen=address) as server:
            added.append(put(again(server), corpus, 2 * ROUNDS, LAST))
            heard_of += facts_of(heard, until=LAST)
    assert heard_of == added


def test_no_event_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as operator:
        tenant = operator.create_tenant("acme").id
        corpus = operator.create_corpus("rules", tenant_id=tenant).id
        caller = Client(server.address, token=operator.settings.token, tenant_id=tenant, timeout_s=60)
        with caller, watching(sync, Client.from_settings(caller.settings)) as heard:
            assert isinstance(heard.get(timeout=60), str), "the watch has begun"
            added = [put(caller, corpus, 1)]
            heard_of = facts_of(heard, until=added[0])
            added.append(put(caller, corpus, 2))
            server.stop(signal.SIGKILL)
            with serving(tmp_path, "--listen", server.address):
                added.append(put(caller, corpus, 3))
                heard_of += facts_of(heard, until=added[-1])
    assert heard_of == added


@contextmanager
def command(directory: Path, server: Running, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`drillcore watch` for added facts, from the beginning."""
    flags = ["--from-beginning", "--kind", "fact-added", "--address", server.address, "--token", ACME]
    process = subprocess.Popen(
        [sys.executable, "-m", "drillcore", "watch", *flags, *arguments],
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with gone_afterwards(process):
        yield process


def test_the_command_shows_events_from_before_and_after_a_restart(tmp_path: Path) -> None:
    with ExitStack() as processes:
        with running(tmp_path) as server:
            create_tenants(server.client())
            corpus = new_corpus(server)
            first = put(server.client(ACME), corpus, 1)
            watch = processes.enter_context(command(tmp_path, server, "--count", "2", "--timeout", "60"))
            assert watch.stdout is not None
            assert str(first) in watch.stdout.readline()
        with running(tmp_path, listen=server.address) as server:
            second = put(server.client(ACME), corpus, 2)
            out, err = watch.communicate(timeout=60)
    assert (watch.returncode, err) == (0, "")
    assert str(second) in out
    assert str(first) not in out


def test_ctrl_c_ends_the_command_without_an_error(tmp_path: Path, shared: Running) -> None:
    put(shared.client(ACME), new_corpus(shared), 1)
    with command(tmp_path, shared) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=60)
    assert (watch.returncode, err) == (0, "")
