"""What a call touches, collected for its audit record."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Protocol
from uuid import UUID

from drillcore_server.storage.ids import (
    CorpusId,
    CorpusNumber,
    DocumentId,
    FactId,
    Level,
    NodeId,
    RecordId,
    Revision,
    SourceId,
    TenantId,
    new_uuid,
)

NODES_MAX: Final = 1_000
"""The most nodes that one record names. No call reads more, and a revision's manifest covers everything it wrote."""
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
    """The server reports a problem, such as too many failures, or a checkpoint that could not be published."""


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
    "PutFacts": Action.CREATE,
    "GetFacts": Action.ACCESS,
    "ListFacts": Action.ACCESS,
    "UpdateFact": Action.UPDATE,
    "SetFactStatus": Action.UPDATE,
    "ArchiveFacts": Action.UPDATE,
    "RestoreFacts": Action.UPDATE,
    "SearchFacts": Action.ACCESS,
    "GetState": Action.ACCESS,
    "EndSession": Action.DELETE,
    "PreviewEnvelope": Action.ACCESS,
    "PackEnvelope": Action.ACCESS,
    "ContinueEnvelope": Action.ACCESS,
    "GetEnvelope": Action.ACCESS,
    "ListCommunities": Action.ACCESS,
    "GetCommunity": Action.ACCESS,
    "RecomputeCommunities": Action.UPDATE,
    "GetSource": Action.ACCESS,
    "ListSources": Action.ACCESS,
    "EraseSource": Action.ERASE,
    "ListErasures": Action.ACCESS,
    "PurgeErased": Action.ERASE,
    "WatchEvents": Action.ACCESS,
    "MigrateEmbeddings": Action.UPDATE,
    "GetMigration": Action.ACCESS,
    "Alert": Action.ALERT,
    "InviteServer": Action.EXPORT,
    "Housekeeping": Action.TRIM,
    "PutQuads": Action.UPDATE,
    "RemoveQuads": Action.DELETE,
    "MatchQuads": Action.ACCESS,
    "ImportQuads": Action.UPDATE,
    "ExportQuads": Action.EXPORT,
    "Explain": Action.ACCESS,
    "ExportCore": Action.EXPORT,
    "ImportCore": Action.CREATE,
    "PutTurns": Action.UPDATE,
    "PutEdges": Action.UPDATE,
    "RemoveTurns": Action.DELETE,
    "ListTurns": Action.ACCESS,
    "Slice": Action.ACCESS,
}
"""The action of each RPC, and of the calls that the server makes itself: Alert and Housekeeping."""


class TouchedNode(Protocol):
    """The parts of a node that a record contains."""

    @property
    def id(self) -> NodeId: ...
    @property
    def level(self) -> Level: ...
    @property
    def source(self) -> SourceId | None:
        """The source of its content; None if it may have several."""


class TouchedFact(Protocol):
    """The parts of a fact that a record contains."""

    @property
    def id(self) -> FactId: ...
    @property
    def source(self) -> SourceId: ...


@dataclass(slots=True)
class Trail:
    """What one run of a call's work touches. It becomes the call's audit record. Only `private` may have content."""

    tenant: TenantId | None = None
    record: RecordId = field(default_factory=lambda: RecordId(new_uuid()))
    """The id that the record will have."""
    corpora: dict[CorpusId, Revision] = field(default_factory=dict)
    """Each corpus with the revision that was read, or 0 if none was."""
    levels: set[Level] = field(default_factory=set)
    nodes: dict[NodeId, None] = field(default_factory=dict)
    """In the order in which they were touched."""
    documents: dict[DocumentId, None] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    """The state of a revised corpus before the call. Earlier states of other records are in `private`."""
    after: dict[str, Any] = field(default_factory=dict)
    """The state of a revised corpus after the call."""
    detail: dict[str, Any] = field(default_factory=dict)
    """Further details: texts, whole numbers, and lists and maps of them. Ids and counts, no content."""
    private: dict[str, Any] = field(default_factory=dict)
    """Parts that may have to be erased: "query", and "before" and "after" of records without revisions."""
    sources: set[tuple[CorpusNumber, SourceId]] = field(default_factory=set)
    """The sources that the private part is about. If there is only one, the part is erased with it."""
    next_key: int | None = None
    """The number of the key that signs all later records. None: the key stays the same."""

    def touch_corpus(self, corpus: CorpusId, revision: Revision = Revision(0)) -> None:  # noqa: B008 - a number
        self.corpora[corpus] = max(revision, self.corpora.get(corpus, Revision(0)))

    def touch_nodes(self, nodes: Iterable[TouchedNode], corpus: CorpusNumber | None = None) -> None:
        """Adds nodes that the caller gets. Pass the number of their corpus if they are all of one corpus."""
        for node in nodes:
            self.levels.add(node.level)
            self.nodes[node.id] = None
            if corpus is not None and node.source is not None:
                self.sources.add((corpus, node.source))

    def touch_node_ids(self, nodes: Iterable[NodeId]) -> None:
        """Adds nodes that the caller named."""
        self.nodes |= dict.fromkeys(nodes)

    def touch_facts(self, facts: Iterable[TouchedFact], corpus: CorpusNumber) -> None:
        """Adds facts of a corpus that the caller gets or changes."""
        for fact in facts:
            self.levels.add(Level.CHUNK)
            self.nodes[NodeId(fact.id)] = None
            self.sources.add((corpus, fact.source))

    def touch_documents(self, documents: Iterable[DocumentId]) -> None:
        self.documents |= dict.fromkeys(documents)

    def change(self, before: object | None, after: object | None) -> None:
        """Adds the states of a record before and after the call. For records without revisions and without secrets."""
        changed = {"before": before, "after": after}
        self.private |= {name: plain(record) for name, record in changed.items() if record is not None}

    def effects(self) -> dict[str, Any]:
        """The part of the record that is equal for two runs that touched the same. Ids become texts when written."""
        said: dict[str, Any] = {
            "tenant": self.tenant,
            "corpora": {str(corpus): revision for corpus, revision in self.corpora.items()},
            "levels": sorted(level.word for level in self.levels),
            "nodes": list(islice(self.nodes, NODES_MAX)),
            "nodes_count": len(self.nodes),
            "documents": list(islice(self.documents, DOCUMENTS_MAX)),
            "documents_count": len(self.documents),
            "before": self.before,
            "after": self.after,
            "detail": self.detail,
        }
        return {name: value for name, value in said.items() if value}


def plain(value: Any) -> Any:
    """A record as texts, numbers, lists and maps that JSON can represent."""
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        # Pairs, because the keys of JSON objects here must be ASCII, and these may not be.
        return [[key, plain(entry)] for key, entry in sorted(value.items())]
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, set | frozenset) else items
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, datetime | bytes | UUID | float):
        return _text(value)
    return value


def _text(value: datetime | bytes | UUID | float) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return time_text(value) if isinstance(value, datetime) else str(value)


def time_text(at: datetime) -> str:
    """RFC 3339 in UTC, to the microsecond."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
