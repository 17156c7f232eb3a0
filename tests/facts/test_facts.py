"""Facts through the real server: put, read, listed, changed and searched, at the head and at earlier revisions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.facts.filters import FilteredSearch
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import at_revision, refused
from tests.support.servers.running import ACME, GLOBEX, OPERATOR, create_tenants, running

TEXTS = (
    "The firm must keep records of every transaction for at least seven years after it was made.",
    "A customer may withdraw from the contract within fourteen days of signing it, without giving a reason.",
    "The board reviews the policy on conflicts of interest once a year and publishes what it has found.",
)


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with FactCaller(server, ACME) as found:
            yield found


def put(caller: FactCaller, corpus: str, *texts: str, **fields: object) -> list[str]:
    drafts = [pb.FactDraft(content=text, source_id="manual", **fields) for text in texts]  # type: ignore[arg-type]
    return list(caller.put(corpus, *drafts).fact_ids)


def test_a_fact_has_every_field_of_the_specification(caller: FactCaller) -> None:
    corpus = caller.corpus()
    draft = pb.FactDraft(
        content=TEXTS[0],
        source_id="manual",
        source_location="page 3",
        importance_weight=0.9,
        ttl="P90D",
        metadata={"topic": "records"},
    )
    (fact_id,) = caller.put(corpus, draft).fact_ids
    fact = caller.get(fact_id, with_embedding=True)
    assert (fact.fact_id, fact.corpus_id, fact.content, fact.source_id) == (fact_id, corpus, TEXTS[0], "manual")
    assert fact.content_hash == hashlib.sha256(TEXTS[0].encode()).hexdigest()
    assert (fact.source_location, fact.importance_weight, fact.ttl) == ("page 3", 0.9, "P90D")
    assert fact.metadata == {"topic": "records"}
    assert fact.status == pb.FACT_STATUS_ACTIVE
    assert fact.ingested_at == fact.modified_at
    assert len(fact.embedding) == 256
    assert fact.embedding_model
    assert (fact.version, fact.access_count, fact.HasField("last_accessed_at")) == (1, 0, False)
    again = caller.get(fact_id)
    assert (again.access_count, list(again.embedding)) == (1, [])
    assert again.HasField("last_accessed_at")


def test_facts_of_one_call_make_one_revision_and_are_listed_in_pages(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = put(caller, corpus, *TEXTS)
    pages = list(caller.pages(corpus, page_size=2))
    assert [fact.fact_id for page in pages for fact in page.facts] == sorted(ids)
    assert [page.revision for page in pages] == [1, 1]
    assert put(caller, corpus, TEXTS[0]) != ids[:1], "the same text again is another fact"
    assert caller.list(corpus, as_of=at_revision(1)) == [caller_fact for page in pages for caller_fact in page.facts]


def test_a_search_finds_the_nearest_first_and_counts_the_access(caller: FactCaller) -> None:
    corpus = caller.corpus()
    ids = put(caller, corpus, *TEXTS)
    hits = caller.search("how long must records be kept?", corpus).hits
    assert hits[0].fact.fact_id == ids[0]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert caller.search("how long must records be kept?", corpus, exact=True).hits[0].fact.access_count == 1
    by_vector = caller.search(
        "",
        corpus,
        vector=caller.get(ids[1], with_embedding=True).embedding,
        embedding_model=hits[0].fact.embedding_model,
        limit=1,
    ).hits
    assert [hit.fact.fact_id for hit in by_vector] == ids[1:2]
    assert by_vector[0].score == pytest.approx(1.0, abs=1e-3)


def test_a_search_sees_additions_changes_and_removals_made_just_before(caller: FactCaller) -> None:
    corpus = caller.corpus()
    first, second, _ = put(caller, corpus, *TEXTS)
    found = {hit.fact.fact_id for hit in caller.search("records", corpus).hits}
    assert {first, second} <= found
    caller.set_status(first, pb.FACT_STATUS_DELETED)
    caller.set_status(second, pb.FACT_STATUS_QUARANTINED, reason="it led to a fabrication")
    (new,) = put(caller, corpus, "Records of telephone calls are kept for twelve months in a separate archive.")
    found = {hit.fact.fact_id for hit in caller.search("records", corpus).hits}
    assert new in found
    assert not {first, second} & found
    earlier = {hit.fact.fact_id for hit in caller.search("records", corpus, as_of=at_revision(1)).hits}
    assert {first, second} <= earlier
    assert new not in earlier


def test_new_content_is_embedded_anew(caller: FactCaller) -> None:
    corpus = caller.corpus()
    fact_id, *_ = put(caller, corpus, *TEXTS)
    updated = caller.update(fact_id, content="Elephants drink up to two hundred litres of water on a hot summer day.")
    assert (updated.version, updated.revision) == (2, 2)
    assert caller.search("what do elephants drink?", corpus, limit=1).hits[0].fact.fact_id == fact_id
    assert caller.get(fact_id, as_of=at_revision(1)).content == TEXTS[0]


def test_an_update_without_a_change_makes_no_revision(caller: FactCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus, TEXTS[0])
    assert caller.update(fact_id, content=TEXTS[0]).revision == 1
    assert caller.update(fact_id, importance_weight=0.1).revision == 2
    with refused(Reason.VERSION_MISMATCH):
        caller.update(fact_id, importance_weight=0.2, expected_version=1)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (pb.FactFilters(source_ids=["manual"]), {0, 1}),
        (pb.FactFilters(source_ids=["other", "none"]), {2}),
        (pb.FactFilters(metadata={"n": "1"}), {1}),
        (pb.FactFilters(metadata={"n": "1", "m": ""}), set()),
        (pb.FactFilters(statuses=[pb.FACT_STATUS_STALE]), {1}),
        (pb.FactFilters(statuses=[pb.FACT_STATUS_STALE], source_ids=["other"]), set()),
    ],
)
def test_filters_narrow_searches_and_listings(caller: FactCaller, filters: pb.FactFilters, expected: set[int]) -> None:
    corpus = caller.corpus()
    drafts = [
        pb.FactDraft(content=text, source_id="other" if number == 2 else "manual", metadata={"n": str(number)})
        for number, text in enumerate(TEXTS)
    ]
    ids = list(caller.put(corpus, *drafts).fact_ids)
    caller.set_status(ids[1], pb.FACT_STATUS_STALE)
    assert {fact.fact_id for fact in caller.list(corpus, filters=filters)} == {ids[place] for place in expected}
    hits = caller.search("records", corpus, filters=filters).hits
    assert {hit.fact.fact_id for hit in hits} == {ids[place] for place in expected}
    assert {hit.fact.fact_id for hit in hits if hit.stale} == {ids[place] for place in expected & {1}}


def test_filters_by_time_include_their_start_and_exclude_their_end(caller: FactCaller) -> None:
    corpus = caller.corpus()
    for text in TEXTS:
        put(caller, corpus, text)
    first, second, third = caller.list(corpus)
    for filters, expected in (
        (pb.FactFilters(ingested_after=second.ingested_at), {second.fact_id, third.fact_id}),
        (pb.FactFilters(ingested_before=second.ingested_at), {first.fact_id}),
        (pb.FactFilters(ingested_after=second.ingested_at, ingested_before=third.ingested_at), {second.fact_id}),
    ):
        assert {fact.fact_id for fact in caller.list(corpus, filters=filters)} == expected
        assert {hit.fact.fact_id for hit in caller.search("records", corpus, filters=filters).hits} == expected


def test_reasons_and_locations_have_a_maximum_length(caller: FactCaller) -> None:
    corpus = caller.corpus()
    draft = pb.FactDraft(content=TEXTS[0], source_id="s", source_location="p" * 1000)
    (fact_id,) = caller.put(corpus, draft).fact_ids
    with refused(Reason.TOO_LARGE):
        caller.put(corpus, pb.FactDraft(content=TEXTS[0], source_id="s", source_location="p" * 1001))
    with refused(Reason.TOO_LARGE):
        caller.update(fact_id, source_location="p" * 1001)
    with refused(Reason.TOO_LARGE):
        caller.set_status(fact_id, pb.FACT_STATUS_STALE, reason="r" * 1001)
    caller.set_status(fact_id, pb.FACT_STATUS_STALE, reason="r" * 1000)
    assert len(caller.get(fact_id).status_reason) == 1000


def test_a_thousand_facts_can_be_put_at_once_and_no_more(caller: FactCaller) -> None:
    corpus = caller.corpus()
    draft = pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[1.0, 0.0])
    with refused(Reason.INVALID_ARGUMENT):
        caller.put(corpus, *[draft] * 1001, embedding_model="mine")
    assert len(caller.put(corpus, *[draft] * 1000, embedding_model="mine").fact_ids) == 1000
    with refused(Reason.INVALID_ARGUMENT):
        caller.put(corpus)


RARE = pb.FactFilters(metadata={"rare": "yes"})


def put_rare(caller: FactCaller, corpus: str) -> set[str]:
    """Puts a few rare facts among twelve others; returns the ids of the rare facts."""
    drafts = [
        pb.FactDraft(content=f"{TEXTS[0]} {number}", source_id="s", metadata={"rare": "no" if number % 7 else "yes"})
        for number in range(14)
    ]
    return set(list(caller.put(corpus, *drafts).fact_ids)[::7])


@pytest.mark.parametrize("looked_at", range(1, 16))
def test_a_listing_that_looks_at_many_facts_goes_on_in_short_pages(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr("drillcore_server.facts.filters.LOOKED_AT_MAX", looked_at)
    corpus = caller.corpus()
    rare = put_rare(caller, corpus)
    for size in (1, 2, 3):
        assert [fact.fact_id for fact in caller.list(corpus, filters=RARE, page_size=size)] == sorted(rare)
    assert len(caller.list(corpus, page_size=5)) == 14
    assert caller.list(corpus, filters=pb.FactFilters(metadata={"rare": "never"})) == []
    assert len(list(caller.pages(corpus, filters=RARE))) == -(-14 // looked_at)


def test_a_search_that_tries_many_facts_in_vain_finds_those_that_are_allowed(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, other_corpus = caller.corpus(), caller.corpus("other")
    rare = put_rare(caller, corpus) | put_rare(caller, other_corpus)
    patient = caller.search("records", filters=RARE)
    monkeypatch.setattr("drillcore_server.facts.filters.TRIED_MAX", 1)
    impatient = caller.search("records", filters=RARE)
    assert {hit.fact.fact_id for hit in impatient.hits} == rare
    assert [hit.fact.fact_id for hit in impatient.hits] == [hit.fact.fact_id for hit in patient.hits]
    assert not caller.search("records", corpus, filters=pb.FactFilters(metadata={"rare": "never"})).hits
    narrowed = pb.FactFilters(metadata={"rare": "yes"}, source_ids=["s"])
    assert {hit.fact.fact_id for hit in caller.search("records", filters=narrowed).hits} == rare
    assert {fact.access_count for fact in caller.list(corpus, filters=RARE)} == {3}, (
        "one access for each search that was answered"
    )


def test_a_search_that_starts_again_sees_changes_made_meanwhile(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drillcore_server.facts.filters.TRIED_MAX", 1)
    corpus = caller.corpus()
    gone, kept = sorted(put_rare(caller, corpus))
    new: list[str] = []
    gather = FilteredSearch._gathered

    def gather_then_change(narrowing: FilteredSearch, snapshot: BatchedReads) -> object:
        found = gather(narrowing, snapshot)
        caller.set_status(gone, pb.FACT_STATUS_DELETED)
        draft = pb.FactDraft(content=TEXTS[1], source_id="s", metadata={"rare": "yes"})
        new.extend(caller.put(corpus, draft).fact_ids)
        return found

    monkeypatch.setattr(FilteredSearch, "_gathered", gather_then_change)
    found = caller.search("records", corpus, filters=RARE)
    assert {hit.fact.fact_id for hit in found.hits} == {kept, *new}
    assert found.revisions[corpus] == 3


SHORT, LONG = "too short", "word " * 2048
BAD_DRAFTS = {
    "short": (pb.FactDraft(content="word", source_id="s"), Reason.FACT_TOO_SHORT),
    "long": (pb.FactDraft(content=LONG + "word", source_id="s"), Reason.FACT_TOO_LONG),
    "empty": (pb.FactDraft(content="", source_id="s"), Reason.FACT_TOO_SHORT),
    "no source": (pb.FactDraft(content=TEXTS[0]), Reason.INVALID_ARGUMENT),
    "negative ttl": (pb.FactDraft(content=TEXTS[0], source_id="s", ttl="-P1D"), Reason.INVALID_DURATION),
    "no duration": (pb.FactDraft(content=TEXTS[0], source_id="s", ttl="90 days"), Reason.INVALID_DURATION),
    "nothing long": (pb.FactDraft(content=TEXTS[0], source_id="s", ttl="P0D"), Reason.INVALID_DURATION),
    "weight": (pb.FactDraft(content=TEXTS[0], source_id="s", importance_weight=1.5), Reason.INVALID_ARGUMENT),
    "no weight": (
        pb.FactDraft(content=TEXTS[0], source_id="s", importance_weight=float("nan")),
        Reason.INVALID_ARGUMENT,
    ),
    "zero vector": (pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[0.0] * 256), Reason.INVALID_VECTOR),
    "no number": (pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[float("nan")] * 256), Reason.INVALID_VECTOR),
    "dimensions": (pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[1.0] * 3), Reason.MODEL_MISMATCH),
    "unknown chunk": (pb.FactDraft(content=TEXTS[0], chunk_id=str(uuid4())), Reason.NODE_NOT_FOUND),
}


@pytest.mark.parametrize("case", BAD_DRAFTS)
def test_a_bad_fact_makes_the_whole_call_fail(caller: FactCaller, case: str) -> None:
    corpus = caller.corpus()
    put(caller, corpus, TEXTS[1])
    model = caller.list(corpus)[0].embedding_model
    draft, reason = BAD_DRAFTS[case]
    good = pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[1.0] * 256 if draft.embedding else [])
    drafts = [draft] if case == "dimensions" else [good, draft]
    with refused(reason):
        caller.put(corpus, *drafts, embedding_model=model if draft.embedding else "")
    assert len(caller.list(corpus)) == 1


def words(count: int) -> str:
    """A text with the given number of tokens."""
    return " ".join(["word"] * count)


@pytest.mark.parametrize("count", [10, 2048])
def test_facts_with_the_fewest_and_the_most_allowed_tokens_are_accepted(caller: FactCaller, count: int) -> None:
    (fact_id,) = put(caller, caller.corpus(), words(count))
    assert caller.get(fact_id).tokens == count
    caller.update(fact_id, content=words(count).replace("word", "term"))
    assert caller.get(fact_id).tokens == count


@pytest.mark.parametrize(
    ("count", "reason"), [(0, Reason.FACT_TOO_SHORT), (9, Reason.FACT_TOO_SHORT), (2049, Reason.FACT_TOO_LONG)]
)
def test_facts_of_fewer_or_more_tokens_are_refused(caller: FactCaller, count: int, reason: Reason) -> None:
    corpus = caller.corpus()
    (fact_id,) = put(caller, corpus, TEXTS[0])
    with refused(reason):
        put(caller, corpus, words(count))
    with refused(reason):
        caller.update(fact_id, content=words(count))
    assert [(fact.content, fact.version) for fact in caller.list(corpus)] == [(TEXTS[0], 1)]


def test_vectors_of_another_model_are_refused(caller: FactCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus, TEXTS[1])
    draft = pb.FactDraft(content=TEXTS[0], source_id="s", embedding=[1.0] * 256)
    with refused(Reason.MODEL_MISMATCH):
        caller.put(corpus, draft, embedding_model="another")
    with refused(Reason.MODEL_MISMATCH):
        caller.search("", corpus, vector=[1.0] * 256, embedding_model="another")
    empty = caller.corpus("empty")
    (fact_id,) = caller.put(empty, draft, embedding_model="another").fact_ids
    assert caller.search("", empty, vector=[1.0] * 256, embedding_model="another").hits[0].fact.fact_id == fact_id


def test_an_id_chosen_by_the_caller_is_accepted_once(caller: FactCaller) -> None:
    corpus, fact_id = caller.corpus(), str(uuid4())
    draft = pb.FactDraft(fact_id=fact_id, content=TEXTS[0], source_id="s")
    assert caller.put(corpus, draft).fact_ids == [fact_id]
    with refused(Reason.NODE_EXISTS):
        caller.put(corpus, draft)
    with refused(Reason.NODE_EXISTS):
        caller.put(caller.corpus("other"), draft)
    with refused(Reason.NODE_NOT_FOUND):
        caller.node(fact_id)


LEGAL = {
    ("ACTIVE", "STALE"),
    ("ACTIVE", "DELETED"),
    ("ACTIVE", "QUARANTINED"),
    ("STALE", "ACTIVE"),
    ("STALE", "DELETED"),
}
WAYS = {"ACTIVE": [], "STALE": ["STALE"], "DELETED": ["DELETED"], "QUARANTINED": ["QUARANTINED"]}


@pytest.mark.parametrize("start", WAYS)
def test_only_legal_transitions_are_made(caller: FactCaller, start: str) -> None:
    corpus = caller.corpus()
    for end in WAYS:
        (fact_id,) = put(caller, corpus, TEXTS[0])
        for status in WAYS[start]:
            caller.set_status(fact_id, pb.FactStatus.Value(f"FACT_STATUS_{status}"), reason="why not")
        if (start, end) in LEGAL:
            caller.set_status(fact_id, pb.FactStatus.Value(f"FACT_STATUS_{end}"), reason="why not")
            assert caller.get(fact_id).status == pb.FactStatus.Value(f"FACT_STATUS_{end}")
            continue
        reason = Reason.REVIEW_REQUIRED if (start, end) == ("QUARANTINED", "ACTIVE") else Reason.ILLEGAL_TRANSITION
        with refused(reason):
            caller.set_status(fact_id, pb.FactStatus.Value(f"FACT_STATUS_{end}"), reason="why not")
        assert caller.get(fact_id).status == pb.FactStatus.Value(f"FACT_STATUS_{start}")


def test_a_deleted_fact_is_not_changed_any_more(caller: FactCaller) -> None:
    (fact_id,) = put(caller, caller.corpus(), TEXTS[0])
    caller.set_status(fact_id, pb.FACT_STATUS_DELETED)
    with refused(Reason.ILLEGAL_TRANSITION):
        caller.update(fact_id, importance_weight=0.1)
    assert caller.get(fact_id).version == 2


def test_a_status_is_set_only_at_the_expected_version(caller: FactCaller) -> None:
    (fact_id,) = put(caller, caller.corpus(), TEXTS[0])
    caller.update(fact_id, importance_weight=0.1)
    with refused(Reason.VERSION_MISMATCH):
        caller.set_status(fact_id, pb.FACT_STATUS_STALE, expected_version=1)
    caller.set_status(fact_id, pb.FACT_STATUS_STALE, expected_version=2)
    assert caller.get(fact_id).status == pb.FACT_STATUS_STALE


def test_a_quarantine_needs_a_reason(caller: FactCaller) -> None:
    (fact_id,) = put(caller, caller.corpus(), TEXTS[0])
    with refused(Reason.INVALID_ARGUMENT):
        caller.set_status(fact_id, pb.FACT_STATUS_QUARANTINED)


def test_another_tenants_fact_is_not_found(caller: FactCaller) -> None:
    (fact_id,) = put(caller, caller.corpus(), TEXTS[0])
    with FactCaller(caller.server, GLOBEX) as stranger:
        stranger.corpus()
        for call in (
            lambda: stranger.get(fact_id),
            lambda: stranger.update(fact_id, importance_weight=0.1),
            lambda: stranger.set_status(fact_id, pb.FACT_STATUS_STALE),
        ):
            with refused(Reason.FACT_NOT_FOUND):
                call()
        assert not stranger.search("records").hits


def test_a_repeated_put_gets_the_first_answer(caller: FactCaller) -> None:
    corpus = caller.corpus()
    draft = pb.FactDraft(content=TEXTS[0], source_id="s")
    first = caller.put(corpus, draft, request_id="the same")
    assert caller.put(corpus, draft, request_id="the same") == first
    assert len(caller.list(corpus)) == 1


def specified_hash(facts: list[pb.Fact]) -> str:
    """The state hash as seed 000, section 6.1 defines it."""
    active = [f for f in facts if f.status == pb.FACT_STATUS_ACTIVE]
    components = sorted(f"{f.fact_id}:{hashlib.sha256(f.content.encode()).hexdigest()}:ACTIVE" for f in active)
    return hashlib.sha256("|".join(components).encode()).hexdigest()


def test_the_state_follows_the_specification_and_reading_does_not_change_it(caller: FactCaller) -> None:
    corpus = caller.corpus()
    seen: list[tuple[int, str, str]] = []

    def check() -> None:
        state = caller.state(corpus)
        (own,) = state.states
        assert own.state_hash == specified_hash(caller.list(corpus))
        caller.search("records", corpus)
        again = caller.state(corpus)
        assert again == state, "reading has changed the state"
        combined = f"{corpus}:{own.state_revision}:{own.state_hash}"
        assert state.combined_hash == hashlib.sha256(combined.encode()).hexdigest()
        seen.append((own.state_revision, own.state_hash, state.combined_hash))

    check()
    first, second, _ = put(caller, corpus, *TEXTS)
    check()
    caller.update(first, content="Elephants drink up to two hundred litres of water on a hot summer day.")
    check()
    caller.set_status(second, pb.FACT_STATUS_STALE)
    check()
    caller.set_status(second, pb.FACT_STATUS_ACTIVE)
    check()
    caller.update(first, importance_weight=0.2)
    check()
    assert [revision for revision, _, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert len({combined for _, _, combined in seen}) == len(seen)
    assert seen[-1][1] == seen[-2][1], "a weight changes the state revision but not the state hash"


def test_the_state_hash_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with FactCaller(server, ACME) as caller:
            corpus = caller.corpus()
            put(caller, corpus, *TEXTS)
            before = caller.state(corpus)
    with running(tmp_path) as server, FactCaller(server, ACME) as caller:
        assert caller.state(corpus) == before
        put(caller, corpus, TEXTS[0])
        assert caller.state(corpus).states[0].state_hash == specified_hash(caller.list(corpus))


def test_an_unknown_caller_gets_nothing(caller: FactCaller) -> None:
    (fact_id,) = put(caller, caller.corpus(), TEXTS[0])
    with FactCaller(caller.server, "nobody's token 0123456789") as stranger, refused(Reason.UNAUTHENTICATED):
        stranger.get(fact_id)
