"""Scans that are too long for one transaction."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_fdb.engine import Engine, KeyValue, Options, Streaming, Transaction

_BATCH_BYTES = 4_000_000


def scan(engine: Engine, begin: bytes, end: bytes, options: Options | None = None) -> Iterator[KeyValue]:
    """Every entry of a range, in order, each batch in a transaction of its own.

    The batches are of different versions: what is written behind the scan's place while it runs is not seen, what
    is written ahead of it is.
    """
    while True:
        batch = engine.run(lambda tr, begin=begin: _batch(tr, begin, end), options or Options())  # type: ignore[misc]
        yield from batch
        if not batch:
            return
        begin = batch[-1][0] + b"\0"


def _batch(tr: Transaction, begin: bytes, end: bytes) -> list[KeyValue]:
    batch: list[KeyValue] = []
    size_bytes = 0
    for entry in tr.snapshot.range(begin, end, streaming=Streaming.WANT_ALL):
        batch.append(entry)
        size_bytes += len(entry[0]) + len(entry[1])
        if size_bytes >= _BATCH_BYTES:
            break
    return batch
