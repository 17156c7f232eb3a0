"""Measures what the audit trail costs: audited calls against the same without records, and against bare durable
commits."""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from benchmarks._measure import in_threads, percentile
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_formats.audit import Pins, verify_export, verify_proof
from drillcore_formats.audit.merkle import leaf_hash
from drillcore_formats.audit.proofs import make_proof
from drillcore_server.app.background import Background
from drillcore_server.app.config import EngineSettings
from drillcore_server.app.factories import open_keyring
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_writer import LogWriter
from drillcore_server.audit.ndjson import NdjsonExport, log_now
from drillcore_server.audit.search import LogSearch, Terms
from drillcore_server.audit.sequencer import GATHER_S, POLL_S, Sequencer
from drillcore_server.audit.signing_keys import KeyFiles
from drillcore_server.audit.tiles import GrowingTree, Tree
from drillcore_server.kernel import access
from drillcore_server.kernel.access import Granted, Principal, Rule
from drillcore_server.kernel.account_model import EVERYTHING
from drillcore_server.kernel.journal import Journal, SigningKeys
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Outcome, Unit, find_outcome, remember_outcome
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import CorpusId, PrincipalId, RecordId, RequestId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from drillcore_server.tenancy.corpora import create_corpus, get_corpus
from drillcore_server.tenancy.tenants import create_tenant

T = TypeVar("T")
G = TypeVar("G", bound=Granted)
_CALLER = Principal(PrincipalId("benchmark"), None, grants=EVERYTHING)
LOGGER: structlog.stdlib.BoundLogger = structlog.get_logger()
_numbers = itertools.count()


class UnauditedUnit(Unit):
    """A write without its record, for comparison only."""

    def write(
        self, call: Call, access: Rule[G], result: RecordKind[T], work: Callable[[Transaction, G, Trail], T]
    ) -> T:
        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access)
            known = find_outcome(tr, self.keys, call.principal.id, call.request_id)
            if known is not None:
                return result.decode(known.result)
            done = work(tr, granted, trail)
            outcome = Outcome(call.fingerprint, result.encode(done), call.at)
            remember_outcome(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._engine.run(attempt, Options(idempotent=True))


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks audit")
    parser.add_argument("--calls", type=int, default=400, help="calls of each kind in each round, by a single caller")
    parser.add_argument("--events", type=int, default=150, help="calls by each of the concurrent callers in each round")
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--probes", type=int, default=300, help="records that are timed until they are in the log")
    parser.add_argument("--records", type=int, default=1_000_000, help="records in the log of the proof")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory, ExitStack() as opened:
        store = _Store.open(Path(directory), opened)
        return {
            "benchmark": "audit",
            "write_overhead": _write_overhead(store, options.calls, options.rounds),
            **_events(store, options.events, options.callers, options.rounds),
            **_lag(store, options.probes, options.callers),
            **_verify(store, options.rounds),
            **_proof(store, options.records),
        }


@dataclass(frozen=True)
class _Store:
    engine: Engine
    keys: Keyspace
    journal: Journal
    signing: SigningKeys
    writer: LogWriter
    search: LogSearch
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
        sealed = SealedRecords(keyring)
        journal = Journal(keys, keyring, sealed, header.store_id, signing)
        opener, terms = RecordOpener(header.store_id, sealed), Terms(keyring)
        writer, search = LogWriter(keys, opener, terms, signing), LogSearch(keys, opener, terms)
        unit = Unit(engine, keys, journal)
        tenant = create_tenant(unit, _call("CreateTenant"), name="t", metadata={}, tenant_id=None).id
        return cls(engine, keys, journal, signing, writer, search, tenant, _create(unit, tenant))

    @contextmanager
    def sequencing(self) -> Iterator[Sequencer]:
        sequencer = Sequencer(self.engine, self.keys, self.writer, 10.0, LOGGER, lambda *_: None, alone=True)
        background = Background(LOGGER)

        def keep(_now: datetime) -> None:
            sequencer.keep(background.stopping.is_set)

        background.add("sequencer", keep, POLL_S, sequencer.wake, GATHER_S)
        background.start()
        try:
            yield sequencer
        finally:
            background.stop()
            sequencer.drain()

    def pins(self) -> Pins:
        return Pins(keys=(self.signing.signer(1).verifier,))


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
    """Returns how many times as long a durable write takes with its record, for a single caller."""
    audited, unaudited = (kind(store.engine, store.keys, store.journal) for kind in (Unit, UnauditedUnit))
    ratios = []
    for _ in range(rounds):
        with_record = _seconds(calls, lambda: _create(audited, store.tenant))
        without = _seconds(calls, lambda: _create(unaudited, store.tenant))
        ratios.append(with_record / without)
    return round(statistics.median(ratios), 3)


def _events(store: _Store, each: int, callers: int, rounds: int) -> dict[str, float]:
    """Compares audited reads by many callers with commits of as many keys and bytes by as many threads."""
    unit = Unit(store.engine, store.keys, store.journal)

    def read(_number: int) -> None:
        for _ in range(each):
            get_corpus(unit, _call("GetCorpus"), tenant=store.tenant, key=store.corpus)

    def commit(number: int) -> None:
        for repeat in range(each):
            key = b"bare/%d/%d/" % (number, repeat)
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


def _lag(store: _Store, probes: int, callers: int) -> dict[str, float]:
    """Measures from the answer of a call until its record is in the log, while others call as fast as they can."""
    with store.sequencing() as sequencer:
        while store.engine.run(lambda tr: audit_log.lease(tr, store.keys)) is None or _waiting(store):
            sequencer.wait(0.05)
        unit = Unit(store.engine, store.keys, store.journal, on_record=sequencer.nudge)
        over = threading.Event()

        def call_on(_number: int) -> None:
            while not over.is_set():
                get_corpus(unit, _call("GetCorpus"), tenant=store.tenant, key=store.corpus)

        others = threading.Thread(target=lambda: in_threads(callers, call_on))
        others.start()
        lags = [_one_lag(store, unit, sequencer) for _ in range(probes)]
        over.set()
        others.join()
    return {f"lag_p{share * 100:g}_ms": round(percentile(lags, share) * 1e3, 1) for share in (0.5, 0.99)}


def _waiting(store: _Store) -> bool:
    """Tells whether some records are not in their log yet."""

    def work(tr: Transaction) -> bool:
        lease = audit_log.lease(tr, store.keys)
        assert lease is not None
        return any(True for _ in audit_log.records_after(tr, store.keys, lease.place, 1))

    return store.engine.run(work)


def _one_lag(store: _Store, unit: Unit, sequencer: Sequencer) -> float:
    made: list[RecordId] = []
    unit.read(_call("GetServerInfo"), access.anyone, lambda _tr, _granted, trail: made.append(trail.record))
    started = time.perf_counter()
    while store.engine.run(lambda tr: audit_log.place_of(tr, store.keys, made[-1])) is None:
        sequencer.wait(0.01)
    return time.perf_counter() - started


def _verify(store: _Store, rounds: int) -> dict[str, float]:
    """Counts the records of an export that the offline verifier checks in a second, and bare signatures for
    comparison."""
    at = store.engine.run(lambda tr: log_now(tr, store.keys, store.signing, store.tenant))
    export = b"".join(NdjsonExport(store.keys, store.search, at).lines(store.engine.run))
    leaf = store.engine.run(lambda tr: next(store.search.at(tr, store.tenant, 0, 1))).opened.leaf
    key = Ed25519PublicKey.from_public_bytes(store.signing.signer(1).public_key)
    rates, bare = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        report = verify_export(io.BytesIO(export), store.pins())
        rates.append(report.verified / (time.perf_counter() - started))
        assert report.ok, report.problems
        bare.append(_rate(2_000, lambda: [key.verify(leaf.signature, leaf.signed) for _ in range(2_000)]))
    return {"verify_per_s": round(statistics.median(rates)), "bare_signatures_per_s": round(statistics.median(bare))}


def _proof(store: _Store, records: int) -> dict[str, int]:
    """Measures the proof of one record in a log of so many; the other leaves are made up."""
    found = store.engine.run(lambda tr: next(store.search.at(tr, store.tenant, 0, 1)))
    tree = GrowingTree(0, [])
    index = records // 3
    for number in range(records):
        tree.append(leaf_hash(found.opened.leaf.encode()) if number == index else os.urandom(32))
    tiles = tree.tiles()
    hashes = Tree(records, lambda which: [tiles.get(tile) for tile in which]).inclusion(index, records)
    note = store.signing.checkpoint(1, store.tenant, records, tree.root()).encode()
    sizes = {}
    for name, with_content in (("proof_bytes", False), ("proof_with_content_bytes", True)):
        proof = make_proof(index, hashes, note, found.opened.document(with_content=with_content))
        assert verify_proof(proof, store.pins()).ok
        sizes[name] = len(proof)
    return sizes


def _seconds(calls: int, call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started


def _rate(count: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)
