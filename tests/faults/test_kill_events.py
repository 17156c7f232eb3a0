"""Kill -9 of a watched server: a watcher that continues with its token gets every commit exactly once."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import grpc
import pytest

from drillcore import Client, DrillcoreError, NewFact
from drillcore_proto.v1 import events_pb2 as pb
from tests.faults.test_kill import Serving, serving
from tests.support.servers.watcher import Watcher, all_events

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
ROUNDS = 30 if SOAK else 3
WRITERS = 3
TEXT = "The firm must keep records of every transaction for at least {} years after it was made."


def write_until_killed(server: Serving, tenant: UUID, corpus: UUID) -> list[int]:
    """Puts facts until the server is killed. Returns the acknowledged revisions."""
    made: list[int] = []
    with Client(server.address, token=server.token, timeout_s=10.0, attempts=1) as client:
        while True:
            try:
                drafts = [NewFact(TEXT.format(number), source_id="manual") for number in range(3)]
                made.append(client.put_facts(corpus, drafts, tenant_id=tenant).revision)
            except DrillcoreError:
                return made


def listen_until(server: Serving, tenant: UUID, token: str, kill_after: int) -> Iterator[pb.Event]:
    """Events up to a number of them; then the server is killed. Events that still arrive are included."""
    start = {"resume_token": token} if token else {"from_beginning": True}
    heard = 0
    with Watcher(server.address, server.token, tenant_id=str(tenant), **start) as watcher:
        try:
            while True:
                yield watcher.next()
                heard += 1
                if heard == kill_after:
                    server.process.kill()
        except grpc.RpcError:
            return


@pytest.mark.timeout(1800 if SOAK else 120)
def test_no_event_is_lost_or_repeated_across_kill_9(tmp_path: Path) -> None:
    dice = random.Random(25)
    with serving(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("sponsor").id
        corpora = [client.create_corpus(f"corpus {number}", tenant_id=tenant).id for number in range(WRITERS)]
    heard: list[pb.Event] = []
    acknowledged: set[tuple[str, int]] = set()
    for _ in range(ROUNDS):
        token = heard[-1].resume_token if heard else ""
        with serving(tmp_path) as server, ThreadPoolExecutor(WRITERS) as threads:
            writing = {corpus: threads.submit(write_until_killed, server, tenant, corpus) for corpus in corpora}
            heard += listen_until(server, tenant, token, dice.randint(1, 60))
            acknowledged |= {(str(corpus), revision) for corpus, made in writing.items() for revision in made.result()}
    with serving(tmp_path) as server:
        token = heard[-1].resume_token
        heard += all_events(server.address, server.token, tenant_id=str(tenant), resume_token=token)
        assert heard == all_events(server.address, server.token, tenant_id=str(tenant), from_beginning=True)
    states = [(event.corpus_id, event.revision) for event in heard if event.kind == pb.EVENT_KIND_STATE_CHANGED]
    assert acknowledged <= set(states), "every acknowledged commit has its event"
    assert len(states) == len(set(states))
    assert len(heard) == 4 * len(states), "each revision has its event and those of its three facts"
