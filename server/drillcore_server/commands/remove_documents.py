"""RemoveDocuments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Change, Ingester
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.ids import DocumentId, Revision
from drillcore_server.ingest.planning import Settled
from drillcore_server.store.records import RecordKind

DOCUMENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Removed:
    revision: Revision
    documents: int


REMOVED = RecordKind(Removed)


def remove_documents(ingester: Ingester, call: Call, target: Target, documents: Sequence[DocumentId]) -> Removed:
    """Removes documents from every level as one revision. All must be there; earlier revisions still have them."""
    wanted = sorted(set(documents))
    if not 0 < len(wanted) <= DOCUMENTS_MAX:
        message = f"name 1 to {DOCUMENTS_MAX} documents to remove"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="document_ids")

    settled = Settled()

    def plan(corpus: Corpus, base: Revision) -> Plan[Removed]:
        reader = ingester.reader(corpus, base)
        found = reader.documents(wanted)
        there = [document for document in found if document is not None]
        if len(there) < len(wanted):
            missing = next(one for one, document in zip(wanted, found, strict=True) if document is None)
            raise Missing(Reason.DOCUMENT_NOT_FOUND, f"there is no document {missing}")
        sources = reader.sources([document.source for document in there])
        left = [
            source.left(call.at)
            for source, document in zip(sources, there, strict=True)
            if source is not None and source.document == document.id
        ]
        return ingester.plan(
            call,
            corpus,
            base,
            Change([], there, left),
            settled,
            lambda revision, _sections: Removed(revision, len(there)),
        )

    return ingester.reviser.revise(call, target, REMOVED, plan)
