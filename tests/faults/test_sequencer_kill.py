"""Kill -9 of a server in the middle of its work leaves logs that verify and that the next server continues."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import LogChecker
from drillcore_server.audit.search import LogSearch
from tests.faults.test_kill import Creator, serving
from tests.support.stores.audited import Audited, audited


def check(store: Audited, log: UUID) -> int:
    """Verifies every record of a log and returns how many there are."""
    search = LogSearch(store.keys, store.opener, store.terms)
    checker = LogChecker(store.keys, store.opener, search, store.signing.trusted)
    done = store.run(lambda tr: checker.check(tr.snapshot, log, 0, 100_000, 4.0))
    assert done.problems == []
    assert done.verified == done.next_start == done.size
    return done.size


@pytest.mark.timeout(120)
def test_logs_verify_after_kill_9_and_have_every_call_once(tmp_path: Path) -> None:
    dice = random.Random(30)
    with serving(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("sponsor").id
    answered = 0
    for _ in range(3):
        with serving(tmp_path) as server:
            creator = Creator(server, tenant, dice.randint(20, 150))
            creator.run()
        answered += len(creator.acknowledged)
        with audited(tmp_path) as store:
            before = check(store, tenant) + check(store, SERVER_LOG)
            store.sequence()
            sizes = check(store, tenant) + check(store, SERVER_LOG)
            assert sizes == len(store.stored()) >= before
            assert check(store, tenant) >= answered
            assert store.head(tenant).problem == ""
            lease = store.run(lambda tr: audit_log.lease(tr, store.keys))
            assert lease is not None
            assert lease.epoch > 1, "the next server does not wait for the lease of a dead one"


def test_a_stopped_server_leaves_no_unordered_records(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with server.client() as client:
            for _ in range(5):
                client.create_tenant(f"tenant-{uuid.uuid4()}")
        server.process.terminate()
        server.process.wait(30)
    with audited(tmp_path) as store:
        assert check(store, SERVER_LOG) == len(store.stored())
        kept = store.run(lambda tr: audit_log.last_checkpoint(tr, store.keys, SERVER_LOG))
        assert kept is not None
        assert kept[0] == store.head().size
