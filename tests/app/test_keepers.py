"""A server's background work survives every failure and begins right after a start."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drillcore_fdb.engine import Engine, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.app import keepers
from drillcore_server.app.config import FactSettings
from drillcore_server.audit.publisher import Publisher
from drillcore_server.audit.sequencer import Sequencer
from drillcore_server.communities.community_keeper import CommunityKeeper
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.erasure import destroy_keys as key_destruction
from drillcore_server.erasure.purge import Purged, Purger
from drillcore_server.facts.index import FactIndexes
from drillcore_server.kernel import erasures
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.storage import erasure_notes
from drillcore_server.storage.ids import CorpusId, CorpusNumber, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.vectors.index_snapshots import IndexName
from tests.erasure.test_purge import filled
from tests.support.callers.erasures import ErasingCaller, sealed_under
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.stores.aged import keys_of
from tests.support.stores.stores import wait_until

REFUSAL = Unavailable(Reason.AUDIT_UNAVAILABLE, "the audit record cannot be signed now; nothing was written")
WORK = {
    "store": (keepers.StoreKeeper, "_check"),
    "forgetting": (keepers.Housekeeper, "forget"),
    "trimming": (keepers, "trim_corpora"),
    "key-destruction": (keepers, "finish_erasures"),
    "purging": (keepers, "purge_due"),
    "migrations": (keepers, "resume_migrations"),
    "facts": (keepers.FactHousekeeper, "keep"),
    "communities": (CommunityKeeper, "run_due"),
    "sequencer": (Sequencer, "step"),
    "publisher": (Publisher, "publish"),
}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "_EVERY_S", 0.05)
    monkeypatch.setattr(keepers, "_MIGRATIONS_EVERY_S", 0.05, raising=False)


def last_success(server: Running, keeper: str) -> float:
    name = "drillcore_keeper_last_success_timestamp_seconds"
    return server.server.metrics.registry.get_sample_value(name, {"keeper": keeper}) or 0.0


def health_of(server: Running, keeper: str) -> Any:
    with grpc.insecure_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=f"drillcore.keeper.{keeper}")
        try:
            return health_pb2_grpc.HealthStub(channel).Check(request).status
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None  # it has not worked yet


@pytest.fixture(params=[REFUSAL, OSError("the disk is gone")], ids=["a refusal", "an OSError"])
def error(request: pytest.FixtureRequest) -> Exception:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("keeper", WORK)
def test_every_keeper_survives_a_failure_and_goes_on(tmp_path: Path, keeper: str, error: Exception) -> None:
    owner, name = WORK[keeper]
    real, rounds = getattr(owner, name), Counter[int]()

    def failing(*given: Any, **named: Any) -> Any:
        """Fails twice for each keeper, since other servers of this process have keepers too."""
        rounds[threading.get_ident()] += 1
        if rounds[threading.get_ident()] <= 2:
            raise error
        return real(*given, **named)

    intervals = {"facts": FactSettings(sweep_every_s=0.05), "communities": CommunitySettings(check_every_s=0.05)}
    with mock.patch.object(owner, name, failing), running(tmp_path, **intervals) as server:  # type: ignore[arg-type]
        wait_until(lambda: last_success(server, keeper) > 0, f"{keeper} goes on, and the metrics say so")
        assert health_of(server, keeper) == health_pb2.HealthCheckResponse.SERVING
        told = [line for line in server.log_lines() if line.get("keeper") == keeper]
        assert [line["error"] for line in told] == [type(error).__name__] * 2
        assert all(".py:" in line["at"] for line in told)


def test_an_index_that_could_not_be_tended_is_tended_again_by_itself(tmp_path: Path, error: Exception) -> None:
    with mock.patch.object(FactIndexes, "tend", side_effect=[error, error, None]) as tend, running(tmp_path) as server:
        wait_until(lambda: last_success(server, "indexes") > 0, "there was nothing to do at the start")
        indexes, name = server.server.indexes, IndexName(CorpusNumber(1), "facts", 1)
        indexes.keeper.nudge(indexes.facts, name)
        wait_until(lambda: health_of(server, "indexes") == health_pb2.HealthCheckResponse.NOT_SERVING, "it failed")
        wait_until(lambda: tend.call_count == 3, "it is tended again without another nudge")
        wait_until(lambda: health_of(server, "indexes") == health_pb2.HealthCheckResponse.SERVING, "it succeeded")


def test_every_keeper_of_a_server_is_tried(tmp_path: Path) -> None:
    with running(tmp_path):
        started = {thread.name for thread in threading.enumerate() if thread.name.startswith("drillcore-keeper-")}
    assert started == {f"drillcore-keeper-{keeper}" for keeper in (*WORK, "indexes")}


def test_records_that_cannot_be_forgotten_do_not_keep_the_others(tmp_path: Path) -> None:
    with (
        mock.patch.object(keepers, "forget_outcomes", side_effect=OSError("the disk is gone")),
        mock.patch.object(keepers, "forget_envelopes", return_value=3),
        running(tmp_path) as server,
    ):
        wait_until(lambda: health_of(server, "forgetting") == health_pb2.HealthCheckResponse.NOT_SERVING, "told")
        removed = [line["records"] for line in server.log_lines() if line["event"] == "expired records removed"]
    assert "envelopes" in removed


def test_a_corpus_whose_keys_cannot_be_destroyed_does_not_keep_the_others(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpora = [filled(caller, name) for name in ("one", "two")]
            for corpus in corpora:
                caller.erase(corpus, "marked")
        engine, unit, keyring = server.engine, server.server._unit, server.server.keyring
        notes = unit.keys.erasure_notes
        numbers = engine.run(lambda tr: sorted({note.corpus for note in erasure_notes.noted(tr.snapshot, notes)}))

        def destroy(_engine: Engine, _keys: Keyspace, _keyring: Keyring, number: CorpusNumber, _at: datetime) -> int:
            if number == numbers[0]:
                raise OSError("the disk is gone")
            return 1

        with mock.patch.object(key_destruction, "destroy_keys", destroy):
            done = dict(key_destruction.finish_erasures(engine, unit.keys, keyring, datetime.now(UTC)))
        assert isinstance(done[numbers[0]], OSError)
        assert done[numbers[1]] == 1


def test_a_corpus_that_fails_does_not_keep_the_others_from_their_turn(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpora = [filled(caller, name) for name in ("one", "two")]
            keys = {corpus: caller.erase(corpus, "marked").erasure.erased_keys[0] for corpus in corpora}
        real = Purger.purge_by_itself

        def purge(purger: Purger, tenant: TenantId, corpus: CorpusId, *more: Any) -> Purged:
            if str(corpus) == corpora[0]:
                raise OSError("the disk is gone")
            return real(purger, tenant, corpus, *more)

        with mock.patch.object(Purger, "purge_by_itself", purge):
            make_due(server, corpora)
            wait_until(lambda: sealed_under(server, corpora[1], keys[corpora[1]]) == 0, "the other corpus is purged")
            wait_until(lambda: health_of(server, "purging") == health_pb2.HealthCheckResponse.NOT_SERVING, "told")
        wait_until(
            lambda: sealed_under(server, corpora[0], keys[corpora[0]]) == 0, "the failing corpus is purged in the end"
        )


def make_due(server: Running, corpora: list[str], days: int = 30) -> None:
    """Moves the erasures the given number of days into the past."""
    for corpus in corpora:
        keys = keys_of(server, corpus)

        def work(tr: Transaction, keys: Any = keys) -> None:
            for erasure in list(erasures.of_corpus(tr, keys)):
                due = erasure.purge_due - timedelta(days=days)
                erasures.put(tr, keys, replace(erasure, purge_due=due))

        server.engine.run(work)


def test_a_purge_due_on_day_30_happens_on_day_30_right_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for a server that is never up for an hour."""
    monkeypatch.setattr(keepers, "_EVERY_S", 3_600.0)
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as caller:
            corpus = filled(caller)
            key, _ = caller.erase(corpus, "marked").erasure.erased_keys
        make_due(server, [corpus], days=29)
    with running(tmp_path) as server:
        wait_until(lambda: last_success(server, "purging") > 0, "it has looked")
        assert sealed_under(server, corpus, key) > 0, "day 29"
        make_due(server, [corpus], days=1)
    with running(tmp_path) as server:
        wait_until(lambda: sealed_under(server, corpus, key) == 0, "day 30")
