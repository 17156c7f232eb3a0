"""Facts: putting, reading, changing and searching them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from drillcore._api.fact_data import (
    EVERY_FACT,
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
    filters_message,
    to_draft,
    to_facts_by_id,
    to_page,
    to_put_result,
    to_search,
    to_state,
)
from drillcore._api.messages import AsOf, as_of_message, enum_number
from drillcore._transport.call import Call, Id, id_text
from drillcore_proto.v1 import facts_pb2 as pb

FactPart = NewFact | pb.FactDraft
"""A fact, or a message of the protocol with one."""
_FACTS: Final = "/drillcore_proto.v1.FactService/"
BATCH_FACTS_MAX: Final = 1_000
"""Facts in one call of `put_fact_batches`: the most that a server takes."""
BATCH_BYTES_MAX: Final = 4_000_000
"""Size of one call of `put_fact_batches`, well below what a server takes."""


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
    """Store at most 1,000 facts as one revision of a corpus: all of them or none. For more, see `put_fact_batches`.

    `embedding_model` names the model that made the facts' embeddings; without embeddings the server makes them. With
    no-store in `cache_control` the facts are kept only in the session `session_id`, until it ends.

    Raises InvalidArgument, whose message names the fact; ResourceExhausted for too many facts; AlreadyExists for an id
    that is or was in use.
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
    """Store any number of facts in calls of at most 1,000. Each call is one revision. Iterate, or nothing is sent.

    Each result comes once its facts are stored. When a call fails, the facts before it are stored, and none after it.
    Each call has a request id that consists of `request_id` and its number, so that the same facts given again are
    stored once. See `put_facts` for arguments and errors.
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
    """Facts by id, in this order. They may be of several corpora. Counts as an access of each. Raises NotFound."""

    def decode(answer: bytes) -> tuple[Fact, ...]:
        return to_facts_by_id(pb.GetFactsResponse.FromString(answer))

    request = pb.GetFactsRequest(
        tenant_id=id_text(tenant_id),
        fact_ids=map(id_text, fact_ids),
        as_of=as_of_message(as_of),
        with_embedding=with_embedding,
    )
    return Call(f"{_FACTS}GetFacts", request, decode, request_id, timeout_s)


def list_facts(
    corpus_id: Id,
    filters: FactFilter = EVERY_FACT,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[FactPage]:
    """One page of the facts of a corpus that match the filters, ordered by id. It counts as no access."""

    def decode(answer: bytes) -> FactPage:
        return to_page(pb.ListFactsResponse.FromString(answer))

    request = pb.ListFactsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        filters=filters_message(filters),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_FACTS}ListFacts", request, decode, request_id, timeout_s)


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
    """Change what is given and keep the rest. Raises Conflict if the fact is not at `expected_version`.

    The server embeds new content, unless you give an `embedding` that `embedding_model` made. Empty `ttl` removes it.
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
    """Give facts of one corpus another status as one revision. A quarantine needs a `reason`.

    To lift the quarantine of one fact, pass the signature of a review of it as `signature_id`. Raises
    FailedPrecondition, and changes nothing, if a transition is not allowed; Conflict if the single fact is not at
    `expected_version`.
    """

    def decode(answer: bytes) -> ChangedFacts:
        response = pb.SetFactStatusResponse.FromString(answer)
        return ChangedFacts(response.changed, response.revision)

    request = pb.SetFactStatusRequest(
        tenant_id=id_text(tenant_id),
        fact_ids=map(id_text, fact_ids),
        status=enum_number(pb.FactStatus, status),
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
    """Archive facts of one corpus: no search finds them, but they stay readable by id. Raises NotFound."""

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
    """Restore archived facts of one corpus, so that searches find them again. Raises NotFound."""

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
    filters: FactFilter = EVERY_FACT,
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
    """The facts nearest in meaning to a text, best first, by default 10. Counts as an access of each.

    Instead of a text you can give a `vector` that `embedding_model` made. Without `corpus_ids` the server searches all
    corpora that the caller may read, including shared ones. `exact` compares every vector. `cache_control` takes
    reuse-ckf, no-store, no-cache, only-if-ckf and max-age=N; only-if-ckf raises NotFound if no fact is relevant enough.
    With a `session_id` the server also searches the facts of that session.
    """
    if (text is None) == (not vector):
        raise TypeError("give either a text or vector=")

    def decode(answer: bytes) -> FactSearch:
        return to_search(pb.SearchFactsResponse.FromString(answer))

    request = pb.SearchFactsRequest(
        tenant_id=id_text(tenant_id),
        corpus_ids=map(id_text, corpus_ids),
        text=text or "",
        vector=vector,
        embedding_model=embedding_model,
        filters=filters_message(filters),
        limit=limit,
        exact=exact,
        as_of=as_of_message(as_of),
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
    """State revisions and hashes of corpora, by default of all that the caller may read, and a hash of all together.

    `revision_only` leaves out the hashes, which take time after a change.
    """

    def decode(answer: bytes) -> State:
        return to_state(pb.GetStateResponse.FromString(answer))

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
    """End a session: destroy the facts that are only in it (no-store). Returns how many there were.

    Its chain of envelopes ends too: it cannot be continued any more.
    """

    def decode(answer: bytes) -> int:
        return pb.EndSessionResponse.FromString(answer).facts_forgotten

    request = pb.EndSessionRequest(tenant_id=id_text(tenant_id), session_id=session_id)
    return Call(f"{_FACTS}EndSession", request, decode, request_id, timeout_s)


def _draft(fact: FactPart) -> pb.FactDraft:
    return to_draft(fact) if isinstance(fact, NewFact) else fact


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
        return to_put_result(pb.PutFactsResponse.FromString(answer))

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
    """Batches for one call each. They depend only on the facts, so that the same facts make the same batches again."""
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
