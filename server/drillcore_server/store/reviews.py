"""Reviews of audit logs in the store: sealed under the log's own key, since findings may tell what records do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.reviews import Review
from drillcore_server.store.keyring import KeyNumber
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.sealed import SealedKind, SealedRecords

REVIEW: Final = RecordKind(Review)


def kind(sealed: SealedRecords, log: UUID, number: KeyNumber | None = None) -> RecordKind[Review]:
    """Reviews of one log. Only to read them needs no key's number."""
    return SealedKind(REVIEW, sealed, f"review of {log}", number)


def find(tr: Reader, keys: Keyspace, sealed: SealedRecords, log: UUID, review: UUID) -> Review | None:
    return kind(sealed, log).read(tr, keys.review(log, review))


def add(tr: Transaction, keys: Keyspace, kind: RecordKind[Review], review: Review) -> None:
    kind.write(tr, keys.review(review.log, review.id), review)


def scan(
    tr: Reader, keys: Keyspace, sealed: SealedRecords, log: UUID, after: UUID | None
) -> Iterator[tuple[Review, int]]:
    """Those of a log, oldest first, each with its size in bytes."""
    reviews = kind(sealed, log)
    for _, stored in codec.scan(tr, *keys.reviews(log, after)):
        yield reviews.decode(stored), len(stored)
