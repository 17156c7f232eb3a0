"""Makes inclusion and consistency proofs of a log from its tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.tiles import Tree
from drillcore_server.kernel.errors import Missing
from drillcore_server.storage.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """The signed state of a log at one size."""

    size: int
    note: str


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The proof that a record is at an index of a checkpoint's tree."""

    index: int
    hashes: list[bytes]
    checkpoint: LogCheckpoint


def tree_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> Tree:
    return Tree(size, partial(audit_log.tiles, tr, keys, log))


def newest_checkpoint(tr: Reader, keys: Keyspace, log: UUID) -> LogCheckpoint:
    """The checkpoint of the head. Raises `Missing` if the log has no record yet."""
    head = audit_log.head(tr, keys, log)
    if head.size == 0:
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, "the log has no record yet")
    return LogCheckpoint(head.size, _best(tr, keys, log, head.size, head.checkpoint))


def checkpoint_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> LogCheckpoint:
    """The checkpoint of a size. Raises `Missing` unless it was kept or is the newest."""
    kept = audit_log.checkpoint(tr, keys, log, size)
    if kept is not None:
        return LogCheckpoint(size, kept)
    head = audit_log.head(tr, keys, log)
    if size == 0 or size != head.size:
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, f"no checkpoint of {size} records was kept; the log has {head.size}")
    return LogCheckpoint(size, head.checkpoint)


def checkpoint_with(tr: Reader, keys: Keyspace, log: UUID, index: int) -> LogCheckpoint:
    """A checkpoint whose tree has this index: preferably the newest published one, else the head's."""
    kept = audit_log.last_checkpoint(tr, keys, log)
    if kept is not None and kept[0] > index:
        return LogCheckpoint(*kept)
    return newest_checkpoint(tr, keys, log)


def inclusion(tr: Reader, keys: Keyspace, log: UUID, index: int) -> Inclusion:
    checkpoint = checkpoint_with(tr, keys, log, index)
    return Inclusion(index, tree_of(tr, keys, log, checkpoint.size).inclusion(index, checkpoint.size), checkpoint)


def consistency(tr: Reader, keys: Keyspace, log: UUID, first: int, second: int) -> list[bytes]:
    """The consistency proof. Raises `Missing` unless first <= second <= size of the log."""
    size = audit_log.head(tr, keys, log).size
    if not first <= second <= size:
        message = f"first_size {first} must not exceed second_size {second}, nor that the log's size {size}"
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, message)
    return tree_of(tr, keys, log, size).consistency(first, second)


def _best(tr: Reader, keys: Keyspace, log: UUID, size: int, own: str) -> str:
    """The checkpoint of this size with the witnesses' signatures if it was kept, else `own`."""
    return audit_log.checkpoint(tr, keys, log, size) or own
