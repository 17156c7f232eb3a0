"""A process that writes until it is killed: `python -m tests.support.processes.writer STORE DURABILITY THREADS ROUND`.

Each transaction counts up, writes the thread's next sequence number and appends it to a log that is ordered by
versionstamp. When the commit has returned, and only then, "thread sequence versionstamp" goes to stdout.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.tuples import Subspace, Versionstamp

COUNTER = Subspace(b"counter").pack()
RECORDS = Subspace(b"records")
LOG = Subspace(b"log")


def last_sequence(engine: Engine, thread: int) -> int:
    def work(tr: Transaction) -> int:
        last = next(tr.range(*RECORDS.range((thread,)), limit=1, reverse=True), None)
        return 0 if last is None else int(RECORDS.unpack(last[0])[1])

    return engine.run(work)


def write(engine: Engine, thread: int, sequence: int, round_number: int) -> bytes:
    """Makes one transaction with three parts and returns its versionstamp."""

    def work(tr: Transaction) -> None:
        tr.add(COUNTER, 1)
        tr.set(RECORDS.pack((thread, sequence)), os.urandom(200))
        template = LOG.pack_with_versionstamp((Versionstamp(),))
        tr.set_versionstamped_key(template, b"%d %d %d" % (thread, sequence, round_number))

    versionstamp = engine.commit(work).versionstamp
    assert versionstamp is not None
    return versionstamp


def write_for_ever(engine: Engine, thread: int, round_number: int) -> None:
    sequence = last_sequence(engine, thread)
    while True:
        sequence += 1
        versionstamp = write(engine, thread, sequence, round_number)
        os.write(1, b"%d %d %s\n" % (thread, sequence, versionstamp.hex().encode()))


def main(path: str, durability: str, threads: str, round_number: str) -> None:
    engine = EmbeddedEngine.open(EmbeddedSettings(path=Path(path), durability=Durability(durability)))
    for thread in range(int(threads)):
        threading.Thread(target=write_for_ever, args=(engine, thread, int(round_number))).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
