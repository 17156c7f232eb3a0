"""ReviewAudit and ListReviews: an auditor states that they checked a range of an audit log, and what they found.

Reviews are sealed under the key of the log, because findings may repeat what its records say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import tree_of
from drillcore_server.audit.query import WhichLog, auditor_of, expected_keys
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.journal import log_key, log_of
from drillcore_server.kernel.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import FIXED_VERSION, Signature, TargetKind
from drillcore_server.storage.ids import PrincipalId, new_uuid
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedKind, SealedRecords

FINDINGS_CHARACTERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Review:
    """A review is never changed. It counts once it is signed."""

    id: UUID
    log: UUID
    first: int
    """The index of the first record."""
    last: int
    """The index of the last record, included."""
    root: bytes
    """The root of the tree that ends with the last record. It ties the review to exactly these records."""
    findings: str
    created_by: PrincipalId
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ShownReview:
    review: Review
    signatures: tuple[Signature, ...] = ()

    @property
    def id(self) -> UUID:
        return self.review.id


REVIEW: Final = RecordKind(Review)


def find(tr: Reader, keys: Keyspace, sealed: SealedRecords, log: UUID, review: UUID) -> Review | None:
    return _kind(sealed, log).read(tr, keys.review(log, review))


@dataclass(frozen=True, slots=True)
class Reviews:
    unit: Unit
    keyring: Keyring
    sealed: SealedRecords

    def review_audit(self, call: Call, *, which: WhichLog, first: int, last: int, findings: str) -> Review:
        """Records that the caller has reviewed a range of a log as it is now. The review counts once it is signed."""
        _check(first, last, findings)
        unit, made = self.unit, new_uuid()
        number = unit.look(call, auditor_of(which), lambda _tr, granted: log_key(self.keyring, log_of(granted.tenant)))

        def work(tr: Transaction, granted: Granted, trail: Trail) -> Review:
            log = log_of(granted.tenant)
            root = _root(tr.snapshot, unit.keys, log, last)
            review = Review(made, log, first, last, root, findings, call.principal.id, call.at)
            _kind(self.sealed, log, number).write(tr, unit.keys.review(log, made), review)
            trail.detail |= {"review_id": str(made), "first": first, "last": last, "root": root.hex()}
            if findings:
                trail.private["findings"] = findings
            return review

        outcome = SealedKind(REVIEW, self.sealed, "outcome of ReviewAudit", number)
        return unit.write(call, auditor_of(which), outcome, work, expected=expected_keys(unit, call, which))

    def list_reviews(self, call: Call, *, which: WhichLog, size: int, token: str) -> Page[ShownReview]:
        """The reviews of a log, oldest first, with their signatures."""
        limit = PageLimit(page_size(size), self.unit.page_bytes_max // 2)

        def work(tr: Reader, granted: Granted, trail: Trail) -> Page[ShownReview]:
            log = log_of(granted.tenant)
            listing = f"reviews of {log}"
            found = _scan(tr, self.unit.keys, self.sealed, log, read_id_token(listing, token))
            page = make_page(listing, *fill_page(found, limit))
            trail.detail["reviews"] = [str(review.id) for review in page.items]
            return Page(self._with_signatures(tr, log, page.items), page.next_token)

        return self.unit.read(call, auditor_of(which), work)

    def _with_signatures(self, tr: Reader, log: UUID, reviews: list[Review]) -> list[ShownReview]:
        versions = [(review.id, FIXED_VERSION) for review in reviews]
        signed = signatures.signatures_of_many(tr, self.unit.keys, log, TargetKind.REVIEW, versions)
        salted = {
            review: tuple(signatures.with_salt(self.keyring, signature) for signature in found)
            for review, found in signed.items()
        }
        return [ShownReview(review, salted.get(review.id, ())) for review in reviews]


def _check(first: int, last: int, findings: str) -> None:
    if len(findings) > FINDINGS_CHARACTERS_MAX or "\0" in findings:
        message = f"findings must have at most {FINDINGS_CHARACTERS_MAX} characters, and no zero character"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="findings")
    if first > last:
        raise BadInput(Reason.INVALID_ARGUMENT, "first must not be after last", field="first")


def _root(tr: Reader, keys: Keyspace, log: UUID, last: int) -> bytes:
    """The root of the tree that ends with this record. Raises `Missing` if the log does not have the record."""
    size = audit_log.head(tr, keys, log).size
    if last >= size:
        message = f"the log has {size} records, so the last that can be reviewed is {size - 1}"
        raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, message)
    return tree_of(tr, keys, log, size).root(last + 1)


def _kind(sealed: SealedRecords, log: UUID, number: KeyNumber | None = None) -> RecordKind[Review]:
    """Reviews of one log. The number of the log's key is only needed for writing."""
    return SealedKind(REVIEW, sealed, f"review of {log}", number)


def _scan(
    tr: Reader, keys: Keyspace, sealed: SealedRecords, log: UUID, after: UUID | None
) -> Iterator[tuple[Review, int]]:
    """The reviews of a log, oldest first, each with its size in bytes."""
    reviews = _kind(sealed, log)
    for _, stored in codec.scan(tr, *keys.reviews(log, after)):
        yield reviews.decode(stored), len(stored)
