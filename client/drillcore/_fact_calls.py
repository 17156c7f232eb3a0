"""Calls about facts. See `_calls`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from drillcore import _convert_facts as convert
from drillcore import _convert_nodes
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._fact_results import (
    ChangedFacts,
    Fact,
    FactFilter,
    FactPage,
    FactSearch,
    FactStatus,
    NewFact,
    PutFactsResult,
    State,
    UpdatedFact,
)
from drillcore_proto.v1 import facts_pb2 as pb

FactPart = NewFact | pb.FactDraft
"""A fact; as a message of the protocol, if it is one already."""

_FACTS: Final = "/drillcore_proto.v1.FactService/"
_EVERY: Final = FactFilter()

BATCH_FACTS_MAX: Final = 1_000
"""Facts in a call of `put_fact_batches`: as many as a server takes at once."""
BATCH_BYTES_MAX: Final = 4_000_000
"""Of a call of `put_fact_batches`, well below what a server takes."""


def put_facts(
    corpus_id: Id,
    facts: Iterable[FactPart],
    *,
    embedding_model: str = "",
    cache_control: str = "",
    session_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutFactsResult]:
    """Store facts, at most 1,000, as one revision of a corpus: all or none. For more see `put_fact_batches`.

    `embedding_model` names what made the facts' embeddings; without embeddings the server makes them. With no-store in
    `cache_control` the facts are kept in the session `session_id` only, until it ends.

    Raises InvalidArgument, whose message names the fact, ResourceExhausted for too many, AlreadyExists for an id that
    is or was in use.
    """
    drafts = list(map(_draft, facts))
    return _put(corpus_id, drafts, embedding_model, cache_control, session_id, tenant_id, request_id, timeout_s)


def put_fact_batches(
    corpus_id: Id,
    facts: Iterable[FactPart],
    *,
    embedding_model: str = "",
    cache_control: str = "",
    session_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Iterator[Call[PutFactsResult]]:
    """Store any number of facts, in calls of at most 1,000, each a revision of its own. Iterate: nothing is sent else.

    Each result comes when its facts are stored: when a call fails, what came before it is in, and nothing after it.
    Calls have request ids of their own, of `request_id` and their number, so the same facts given again under it are
    stored once. Arguments and errors: see `put_facts`.
    """
    for number, drafts in enumerate(_batches(map(_draft, facts))):
        name = None if request_id is None else f"{request_id}.{number}"
        yield _put(corpus_id, drafts, embedding_model, cache_control, session_id, tenant_id, name, timeout_s)


def get_facts(
    fact_ids: Collection[Id],
    *,
    as_of: AsOf | None = None,
    with_embedding: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[tuple[Fact, ...]]:
    """Facts by their ids, of any corpora, in this order. Counts as an access of each. Raises NotFound if one is not."""

    def decode(answer: bytes) -> tuple[Fact, ...]:
        return convert.facts_by_id(pb.GetFactsResponse.FromString(answer))

    request = pb.GetFactsRequest(
        tenant_id=id_text(tenant_id),
        fact_ids=map(id_text, fact_ids),
        as_of=_convert_nodes.as_of_message(as_of),
        with_embedding=with_embedding,
    )
    return Call(f"{_FACTS}GetFacts", request, decode, request_id, timeout_s)


def list_facts(
    corpus_id: Id,
    wanted: FactFilter = _EVERY,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[FactPage]:
    """One page of the facts of a corpus that pass the filter, in the order of their ids. No access is counted."""

    def decode(answer: bytes) -> FactPage:
        return convert.page(pb.ListFactsResponse.FromString(answer))

    request = pb.ListFactsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        filters=convert.filters_message(wanted),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_FACTS}ListFacts", request, decode, request_id, timeout_s)


def iter_facts(
    corpus_id: Id,
    wanted: FactFilter = _EVERY,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Fact]:
    """Every fact that `list_facts` lists, fetched page by page, all of one moment. `timeout_s` is for each page."""
    return lambda token: list_facts(
        corpus_id, wanted, as_of=as_of, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


def update_fact(
    fact_id: Id,
    *,
    content: str | None = None,
    source_location: str | None = None,
    importance_weight: float | None = None,
    ttl: str | None = None,
    set_metadata: Mapping[str, str] | None = None,
    remove_metadata: Collection[str] = (),
    embedding: Sequence[float] = (),
    embedding_model: str = "",
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[UpdatedFact]:
    """Change what is given and leave the rest. Raises Conflict if the fact is not at `expected_version`.

    New content is embedded anew, or brings an `embedding` that `embedding_model` made. An empty `ttl` means none.
    """

    def decode(answer: bytes) -> UpdatedFact:
        response = pb.UpdateFactResponse.FromString(answer)
        return UpdatedFact(response.version, response.revision)

    request = pb.UpdateFactRequest(
        tenant_id=id_text(tenant_id),
        fact_id=id_text(fact_id),
        content=content,
        source_location=source_location,
        importance_weight=importance_weight,
        ttl=ttl,
        set_metadata=set_metadata or {},
        remove_metadata=remove_metadata,
        expected_version=expected_version,
        embedding=embedding,
        embedding_model=embedding_model,
    )
    return Call(f"{_FACTS}UpdateFact", request, decode, request_id, timeout_s)


def set_fact_status(
    fact_ids: Collection[Id],
    status: FactStatus,
    *,
    reason: str = "",
    signature_id: Id | None = None,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[ChangedFacts]:
    """Move facts of one corpus to another status, as one revision. A quarantine needs a reason.

    A quarantine is lifted, of one fact, with the signature of a review of it: `signature_id`. Raises FailedPrecondition
    for a transition that is not allowed, and changes none; Conflict if the one fact is not at `expected_version`.
    """

    def decode(answer: bytes) -> ChangedFacts:
        response = pb.SetFactStatusResponse.FromString(answer)
        return ChangedFacts(response.changed, response.revision)

    request = pb.SetFactStatusRequest(
        tenant_id=id_text(tenant_id),
        fact_ids=map(id_text, fact_ids),
        status=convert.status_message(status),
        reason=reason,
        signature_id=id_text(signature_id),
        expected_version=expected_version,
    )
    return Call(f"{_FACTS}SetFactStatus", request, decode, request_id, timeout_s)


def archive_facts(
    fact_ids: Collection[Id],
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[ChangedFacts]:
    """Take facts of one corpus out of every search; they stay readable by id. Raises NotFound if one is not there."""

    def decode(answer: bytes) -> ChangedFacts:
        response = pb.ArchiveFactsResponse.FromString(answer)
        return ChangedFacts(response.archived, response.revision)

    request = pb.ArchiveFactsRequest(tenant_id=id_text(tenant_id), fact_ids=map(id_text, fact_ids))
    return Call(f"{_FACTS}ArchiveFacts", request, decode, request_id, timeout_s)


def restore_facts(
    fact_ids: Collection[Id],
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[ChangedFacts]:
    """Bring archived facts of one corpus back into searches. Raises NotFound if one is not there."""

    def decode(answer: bytes) -> ChangedFacts:
        response = pb.RestoreFactsResponse.FromString(answer)
        return ChangedFacts(response.restored, response.revision)

    request = pb.RestoreFactsRequest(tenant_id=id_text(tenant_id), fact_ids=map(id_text, fact_ids))
    return Call(f"{_FACTS}RestoreFacts", request, decode, request_id, timeout_s)


def search_facts(
    text: str | None = None,
    *,
    vector: Sequence[float] = (),
    embedding_model: str = "",
    corpus_ids: Collection[Id] = (),
    wanted: FactFilter = _EVERY,
    limit: int = 0,
    exact: bool = False,
    as_of: AsOf | None = None,
    cache_control: str = "",
    session_id: str = "",
    with_embedding: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[FactSearch]:
    """The facts nearest in meaning to a text, or to a `vector` that `embedding_model` made; best first, by default 10.

    Without `corpus_ids` all that the caller may read are searched, shared ones too. `exact` compares every vector.
    `cache_control` takes reuse-ckf, no-store, no-cache, only-if-ckf and max-age=N; only-if-ckf raises NotFound if no
    fact is relevant enough. With a `session_id` the facts of that session are found too. Counts as an access of each.
    """
    if (text is None) == (not vector):
        raise TypeError("give either a text or a vector")

    def decode(answer: bytes) -> FactSearch:
        return convert.search(pb.SearchFactsResponse.FromString(answer))

    request = pb.SearchFactsRequest(
        tenant_id=id_text(tenant_id),
        corpus_ids=map(id_text, corpus_ids),
        text=text or "",
        vector=vector,
        embedding_model=embedding_model,
        filters=convert.filters_message(wanted),
        limit=limit,
        exact=exact,
        as_of=_convert_nodes.as_of_message(as_of),
        cache_control=cache_control,
        session_id=session_id,
        with_embedding=with_embedding,
    )
    return Call(f"{_FACTS}SearchFacts", request, decode, request_id, timeout_s)


def get_state(
    corpus_ids: Collection[Id] = (),
    *,
    revision_only: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[State]:
    """State revisions and hashes of corpora, by default of all that the caller may read, and of them together.

    `revision_only` leaves out the hashes, which cost something after a change.
    """

    def decode(answer: bytes) -> State:
        return convert.state(pb.GetStateResponse.FromString(answer))

    request = pb.GetStateRequest(
        tenant_id=id_text(tenant_id), corpus_ids=map(id_text, corpus_ids), revision_only=revision_only
    )
    return Call(f"{_FACTS}GetState", request, decode, request_id, timeout_s)


def end_session(
    session_id: str,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[int]:
    """Forget the facts that were put into a session only (no-store); how many there were.

    Its chain of envelopes is over too: no continuation of it can be packed any more.
    """

    def decode(answer: bytes) -> int:
        return pb.EndSessionResponse.FromString(answer).facts_forgotten

    request = pb.EndSessionRequest(tenant_id=id_text(tenant_id), session_id=session_id)
    return Call(f"{_FACTS}EndSession", request, decode, request_id, timeout_s)


def _draft(fact: FactPart) -> pb.FactDraft:
    return convert.draft(fact) if isinstance(fact, NewFact) else fact


def _put(
    corpus_id: Id,
    drafts: Sequence[pb.FactDraft],
    embedding_model: str,
    cache_control: str,
    session_id: str,
    tenant_id: Id | None,
    request_id: str | None,
    timeout_s: float | None,
) -> Call[PutFactsResult]:
    def decode(answer: bytes) -> PutFactsResult:
        return convert.put_result(pb.PutFactsResponse.FromString(answer))

    request = pb.PutFactsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        facts=drafts,
        embedding_model=embedding_model,
        cache_control=cache_control,
        session_id=session_id,
    )
    return Call(f"{_FACTS}PutFacts", request, decode, request_id, timeout_s)


def _batches(drafts: Iterable[pb.FactDraft]) -> Iterator[list[pb.FactDraft]]:
    """As many facts as go into one call. Which, depends on the facts alone: given again, they are the same batches."""
    batch: list[pb.FactDraft] = []
    size_bytes = 0
    for draft in drafts:
        if batch and (len(batch) == BATCH_FACTS_MAX or size_bytes + draft.ByteSize() > BATCH_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(draft)
        size_bytes += draft.ByteSize()
    if batch:
        yield batch
