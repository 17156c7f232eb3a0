"""What an audit record says of a call."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drillcore_server.domain.found import Node
from drillcore_server.domain.ids import CorpusId, CorpusNumber, DocumentId, NodeId, Revision, SourceId, TenantId
from drillcore_server.domain.nodes import Level

NODES_MAX: Final = 1_000
"""Named in one record; there is no call that reads more. A revision's manifest names what it wrote."""
DOCUMENTS_MAX: Final = 500
OK: Final = "OK"


class Action(enum.Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    ACCESS = "ACCESS"
    EXPORT = "EXPORT"
    SIGN = "SIGN"
    ERASE = "ERASE"
    TRIM = "TRIM"
    REVIEW = "REVIEW"
    VERIFY = "VERIFY"
    LOGIN = "LOGIN"
    LOGOUT = "LOGOUT"
    GRANT = "GRANT"
    ROTATE = "ROTATE"
    ALERT = "ALERT"
    """The server itself has something to say: too many failures, a checkpoint that could not be published."""


ACTIONS: Final[Mapping[str, Action]] = {
    "CreateTenant": Action.CREATE,
    "GetTenant": Action.ACCESS,
    "ListTenants": Action.ACCESS,
    "UpdateTenant": Action.UPDATE,
    "DeleteTenant": Action.DELETE,
    "CreateCorpus": Action.CREATE,
    "GetCorpus": Action.ACCESS,
    "ListCorpora": Action.ACCESS,
    "UpdateCorpus": Action.UPDATE,
    "DeleteCorpus": Action.DELETE,
    "TrimCorpus": Action.TRIM,
    "GetServerInfo": Action.ACCESS,
    "AddDocuments": Action.CREATE,
    "UpdateDocument": Action.UPDATE,
    "PutHierarchy": Action.UPDATE,
    "RemoveDocuments": Action.DELETE,
    "GetDocument": Action.ACCESS,
    "ListDocuments": Action.ACCESS,
    "GetNode": Action.ACCESS,
    "Query": Action.ACCESS,
    "DrillDown": Action.ACCESS,
    "RollUp": Action.ACCESS,
    "GetHistory": Action.ACCESS,
    "QueryAudit": Action.ACCESS,
    "WaitProof": Action.ACCESS,
    "GetCheckpoint": Action.ACCESS,
    "GetConsistencyProof": Action.ACCESS,
    "VerifyAudit": Action.VERIFY,
    "ExportAudit": Action.EXPORT,
    "ReviewAudit": Action.REVIEW,
    "ListReviews": Action.ACCESS,
    "RotateAuditKey": Action.ROTATE,
    "CreateAccount": Action.CREATE,
    "GetAccount": Action.ACCESS,
    "ListAccounts": Action.ACCESS,
    "UpdateAccount": Action.UPDATE,
    "SetGrants": Action.GRANT,
    "SetPassword": Action.UPDATE,
    "Login": Action.LOGIN,
    "Logout": Action.LOGOUT,
    "CreateToken": Action.CREATE,
    "ListTokens": Action.ACCESS,
    "RevokeToken": Action.DELETE,
    "PrepareSignature": Action.ACCESS,
    "SignRecord": Action.SIGN,
    "ListSignatures": Action.ACCESS,
    "ExportCorpus": Action.EXPORT,
    "Alert": Action.ALERT,
    "Housekeeping": Action.TRIM,
}
"""What each call is, by the name of its RPC. Below: what the server does by itself."""


@dataclass(slots=True)
class Trail:
    """What one run of a call's work touches; becomes the call's audit record. No content, but for what is private."""

    tenant: TenantId | None = None
    corpora: dict[CorpusId, Revision] = field(default_factory=dict)
    """Each at the revision that was read, or 0 where none was."""
    levels: set[Level] = field(default_factory=set)
    nodes: dict[NodeId, None] = field(default_factory=dict)
    """In order."""
    documents: dict[DocumentId, None] = field(default_factory=dict)
    nodes_count: int = 0
    documents_count: int = 0
    before: dict[str, Any] = field(default_factory=dict)
    """Of a corpus that gets a new revision; of other records in `private`."""
    after: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    """Further facts of the call: texts, whole numbers, lists and maps of them. Ids and counts, no content."""
    private: dict[str, Any] = field(default_factory=dict)
    """What may have to be erased: "query", and "before" and "after" of records that are kept only as they are now."""
    sources: set[tuple[CorpusNumber, SourceId]] = field(default_factory=set)
    """The sources that the private part is about: if there is just one, it is erased with that."""

    def touch_corpus(self, corpus: CorpusId, revision: Revision = Revision(0)) -> None:  # noqa: B008 - a number
        self.corpora[corpus] = max(revision, self.corpora.get(corpus, Revision(0)))

    def touch_nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.levels.add(node.level)
            self.nodes_count += 1
            if len(self.nodes) < NODES_MAX:
                self.nodes[node.id] = None

    def touch_node_ids(self, level: Level, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            self.levels.add(level)
            self.nodes_count += 1
            if len(self.nodes) < NODES_MAX:
                self.nodes[node] = None

    def touch_documents(self, documents: Iterable[DocumentId]) -> None:
        for document in documents:
            self.documents_count += 1
            if len(self.documents) < DOCUMENTS_MAX:
                self.documents[document] = None

    def effects(self) -> dict[str, Any]:
        """What it says in the record: the same for two runs that touched the same."""
        said: dict[str, Any] = {
            "tenant": None if self.tenant is None else str(self.tenant),
            "corpora": {str(corpus): revision for corpus, revision in self.corpora.items()},
            "levels": sorted(level.name.lower() for level in self.levels),
            "nodes": list(map(str, self.nodes)),
            "nodes_count": self.nodes_count,
            "documents": list(map(str, self.documents)),
            "documents_count": self.documents_count,
            "before": self.before,
            "after": self.after,
            "detail": self.detail,
        }
        return {name: value for name, value in said.items() if value}
