"""Compares the embedded engine with the bare library below it, on the same data in the same run."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import lmdb

from benchmarks._measure import in_threads, percentile, rates, ratio, seconds
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.embedded.conflicts import ConflictWindow
from drillcore_fdb.engine import Transaction

VALUE = b"v" * 100


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks engine")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commits", type=int, default=400, help="commits by the single writer, and by each of the 32")
    parser.add_argument("--threads", type=int, default=32)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory:
        return {
            "benchmark": "engine",
            **_reads(Path(directory), options.keys, options.rounds),
            **_commits(Path(directory), options.commits, options.threads, options.rounds),
            "conflict_check_us": _conflict_check_us(commits_behind=50),
            "conflict_check_1000_behind_us": _conflict_check_us(commits_behind=1_000),
        }


def _reads(directory: Path, keys: int, rounds: int) -> dict[str, float]:
    names = [b"key%08d" % number for number in range(keys)]
    bare = lmdb.open(str(directory / "bare"), map_size=1 << 32, lib_version=1, readahead=False)
    with bare.begin(write=True) as txn:
        for name in names:
            txn.put(name, VALUE)
    engine = EmbeddedEngine.open(EmbeddedSettings(directory / "reads", Durability.RELAXED))
    for start in range(0, keys, 10_000):
        engine.run(lambda tr, start=start: [tr.set(name, VALUE) for name in names[start : start + 10_000]])  # type: ignore[misc]
    wanted = random.Random(1).choices(names, k=20_000)

    def bare_gets() -> None:
        with bare.begin() as txn:
            for name in wanted:
                txn.get(name)

    def own_gets(tr: Transaction) -> None:
        for name in wanted:
            tr.get(name)

    def bare_scan() -> None:
        with bare.begin() as txn:
            for _ in txn.cursor():
                pass

    def own_scan(tr: Transaction) -> None:
        for _ in tr.range(b"", b"\xff"):
            pass

    measured = rates(
        {
            "bare get": (len(wanted), bare_gets),
            "own get": (len(wanted), lambda: engine.run(own_gets)),
            "bare scan": (keys, bare_scan),
            "own scan": (keys, lambda: engine.run(own_scan)),
        },
        rounds,
    )
    engine.close()
    bare.close()
    return {
        "point_get_ratio": ratio(measured, "own get", "bare get"),
        "range_scan_ratio": ratio(measured, "own scan", "bare scan"),
        "point_gets_per_s": round(statistics.median(measured["own get"])),
        "scanned_keys_per_s": round(statistics.median(measured["own scan"])),
    }


def _commits(directory: Path, commits: int, threads: int, rounds: int) -> dict[str, float]:
    engine = EmbeddedEngine.open(EmbeddedSettings(directory / "commits", Durability.FULL))
    bare = lmdb.open(str(directory / "bare-commits"), map_size=1 << 30, lib_version=1, readahead=False)

    def write(number: int) -> None:
        for count in range(commits):
            key = b"%04d/%06d" % (number, count)
            engine.run(lambda tr: tr.set(key, VALUE))  # noqa: B023 - run before the key changes

    def bare_commits() -> None:
        for count in range(commits):
            with bare.begin(write=True) as txn:
                txn.put(b"0000/%06d" % count, VALUE)

    measured = rates(
        {
            "bare": (commits, bare_commits),
            "one": (commits, lambda: write(0)),
            "many": (commits * threads, lambda: in_threads(threads, write)),
        },
        rounds,
    )
    engine.close()
    bare.close()
    return {
        "group_commit_gain": ratio(measured, "many", "one"),
        "lone_commit_ratio": ratio(measured, "one", "bare"),
        "commits_per_s_1_thread": round(statistics.median(measured["one"])),
        f"commits_per_s_{threads}_threads": round(statistics.median(measured["many"])),
    }


def _conflict_check_us(commits_behind: int) -> float:
    """Times check and record of a transaction that read 10 keys and a range some commits ago and wrote 5 keys.

    The window holds 20,000 commits, as after five seconds of heavy writing.
    """
    generator = random.Random(2)
    window = ConflictWindow(0, keep_s=6.0)
    for version in range(1, 20_001):
        window.record(version, [b"%012d" % generator.randrange(10**12) for _ in range(5)], [], time.monotonic())
    samples = []
    for version in range(20_001, 20_201):
        reads = [b"r%012d" % generator.randrange(10**12) for _ in range(10)]
        writes = [b"%012d" % generator.randrange(10**12) for _ in range(5)]

        def check(version: int = version, reads: list[bytes] = reads, writes: list[bytes] = writes) -> None:
            assert not window.conflicts(version - commits_behind, reads, [(b"s", b"t")])
            window.record(version, writes, [], time.monotonic())

        samples.append(seconds(check) * 1e6)
    return round(percentile(samples, 0.5), 1)
