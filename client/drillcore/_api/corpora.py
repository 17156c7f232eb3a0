"""Corpora, with their retention, legal hold, region and sharing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import given, one_key, to_datetime, to_id
from drillcore._transport.call import Call, Id, Page, id_text, no_result
from drillcore_proto.v1 import corpora_pb2


@dataclass(frozen=True, slots=True)
class LegalHold:
    """A legal hold on a corpus. While it is on, nothing is trimmed, and the corpus cannot be deleted."""

    on: bool
    """False if it was released."""
    reason: str
    """Why the hold was put on or released."""
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which tenants may read a corpus. They can do nothing else with it."""

    everyone: bool
    """Every tenant, including future ones."""
    tenant_ids: tuple[UUID, ...]
    """The tenants, if it is not shared with everyone."""
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Corpus:
    """A body of documents that belongs to one tenant."""

    id: UUID
    tenant_id: UUID | None
    """None if another tenant shares it with the caller: its owner is not shown."""
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 at creation; every update adds one."""
    retention_days: int | None = None
    """Revisions that were replaced more than this many days ago may be trimmed. None: all are kept for ever."""
    legal_hold: LegalHold | None = None
    """The newest hold or release; None if there never was one."""
    region: str = ""
    """Where its data may be; empty if it has no region."""
    sharing: Sharing | None = None
    """None if it is not shared."""
    shared: bool = False
    """Whether it belongs to another tenant. It can then only be read, and fields about that tenant are left out."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The result of a trim of a corpus."""

    oldest_revision: int
    """The oldest revision that can still be read; 0 if none was ever trimmed."""
    records_removed: int
    finished: bool
    """False if there is more to remove: call again, or leave it to the server."""


def to_corpus(message: corpora_pb2.Corpus) -> Corpus:
    return Corpus(
        id=UUID(message.id),
        tenant_id=to_id(message.tenant_id),
        name=message.name,
        description=message.description,
        metadata=dict(message.metadata),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=to_datetime(message.updated_at),
        version=message.version,
        retention_days=message.retention_days if message.HasField("retention_days") else None,
        legal_hold=_to_legal_hold(message.legal_hold) if message.HasField("legal_hold") else None,
        region=message.region,
        sharing=_to_sharing(message.sharing) if message.HasField("sharing") else None,
        shared=message.shared,
    )


def _to_sharing(message: corpora_pb2.Sharing) -> Sharing:
    tenants = tuple(map(UUID, message.tenant_ids))
    return Sharing(everyone=message.everyone, tenant_ids=tenants, by=message.by, at=to_datetime(message.at))


def _to_legal_hold(message: corpora_pb2.LegalHold) -> LegalHold:
    return LegalHold(on=message.on, reason=message.reason, by=message.by, at=to_datetime(message.at))


def to_trimmed(message: corpora_pb2.TrimCorpusResponse) -> Trimmed:
    return Trimmed(message.oldest_revision, message.records_removed, message.finished)


def to_corpora(message: corpora_pb2.ListCorporaResponse) -> Page[Corpus]:
    return Page(tuple(map(to_corpus, message.corpora)), message.next_page_token)


_CORPORA: Final = "/drillcore_proto.v1.CorpusService/"


def create_corpus(
    name: str,
    *,
    description: str = "",
    metadata: Mapping[str, str] | None = None,
    corpus_id: Id | None = None,
    region: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """Create a corpus, with your own id if you give one. It stays in its region for ever.

    Raises PermissionDenied if the tenant may not use the region.
    Raises AlreadyExists if a corpus of the tenant has this name, or if one has or had this id.
    """

    def decode(answer: bytes) -> Corpus:
        return to_corpus(corpora_pb2.CreateCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.CreateCorpusRequest(
        tenant_id=id_text(tenant_id),
        name=name,
        description=description,
        metadata=metadata or {},
        id=id_text(corpus_id),
        region=region,
    )
    return Call(f"{_CORPORA}CreateCorpus", request, decode, request_id, timeout_s)


def get_corpus(
    corpus_id: Id | None = None,
    *,
    name: str | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """The corpus with this id or name. Raises NotFound."""

    def decode(answer: bytes) -> Corpus:
        return to_corpus(corpora_pb2.GetCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.GetCorpusRequest(tenant_id=id_text(tenant_id), **one_key(corpus_id, name))
    return Call(f"{_CORPORA}GetCorpus", request, decode, request_id, timeout_s)


def list_corpora(
    *,
    tenant_id: Id | None = None,
    page_size: int = 0,
    page_token: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Corpus]]:
    """One page of the tenant's corpora and of those shared with it."""

    def decode(answer: bytes) -> Page[Corpus]:
        return to_corpora(corpora_pb2.ListCorporaResponse.FromString(answer))

    request = corpora_pb2.ListCorporaRequest(tenant_id=id_text(tenant_id), page_size=page_size, page_token=page_token)
    return Call(f"{_CORPORA}ListCorpora", request, decode, request_id, timeout_s)


def update_corpus(
    corpus_id: Id,
    *,
    name: str | None = None,
    description: str | None = None,
    set_metadata: Mapping[str, str] | None = None,
    remove_metadata: Collection[str] = (),
    retention_days: int | None = None,
    keep_everything: bool = False,
    hold_reason: str | None = None,
    release_reason: str | None = None,
    region: str = "",
    share_with_everyone: bool = False,
    share_with: Collection[Id] = (),
    stop_sharing: bool = False,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Corpus]:
    """Change what is given and keep the rest. Raises Conflict if the corpus is not at `expected_version`.

    `retention_days` lets the server trim revisions that were replaced more than this many days ago; `keep_everything`
    ends that. `hold_reason` puts the corpus on legal hold, under which nothing is removed; `release_reason` ends it.
    Raises FailedPrecondition if the hold is on already, or if there is none to release.

    `region` is for a corpus that has none; a corpus in another region raises FailedPrecondition. Operators of the
    server can let other tenants read the corpus: all of them, or those in `share_with`, who replace the earlier ones.
    """
    if retention_days is not None and keep_everything:
        raise TypeError("give either retention_days= or keep_everything=")
    if hold_reason is not None and release_reason is not None:
        raise TypeError("give either hold_reason= or release_reason=")
    if share_with_everyone + bool(share_with) + stop_sharing > 1:
        raise TypeError("give only one of share_with_everyone=, share_with= and stop_sharing=")

    def decode(answer: bytes) -> Corpus:
        return to_corpus(corpora_pb2.UpdateCorpusResponse.FromString(answer).corpus)

    request = corpora_pb2.UpdateCorpusRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(corpus_id),
        name=name,
        description=description,
        set_metadata=set_metadata or {},
        remove_metadata=remove_metadata,
        expected_version=expected_version,
        region=region,
        **given(
            share_with_everyone=share_with_everyone or None,
            share_with_tenants=corpora_pb2.TenantIds(ids=map(id_text, share_with)) if share_with else None,
            stop_sharing=stop_sharing or None,
            retention_days=retention_days,
            keep_everything=keep_everything or None,
            hold_reason=hold_reason,
            release_reason=release_reason,
        ),
    )
    return Call(f"{_CORPORA}UpdateCorpus", request, decode, request_id, timeout_s)


def delete_corpus(
    corpus_id: Id,
    *,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[None]:
    """Delete a corpus. Its id is never used again. Raises FailedPrecondition if it is on legal hold."""
    request = corpora_pb2.DeleteCorpusRequest(
        tenant_id=id_text(tenant_id), id=id_text(corpus_id), expected_version=expected_version
    )
    return Call(f"{_CORPORA}DeleteCorpus", request, no_result, request_id, timeout_s)


def trim_corpus(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Trimmed]:
    """Remove the revisions that the corpus's retention policy no longer keeps.

    The server does this on its own from time to time. If the trim is not `finished`, the next call continues it.
    Raises FailedPrecondition if the corpus is on legal hold.
    """

    def decode(answer: bytes) -> Trimmed:
        return to_trimmed(corpora_pb2.TrimCorpusResponse.FromString(answer))

    request = corpora_pb2.TrimCorpusRequest(tenant_id=id_text(tenant_id), id=id_text(corpus_id))
    return Call(f"{_CORPORA}TrimCorpus", request, decode, request_id, timeout_s)
