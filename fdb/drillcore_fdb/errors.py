"""The errors of an engine, with FoundationDB's own error codes on both engines.

EngineError                      any failure of the store; `.code` is FoundationDB's number
├── RetryableError               the same work may be run again
│   ├── ConflictError            1020  something it read was changed by another commit
│   ├── TransactionTooOldError   1007  older than five seconds
│   └── UnknownResultError       1021  the commit may or may not have happened
├── TransactionTimedOutError     1031  the timeout asked for in the options
├── TransactionCancelledError    1025  used after it was cancelled or committed
├── LimitError                   2101 2102 2103  transaction, key or value too large
├── InvalidUseError              2000 2004 2005 1036 2006 ...  the caller's mistake
├── StorageError                 1510  the disk refused; nothing of the failed commit is visible
│   └── DiskFullError            1510  no room left on the disk or in the configured map
└── UnavailableError             1043  no store behind the engine: why, and what to do about it
    ├── StoreInUseError          1514  another process holds the data directory
    ├── StoreCorruptError        1226  the data directory cannot be trusted
    └── ClusterUnreachableError  1515  FoundationDB's client library, cluster file or cluster is missing
"""

from __future__ import annotations

from collections.abc import Callable


class EngineError(Exception):
    """A failure of the store. `code` is FoundationDB's error code, the same on both engines."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


class RetryableError(EngineError):
    """The same work may be run again, and `Engine.run` does so within the limits of its options."""


class ConflictError(RetryableError):
    def __init__(self, message: str = "Transaction not committed due to conflict with another transaction") -> None:
        super().__init__(1020, message)


class TransactionTooOldError(RetryableError):
    def __init__(self, message: str = "Transaction is too old to perform reads or be committed") -> None:
        super().__init__(1007, message)


class UnknownResultError(RetryableError):
    """The commit may or may not have happened. Only idempotent work is run again (see `Options.idempotent`)."""

    def __init__(self, code: int = 1021, message: str = "Transaction may or may not have committed") -> None:
        super().__init__(code, message)


class TransactionTimedOutError(EngineError):
    """The timeout passed. If it passed during the commit, the commit may have happened."""

    def __init__(self, message: str = "Operation aborted because the transaction timed out") -> None:
        super().__init__(1031, message)


class TransactionCancelledError(EngineError):
    def __init__(self, message: str = "Operation aborted because the transaction was cancelled") -> None:
        super().__init__(1025, message)


class LimitError(EngineError):
    """A key, a value or a whole transaction is larger than FoundationDB allows."""


class InvalidUseError(EngineError):
    """The engine was called in a way that can never succeed."""


class StorageError(EngineError):
    """A disk error. A commit that raised this is not visible and never will be."""

    def __init__(self, message: str) -> None:
        super().__init__(1510, message)


class DiskFullError(StorageError):
    """The disk or the store is full. Reads continue to work; writes succeed again once there is room."""


class UnavailableError(EngineError):
    """The store cannot be reached or opened. The message says why and what to do."""

    _code = 1043

    def __init__(self, message: str) -> None:
        super().__init__(self._code, message)


class StoreInUseError(UnavailableError):
    """Another process holds the data directory."""

    _code = 1514


class StoreCorruptError(UnavailableError):
    """The data directory contains damaged or unknown data. Nothing in it was changed."""

    _code = 1226


class ClusterUnreachableError(UnavailableError):
    """FoundationDB's client library, its cluster file or the cluster itself is missing."""

    _code = 1515


_RETRYABLE_CODES = (1009, 1037, 1038, 1042, 1051, 1078, 1213, 1223)
_BY_CODE: dict[int, Callable[[int, str], EngineError]] = {
    1004: lambda _, message: TransactionTimedOutError(message),
    1007: lambda _, message: TransactionTooOldError(message),
    1020: lambda _, message: ConflictError(message),
    1021: UnknownResultError,
    1025: lambda _, message: TransactionCancelledError(message),
    1031: lambda _, message: TransactionTimedOutError(message),
    1036: InvalidUseError,
    1039: UnknownResultError,
    2101: LimitError,
    2102: LimitError,
    2103: LimitError,
    **dict.fromkeys(_RETRYABLE_CODES, RetryableError),
}


def from_code(code: int, message: str) -> EngineError:
    """The error class of this module for an error code of FoundationDB."""
    make = _BY_CODE.get(code, InvalidUseError if 2000 <= code < 2300 else EngineError)
    return make(code, message)
