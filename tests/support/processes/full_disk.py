"""Writes to a store that the operating system does not let grow.

Run it as `python -m tests.support.processes.full_disk STORE ROOM_BYTES`.

Prints the outcome of each step as JSON. A limit on the size of files stands in for a full disk.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Transaction
from drillcore_fdb.errors import EngineError

KEPT = {b"kept/%d" % number: bytes([number]) * 50_000 for number in range(10)}


def write_much(tr: Transaction) -> None:
    for number in range(10):
        tr.set(b"much/%d" % number, os.urandom(90_000))


def limit_files(size_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))


def attempt(engine: EmbeddedEngine, work: object) -> str:
    try:
        engine.run(work)  # type: ignore[arg-type]
    except EngineError as error:
        return f"{type(error).__name__}: {error.message}"
    return "committed"


def main(path: str, room_bytes: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Path(path)
    engine = EmbeddedEngine.open(EmbeddedSettings(path=store, durability=Durability.FULL))
    engine.run(lambda tr: [tr.set(key, value) for key, value in KEPT.items()])
    limit_files((store / "kv" / "data.mdb").stat().st_size + int(room_bytes))
    result: dict[str, object] = {"full": [attempt(engine, write_much) for _ in range(3)]}
    result["readable"] = engine.run(lambda tr: dict(tr.range(b"", b"\xff"))) == KEPT
    limit_files(resource.RLIM_INFINITY)
    result["with room"] = attempt(engine, write_much)
    result["keys"] = engine.run(lambda tr: len(list(tr.range(b"", b"\xff"))))
    engine.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
