"""What the audit trail costs: audited calls against the same without, and against bare durable commits."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from benchmarks._measure import in_threads
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.format import open_store
from drillcore_server.audit.journal import Journal
from drillcore_server.audit.key_files import KeyFiles
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth.access import Granted, Rule
from drillcore_server.auth.principal import Principal
from drillcore_server.commands.create_corpus import create_corpus
from drillcore_server.commands.create_tenant import create_tenant
from drillcore_server.commands.get_corpus import get_corpus
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.config import EngineSettings
from drillcore_server.domain.accounts import EVERYTHING
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import CorpusId, PrincipalId, RequestId, TenantId
from drillcore_server.engines import open_keyring
from drillcore_server.store import requests
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.requests import Outcome
from drillcore_server.store.sealed import SealedRecords

T = TypeVar("T")
G = TypeVar("G", bound=Granted)
_CALLER = Principal(PrincipalId("benchmark"), None, grants=EVERYTHING)
_numbers = itertools.count()


class UnauditedUnit(Unit):
    """What a write would be without its record: for comparison only."""

    def write(
        self, call: Call, access: Rule[G], result: RecordKind[T], work: Callable[[Transaction, G, Trail], T]
    ) -> T:
        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access)
            known = requests.find(tr, self.keys, call.principal.id, call.request_id)
            if known is not None:
                return result.decode(known.result)
            done = work(tr, granted, trail)
            outcome = Outcome(call.fingerprint, result.encode(done), call.at)
            requests.remember(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._engine.run(attempt, Options(idempotent=True))


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks audit")
    parser.add_argument("--calls", type=int, default=400, help="of each kind in each round, by a lone caller")
    parser.add_argument("--events", type=int, default=150, help="by each of the callers at once, in each round")
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory, ExitStack() as opened:
        store = _Store.open(Path(directory), opened)
        return {
            "benchmark": "audit",
            "write_overhead": _write_overhead(store, options.calls, options.rounds),
            **_events(store, options.events, options.callers, options.rounds),
        }


@dataclass(frozen=True)
class _Store:
    engine: Engine
    keys: Keyspace
    keyring: Keyring
    journal: Journal
    tenant: TenantId
    corpus: CorpusId

    @classmethod
    def open(cls, path: Path, opened: ExitStack) -> _Store:
        engine = EmbeddedEngine.open(EmbeddedSettings(path, Durability.FULL))
        opened.callback(engine.close)
        root, header = open_store(engine)
        keys = Keyspace(root)
        keyring = opened.enter_context(open_keyring(EngineSettings(data_dir=path), engine))
        signing = SigningKeys.open(engine, keys, header.store_id, KeyFiles(path / "keys"), datetime.now(UTC))
        journal = Journal(keys, keyring, SealedRecords(keyring), header.store_id, signing)
        unit = Unit(engine, keys, journal)
        tenant = create_tenant(unit, _call("CreateTenant"), name="t", metadata={}, tenant_id=None).id
        return cls(engine, keys, keyring, journal, tenant, _create(unit, tenant))


def _call(action: str) -> Call:
    request = RequestId(f"request-{next(_numbers)}")
    return Call(action, request, _CALLER, datetime.now(UTC), 30.0, hashlib.sha256(request.encode()).digest())


def _create(unit: Unit, tenant: TenantId) -> CorpusId:
    name = f"corpus {uuid4()}"
    made = create_corpus(
        unit, _call("CreateCorpus"), tenant=tenant, name=name, description="", metadata={}, corpus_id=None
    )
    return made.id


def _write_overhead(store: _Store, calls: int, rounds: int) -> float:
    """How many times as long a durable write takes with its record, for a lone caller."""
    audited, unaudited = (kind(store.engine, store.keys, store.journal) for kind in (Unit, UnauditedUnit))
    ratios = []
    for _ in range(rounds):
        with_record = _seconds(calls, lambda: _create(audited, store.tenant))
        without = _seconds(calls, lambda: _create(unaudited, store.tenant))
        ratios.append(with_record / without)
    return round(statistics.median(ratios), 3)


def _events(store: _Store, each: int, callers: int, rounds: int) -> dict[str, float]:
    """Audited reads by many callers at once, against commits of as many keys and bytes by as many threads."""
    unit = Unit(store.engine, store.keys, store.journal)

    def read(_number: int) -> None:
        for _ in range(each):
            get_corpus(unit, _call("GetCorpus"), tenant=store.tenant, key=store.corpus)

    def commit(number: int) -> None:
        for one in range(each):
            key = b"bare/%d/%d/" % (number, one)
            store.engine.run(lambda tr, key=key: (tr.set(key + b"a", bytes(700)), tr.set(key + b"b", bytes(95))))  # type: ignore[misc]

    audited, bare = [], []
    for _ in range(rounds):
        audited.append(_rate(callers * each, lambda: in_threads(callers, read)))
        bare.append(_rate(callers * each, lambda: in_threads(callers, commit)))
    pairs = zip(audited, bare, strict=True)
    return {
        "events_per_s": round(statistics.median(audited)),
        "bare_commits_per_s": round(statistics.median(bare)),
        "events_ratio": round(statistics.median(own / other for own, other in pairs), 3),
    }


def _seconds(calls: int, call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started


def _rate(count: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)
