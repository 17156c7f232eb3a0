"""ListReviews."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.audit.journal import log_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import WhichLog, auditing
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.domain.reviews import Review
from drillcore_server.domain.signatures import Signature, TargetKind
from drillcore_server.store import reviews, signatures


@dataclass(frozen=True, slots=True)
class ShownReview:
    review: Review
    signatures: tuple[Signature, ...] = ()

    @property
    def id(self) -> UUID:
        return self.review.id


def list_reviews(library: Library, call: Call, *, which: WhichLog, size: int, token: str) -> Page[ShownReview]:
    """The reviews of a log, oldest first, and who signed them."""
    unit, limit = library.unit, PageLimit(page_size(size), library.unit.page_bytes_max // 2)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Page[ShownReview]:
        log = log_of(granted.tenant)
        listing = f"reviews of {log}"
        found = reviews.scan(tr, unit.keys, library.sealed, log, read_id_token(listing, token))
        page = make_page(listing, *fill_page(found, limit))
        trail.detail["reviews"] = [str(one.id) for one in page.items]
        return Page(_with_signatures(library, tr, log, page.items), page.next_token)

    return unit.read(call, auditing(which), work)


def _with_signatures(library: Library, tr: Reader, log: UUID, found: list[Review]) -> list[ShownReview]:
    versions = [(one.id, 1) for one in found]
    signed = signatures.signatures_of_many(tr, library.unit.keys, log, TargetKind.REVIEW, versions)
    shown = {key: tuple(signatures.with_salt(library.keyring, one) for one in those) for key, those in signed.items()}
    return [ShownReview(one, shown.get(one.id, ())) for one in found]
