"""Later windows bring deferred facts, repeat nothing, contain the answer so far, and end with the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore import Role
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.app.config import FactSettings
from tests.support.callers.envelopes import EnvelopeCaller, ids, refusal
from tests.support.servers.running import ACME, GLOBEX, OPERATOR, create_tenants, running
from tests.support.servers.signatories import person

QUERY = "how long must records of transactions be kept by the firm?"
SITES = (
    "Boston", "Dublin", "Kyoto", "Lagos", "Lima", "Lyon", "Malta", "Oslo", "Perth", "Quito", "Riga", "Seoul",
)  # fmt: skip
BUDGET = 100


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[EnvelopeCaller]:
    with running(tmp_path, facts=FactSettings(session_idle_s=3_600.0)) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: EnvelopeCaller) -> str:
    corpus = caller.corpus()
    texts = [
        f"In {site} the firm must keep its records of transactions for {number} years, as local law requires."
        for number, site in enumerate(SITES, 2)
    ]
    caller.put(corpus, *(facts_pb2.FactDraft(content=text, source_id="manual") for text in texts))
    return corpus


def first_window(caller: EnvelopeCaller, corpus: str, **fields: object) -> pb.PackEnvelopeResponse:
    scoring = pb.ScoringOptions(relevance_floor=0.1, duplicate_similarity=1.0)
    return caller.pack(QUERY, corpus, budget=BUDGET, scoring=scoring, **fields)


def test_windows_go_on_with_deferred_facts_and_repeat_nothing(caller: EnvelopeCaller, corpus: str) -> None:
    answer = first_window(caller, corpus, session_id="talk")
    assert answer.headers["CRP-Context-Continuation-Id"] == answer.continuation_id
    assert ("CRP-Context-Cache" in answer.headers) == (answer.envelope.saturation >= 0.95)
    deferred = list(answer.envelope.deferred_fact_ids)
    seen: list[str] = []
    windows = 0
    while True:
        windows += 1
        assert answer.envelope.window_number == windows
        assert not set(seen) & set(ids(answer))
        seen += ids(answer)
        if not answer.continuation_id:
            break
        answer = caller.go_on(answer.continuation_id)
        assert answer.envelope.strategy == "continuation"
        assert answer.envelope.memory_tier_hit <= 1, "the fact was left over from the session"
    assert windows > 1
    assert set(deferred) <= set(seen)
    assert len(answer.quality_history) == windows


def test_the_answer_so_far_is_a_fact_of_the_next_window(caller: EnvelopeCaller, corpus: str) -> None:
    first = first_window(caller, corpus)
    said = "In Boston the records are kept for two years. " * 100
    window = caller.go_on(first.continuation_id, said).envelope
    (summary,) = [fact for fact in window.facts if fact.answer_summary]
    assert summary.position == 1
    assert "Boston" in summary.content
    assert len(summary.content) < len(said) / 4
    assert not summary.HasField("provenance")
    assert "[1, previous answer] " in window.text


def test_a_fact_whose_content_has_changed_comes_again(caller: EnvelopeCaller, corpus: str) -> None:
    first = first_window(caller, corpus)
    changed = ids(first)[0]
    content = "In Boston the firm must keep its records of transactions for ever, as local law requires by now."
    caller.update(changed, content=content, importance_weight=1.0)
    assert changed in ids(caller.go_on(first.continuation_id))
    weighed = first_window(caller, corpus)
    caller.update(ids(weighed)[0], importance_weight=0.9)
    assert ids(weighed)[0] not in ids(caller.go_on(weighed.continuation_id)), "its content has not changed"


def test_a_repeated_continuation_gives_the_same_window(caller: EnvelopeCaller, corpus: str) -> None:
    first = first_window(caller, corpus)
    windows = [caller.go_on(first.continuation_id).envelope for _ in range(2)]
    assert windows[0] == windows[1]
    assert caller.go_on(first.continuation_id, request_id="r").envelope == windows[0]
    assert caller.go_on(first.continuation_id, request_id="r").envelope == windows[0]


def test_a_continuation_belongs_to_its_caller(caller: EnvelopeCaller, corpus: str) -> None:
    token = first_window(caller, corpus, session_id="talk").continuation_id
    with EnvelopeCaller(caller.server, GLOBEX) as stranger:
        assert refusal(lambda: stranger.go_on(token)).reason == Reason.CONTINUATION_NOT_FOUND.name
    assert refusal(lambda: caller.go_on(str(uuid4()))).reason == Reason.CONTINUATION_NOT_FOUND.name
    for wrong in ("", "x", token[:-2]):
        assert refusal(lambda w=wrong: caller.go_on(w)).reason == Reason.INVALID_ID.name  # type: ignore[misc]
    whole = caller.pack(QUERY, corpus, budget=4_000)
    assert not whole.continuation_id
    assert refusal(lambda: caller.go_on(whole.envelope_id)).reason == Reason.CONTINUATION_NOT_FOUND.name


def test_a_continuation_cannot_be_used_by_a_colleague(caller: EnvelopeCaller, corpus: str) -> None:
    token = first_window(caller, corpus, session_id="talk").continuation_id
    client = person(caller.server, "colleague", Role.READER).log_in()
    with EnvelopeCaller(caller.server, str(client.settings.token)) as colleague:
        first_window(colleague, corpus, session_id="talk")  # the colleague has a session of the same name
        assert refusal(lambda: colleague.go_on(token)).reason == Reason.CONTINUATION_NOT_FOUND.name


def test_ending_the_session_ends_its_windows(caller: EnvelopeCaller, corpus: str) -> None:
    answer = first_window(caller, corpus, session_id="talk")
    caller.facts.EndSession(facts_pb2.EndSessionRequest(session_id="talk"), **caller.options())
    assert refusal(lambda: caller.go_on(answer.continuation_id)).reason == Reason.CONTINUATION_NOT_FOUND.name
    assert list(first_window(caller, corpus, session_id="talk").quality_history) == [answer.envelope.quality_tier]


def test_there_are_no_more_windows_than_allowed(caller: EnvelopeCaller, corpus: str) -> None:
    scoring = pb.ScoringOptions(relevance_floor=0.1, duplicate_similarity=1.0)
    answer = caller.pack(QUERY, corpus, budget=30, scoring=scoring)
    while answer.continuation_id:
        answer = caller.go_on(answer.continuation_id)
    assert answer.envelope.window_number == 5
    assert answer.headers["CRP-Context-Window"] == f"{answer.envelope.window_number}/5"


def test_memory_tiers_say_where_facts_were_found(caller: EnvelopeCaller, corpus: str) -> None:
    said = "The firm in Tirana keeps records of transactions for three years, or so it says."
    draft = facts_pb2.FactDraft(content=said, source_id="talk")
    (kept,) = caller.put(corpus, draft, cache_control="no-store", session_id="s").fact_ids
    alone = caller.pack(QUERY, corpus, session_id="s", memory_tier_max=1).envelope
    assert [fact.fact_id for fact in alone.facts] == [kept]
    assert (alone.memory_tier_hit, alone.facts[0].memory_tier) == (1, 1)
    assert list(caller.pack(QUERY, corpus, session_id="s", memory_tier_max=0).envelope.facts) == []
    assert caller.pack(QUERY, corpus, session_id="s").envelope.memory_tier_hit == 3
