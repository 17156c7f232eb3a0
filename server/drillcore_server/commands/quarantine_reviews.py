"""Quarantines of facts: the signed review that lifts one, and the word to the operator when one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore.audit.failures import VerificationFailed
from drillcore.audit.signatures import FACT, check_signature_of_person
from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import CorpusId, FactId
from drillcore_server.exporting.content import fact_content
from drillcore_server.exporting.signatures import signature_content
from drillcore_server.store import signatures


@dataclass(frozen=True, slots=True)
class QuarantineReviews:
    library: Library
    signing: SigningKeys
    tell: Callable[[CorpusId, Sequence[FactId]], None]
    """Tells the operator of facts that were quarantined."""

    def check(self, tr: Reader, corpus: Corpus, fact: Fact, signature: UUID) -> None:
        """Raises REVIEW_REQUIRED unless somebody signed this very fact as it is now.

        Its version is the quarantine's own, or a later one: what was signed before the quarantine is of an earlier one.
        """
        found = signatures.find(tr, self.library.unit.keys, corpus.tenant_id, signature)
        if found is None:
            raise _required("there is no such signature")
        shown = signature_content(signatures.with_salt(self.library.keyring, found))
        try:
            checked = check_signature_of_person(shown, self.signing.trusted(tr))
            if (checked.id, checked.kind, checked.target) != (str(signature), FACT, str(fact.id)):
                raise _required("the signature is not of this fact")
            if checked.version != fact.version:
                raise _required(f"the signature is of version {checked.version}, the fact is at {fact.version}")
            if not checked.check_content(fact_content(fact, corpus.id)):
                raise _required("what the signature is of can no longer be checked")
        except VerificationFailed as failure:
            raise _required("the signature does not verify") from failure


def _required(why: str) -> NotReady:
    message = f"{why}; a quarantine is lifted with a signature of the fact as it is now: sign a review of it"
    return NotReady(Reason.REVIEW_REQUIRED, message)
