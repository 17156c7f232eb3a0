"""Proofs of what a log has, from its tiles: for its own head, or for a checkpoint that was kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.tiles import Tree
from drillcore_server.domain.errors import Missing
from drillcore_server.store import audit_log
from drillcore_server.store.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """A log at one size, as it was signed."""

    size: int
    note: str


@dataclass(frozen=True, slots=True)
class Inclusion:
    """That a record is at an index of the tree that a checkpoint is of."""

    index: int
    hashes: list[bytes]
    checkpoint: LogCheckpoint


def tree_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> Tree:
    return Tree(size, partial(audit_log.tiles, tr, keys, log))


def newest_checkpoint(tr: Reader, keys: Keyspace, log: UUID) -> LogCheckpoint:
    """Of the head. Raises `Missing` if the log has no record yet."""
    head = audit_log.head(tr, keys, log)
    if head.size == 0:
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, "the log has no record yet")
    return LogCheckpoint(head.size, _best(tr, keys, log, head.size, head.checkpoint))


def checkpoint_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> LogCheckpoint:
    """Of a size that was kept, or is the newest. Raises `Missing` for another."""
    kept = audit_log.checkpoint(tr, keys, log, size)
    if kept is not None:
        return LogCheckpoint(size, kept)
    head = audit_log.head(tr, keys, log)
    if size == 0 or size != head.size:
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, f"no checkpoint of {size} records was kept; the log has {head.size}")
    return LogCheckpoint(size, head.checkpoint)


def checkpoint_with(tr: Reader, keys: Keyspace, log: UUID, index: int) -> LogCheckpoint:
    """One whose tree has this index: the newest that was kept, which others have seen, or else the head's."""
    kept = audit_log.last_checkpoint(tr, keys, log)
    if kept is not None and kept[0] > index:
        return LogCheckpoint(*kept)
    return newest_checkpoint(tr, keys, log)


def inclusion(tr: Reader, keys: Keyspace, log: UUID, index: int) -> Inclusion:
    checkpoint = checkpoint_with(tr, keys, log, index)
    return Inclusion(index, tree_of(tr, keys, log, checkpoint.size).inclusion(index, checkpoint.size), checkpoint)


def consistency(tr: Reader, keys: Keyspace, log: UUID, first: int, second: int) -> list[bytes]:
    """Raises `Missing` unless the log is at least as large as both."""
    size = audit_log.head(tr, keys, log).size
    if not first <= second <= size:
        message = f"first_size {first} and second_size {second} must grow, up to the log's size {size}"
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, message)
    return tree_of(tr, keys, log, size).consistency(first, second)


def _best(tr: Reader, keys: Keyspace, log: UUID, size: int, own: str) -> str:
    """The checkpoint as it was kept, with the signatures of witnesses, if it was."""
    return audit_log.checkpoint(tr, keys, log, size) or own
