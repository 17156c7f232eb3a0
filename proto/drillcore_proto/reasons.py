"""The machine-readable reasons why a call failed, each with its gRPC code. Server and client share this table.

A reason travels as `google.rpc.ErrorInfo.reason` with the domain below. Reasons are never renamed or reused.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import grpc

DOMAIN: Final = "drillcore"
API_VERSION: Final = (1, 5)
"""Major and minor version. New fields and calls increase the minor version. Incompatible changes increase the major."""

REQUEST_ID_HEADER: Final = "drillcore-request-id"
API_VERSION_HEADER: Final = "drillcore-api-version"
SERVER_VERSION_HEADER: Final = "drillcore-server-version"
REASON_HEADER: Final = "drillcore-reason-bin"
"""The header for the reason of a call, as the caller gives it (UTF-8). It becomes part of the audit record."""
RESIDENCY_HEADER: Final = "drillcore-data-residency"
"""The header that binds a call to a region: the call may read and change only corpora in it."""


class Reason(enum.Enum):
    """Each value is the name of the gRPC code, and a sentence that says when the reason is used."""

    INVALID_ARGUMENT = ("INVALID_ARGUMENT", "A field has a value that can never be accepted.")
    INVALID_ID = ("INVALID_ARGUMENT", "An id is not a UUID.")
    INVALID_PAGE_TOKEN = ("INVALID_ARGUMENT", "A page token is not one this server gave for this call.")
    UNKNOWN_FIELD = ("INVALID_ARGUMENT", "The request has a field this server does not know.")
    UNPARSABLE = ("INVALID_ARGUMENT", "The content cannot be parsed; `cause` in the details says why.")
    TOO_LARGE = ("RESOURCE_EXHAUSTED", "The request or what it would store is over a limit.")
    UNAUTHENTICATED = ("UNAUTHENTICATED", "No valid credentials.")
    PERMISSION_DENIED = ("PERMISSION_DENIED", "The caller may not do this.")
    SESSION_OVER = ("UNAUTHENTICATED", "The session or token has expired, was idle too long, or was revoked.")
    LOGIN_FAILED = ("UNAUTHENTICATED", "Login and password do not match an account that may log in.")
    ACCOUNT_LOCKED = ("UNAUTHENTICATED", "Too many failures: the account is locked for a while.")
    ACCOUNT_DISABLED = ("UNAUTHENTICATED", "The account is disabled.")
    PASSWORD_EXPIRED = ("FAILED_PRECONDITION", "The password must be changed: log in with it and a new one.")
    PASSWORD_REFUSED = ("INVALID_ARGUMENT", "The new password is too short, too common, or was used before.")
    ACCOUNT_NOT_FOUND = ("NOT_FOUND", "There is no such account.")
    ACCOUNT_EXISTS = ("ALREADY_EXISTS", "An account has, or had, this login, certificate or subject.")
    TOKEN_NOT_FOUND = ("NOT_FOUND", "The account has no such token.")
    REASON_REQUIRED = ("INVALID_ARGUMENT", "This server requires a reason for each call: drillcore-reason-bin.")
    CANNOT_SIGN = ("PERMISSION_DENIED", "Only a person who logged in with a password can sign.")
    CHALLENGE_REFUSED = ("FAILED_PRECONDITION", "The challenge was used, has expired, or is for something else.")
    SIGNATURE_NOT_FOUND = ("NOT_FOUND", "There is no such signature, or no record with this id to sign.")
    AUDIT_RECORD_NOT_FOUND = ("NOT_FOUND", "The log has no such record.")
    CHECKPOINT_NOT_FOUND = ("NOT_FOUND", "The log has no such checkpoint, or fewer records.")
    EXPORT_MADE = (
        "FAILED_PRECONDITION",
        "This request's export was made before; its bundle is not kept.",
    )
    AUDIT_UNAVAILABLE = ("UNAVAILABLE", "The audit record cannot be signed now; nothing was done.")
    TENANT_REQUIRED = ("INVALID_ARGUMENT", "An operator must name the tenant to act in.")
    TENANT_NOT_FOUND = ("NOT_FOUND", "There is no such tenant.")
    TENANT_EXISTS = ("ALREADY_EXISTS", "A tenant has, or had, this id or name.")
    TENANT_NOT_EMPTY = ("FAILED_PRECONDITION", "The tenant still has corpora.")
    CORPUS_NOT_FOUND = ("NOT_FOUND", "There is no such corpus.")
    CORPUS_EXISTS = ("ALREADY_EXISTS", "A corpus has, or had, this id or name.")
    DOCUMENT_NOT_FOUND = ("NOT_FOUND", "There is no such document in this corpus at this revision.")
    NODE_NOT_FOUND = ("NOT_FOUND", "There is no such node at this revision.")
    NODE_EXISTS = ("ALREADY_EXISTS", "Another corpus, or another level, has or had a node of this id.")
    FACT_NOT_FOUND = ("NOT_FOUND", "There is no such fact at this revision.")
    FACT_TOO_SHORT = ("INVALID_ARGUMENT", "A fact has at least 10 tokens.")
    FACT_TOO_LONG = ("INVALID_ARGUMENT", "A fact has at most 2,048 tokens; add a longer text as a document.")
    INVALID_DURATION = ("INVALID_ARGUMENT", "Not an ISO 8601 duration, or a negative or empty one.")
    ILLEGAL_TRANSITION = ("FAILED_PRECONDITION", "A fact cannot change from its status to this one.")
    REVIEW_REQUIRED = ("FAILED_PRECONDITION", "A quarantine is lifted only with the signature of a review of the fact.")
    COMMUNITY_NOT_FOUND = ("NOT_FOUND", "There is no such community at this revision.")
    COMMUNITIES_UNAVAILABLE = ("UNAVAILABLE", "The process that finds communities failed; nothing was written.")
    SOURCE_NOT_FOUND = ("NOT_FOUND", "There is no such source in this corpus at this revision.")
    SOURCE_ERASED = ("FAILED_PRECONDITION", "The source was erased already.")
    ERASED = ("NOT_FOUND", "The requested content came from a source that was erased.")
    NO_CKF_FACTS = ("NOT_FOUND", "only-if-ckf: no fact is relevant enough.")
    QUALITY_NOT_MET = ("FAILED_PRECONDITION", "No envelope of an accepted tier can be packed; `gap` says why.")
    ENVELOPE_NOT_FOUND = ("NOT_FOUND", "No such envelope was issued, or it is no longer kept.")
    CONTINUATION_NOT_FOUND = ("NOT_FOUND", "No such continuation, or its session is over.")
    UNKNOWN_MODEL = ("INVALID_ARGUMENT", "The server has no tokenizer for this model; the message says how to add one.")
    BUDGET_TOO_SMALL = ("INVALID_ARGUMENT", "Nothing is left of the context window for the envelope.")
    REGION_NOT_ALLOWED = ("PERMISSION_DENIED", "The corpus is in a region that is not allowed here.")
    REGION_FIXED = ("FAILED_PRECONDITION", "The corpus has a region already, which cannot be changed.")
    INVALID_HIERARCHY = (
        "INVALID_ARGUMENT",
        "The nodes do not form a hierarchy; the message says where.",
    )
    INVALID_VECTOR = ("INVALID_ARGUMENT", "A vector has the wrong length, only zeros, or values that are not finite.")
    TEXT_INCOMPLETE = ("FAILED_PRECONDITION", "The raws of the document do not make up its whole text.")
    REVISION_NOT_FOUND = ("NOT_FOUND", "The corpus has no such revision.")
    REVISION_TRIMMED = ("NOT_FOUND", "The revision was trimmed by the retention policy; `oldest_revision` can be read.")
    CORPUS_ON_HOLD = ("FAILED_PRECONDITION", "The corpus is on legal hold.")
    CORPUS_NOT_ON_HOLD = ("FAILED_PRECONDITION", "The corpus is not on legal hold, so there is none to release.")
    MODEL_MISMATCH = ("FAILED_PRECONDITION", "The corpus was embedded with another model.")
    MODEL_UNAVAILABLE = ("UNAVAILABLE", "The server of the embedding model fails; nothing was written.")
    INVALID_QUAD = ("INVALID_ARGUMENT", "A term or quad is not valid RDF, or is too long or nested too deeply.")
    RESERVED_QUAD = ("INVALID_ARGUMENT", "These quads are made from the records of the corpus; nobody can put them.")
    INVALID_CORE = ("INVALID_ARGUMENT", "The file is not a knowledge core; the message says where and why.")
    CORE_UNSIGNED = ("FAILED_PRECONDITION", "The core has no signature by one of the keys that were given.")
    CORE_CHANGED = ("ABORTED", "The core differs from the interrupted one: another file, or the corpus changed.")
    CORPUS_NOT_EMPTY = ("FAILED_PRECONDITION", "A full core needs a corpus without content.")
    INVALID_TURN = ("INVALID_ARGUMENT", "A turn or an edge has a value that can never be accepted.")
    TURN_NOT_FOUND = ("NOT_FOUND", "There is no such turn at this revision.")
    ANCHOR_NOT_FOUND = ("NOT_FOUND", "There is no turn, node or fact of this id at this revision; `anchor` names it.")
    VERSION_MISMATCH = ("ABORTED", "The record is not at the version the caller expected.")
    REQUEST_ID_REUSED = ("INVALID_ARGUMENT", "Another request was made with this request id.")
    CLIENT_TOO_OLD = ("FAILED_PRECONDITION", "This server no longer supports the client's protocol version.")
    CLIENT_TOO_NEW = ("FAILED_PRECONDITION", "This server does not support the client's protocol version yet.")
    SERVER_TOO_OLD = ("UNIMPLEMENTED", "The server does not know this call.")
    DEADLINE_EXCEEDED = ("DEADLINE_EXCEEDED", "Time ran out; retry with the same request id to get the outcome.")
    TOO_MANY_WATCHERS = ("RESOURCE_EXHAUSTED", "The server's limit of calls that watch events is reached.")
    STREAM_IDLE = ("DEADLINE_EXCEEDED", "The caller of a stream sent, or took, nothing for too long.")
    CONFLICT = ("ABORTED", "Too much contention; nothing was written.")
    OUTCOME_UNKNOWN = ("UNAVAILABLE", "The commit may have happened; retry with the same request id.")
    STORE_UNAVAILABLE = ("UNAVAILABLE", "The store cannot be reached now; nothing was written.")
    STORE_FULL = ("RESOURCE_EXHAUSTED", "The store has no room left; nothing was written.")
    SHUTTING_DOWN = ("UNAVAILABLE", "The server is stopping.")
    CANCELLED = ("CANCELLED", "The caller gave up.")
    INTERNAL = ("INTERNAL", "A defect of the server; its log has the details under the request id.")

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC code. gRPC is imported here, so that code without gRPC can use reasons."""
        import grpc

        return grpc.StatusCode[self.value[0]]

    @property
    def meaning(self) -> str:
        return self.value[1]
