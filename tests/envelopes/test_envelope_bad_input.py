"""Invalid requests are refused with a reason, and the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.callers.envelopes import EnvelopeCaller, filled, refusal
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

QUERY = "how long must records of transactions be kept?"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvelopeCaller]:
    with running(tmp_path_factory.mktemp("server")) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            filled(found)
            yield found


def _budget(**fields: Any) -> dict[str, Any]:
    return {"question_budget": pb.TokenBudget(**{"model": "gpt-4o", **fields})}


WRONG = {
    "an unknown mode": ({"grounding_mode": 17}, Reason.INVALID_ARGUMENT),
    "an unknown tier": ({"accept_tiers": [9]}, Reason.INVALID_ARGUMENT),
    "an unknown format": ({"format": 9}, Reason.INVALID_ARGUMENT),
    "a budget of zero": (_budget(tokens=0), Reason.INVALID_ARGUMENT),
    "a negative budget": (_budget(tokens=-5), Reason.INVALID_ARGUMENT),
    "a window that is too small": (_budget(context_window=2_000), Reason.BUDGET_TOO_SMALL),
    "a negative response": (_budget(expected_response_tokens=-1), Reason.INVALID_ARGUMENT),
    "a model nobody knows": (_budget(model="grok-77"), Reason.UNKNOWN_MODEL),
    "a model without a window": (_budget(model="cl100k_base"), Reason.INVALID_ARGUMENT),
    "an unknown policy": ({"scoring": pb.ScoringOptions(policy="best")}, Reason.INVALID_ARGUMENT),
    "a negative weight": ({"scoring": pb.ScoringOptions(relevance_weight=-1)}, Reason.INVALID_ARGUMENT),
    "a weight that is no number": (
        {"scoring": pb.ScoringOptions(freshness_weight=float("nan"))},
        Reason.INVALID_ARGUMENT,
    ),
    "no horizon": ({"scoring": pb.ScoringOptions(freshness_horizon_days=0)}, Reason.INVALID_ARGUMENT),
    "a floor above one": ({"scoring": pb.ScoringOptions(relevance_floor=1.5)}, Reason.INVALID_ARGUMENT),
    "a tier of memory": ({"memory_tier_max": 4}, Reason.INVALID_ARGUMENT),
    "an unknown directive": ({"cache_control": "sometimes"}, Reason.INVALID_ARGUMENT),
    "a deleted status": ({"filters": facts_pb2.FactFilters(statuses=[3])}, Reason.INVALID_ARGUMENT),
    "a session with a line end": ({"session_id": "a\nb"}, Reason.INVALID_ARGUMENT),
    "salt without a session": ({"salted_etag": True}, Reason.INVALID_ARGUMENT),
    "an id that is none": ({"window_fact_ids": ["x"]}, Reason.INVALID_ID),
    "a revision of everything": ({"as_of": {"revision": 1}}, Reason.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("fields", [pytest.param(*case[:1], id=name) for name, case in WRONG.items()])
def test_an_invalid_request_is_refused_with_a_reason(caller: EnvelopeCaller, fields: dict[str, Any]) -> None:
    (reason,) = [reason for wrong, reason in WRONG.values() if wrong is fields]
    assert refusal(lambda: caller.pack(QUERY, **fields)).reason == reason.name


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_an_empty_query_is_refused(caller: EnvelopeCaller, query: str) -> None:
    info = refusal(lambda: caller.pack(query))
    assert (info.reason, info.metadata["field"]) == (Reason.INVALID_ARGUMENT.name, "query")


def test_a_query_of_a_hundred_thousand_tokens_is_refused(caller: EnvelopeCaller) -> None:
    assert refusal(lambda: caller.pack("record " * 100_000)).reason == Reason.TOO_LARGE.name


def test_an_unknown_model_says_how_to_add_one(caller: EnvelopeCaller) -> None:
    with pytest.raises(Exception, match=r"\[\[envelopes.models\]\]"):
        caller.pack(QUERY, **_budget(model="grok-77"))


@pytest.mark.parametrize(
    "query",
    ["?", "\u0000 \ufffe", "🙂🙂🙂", "' OR 1=1 --", "and and and, or; vs vs", "الأرشفة", "x" * 9_999, '"' * 500],
)
def test_odd_queries_are_packed_without_an_error(caller: EnvelopeCaller, query: str) -> None:
    envelope = caller.pack(query).envelope
    assert envelope.token_count <= envelope.token_budget


def test_an_envelope_is_empty_and_says_so_if_all_facts_are_quarantined(caller: EnvelopeCaller) -> None:
    corpus = filled(caller, "doubtful")
    for fact in caller.list(corpus):
        caller.set_status(fact.fact_id, facts_pb2.FACT_STATUS_QUARANTINED, reason="doubt")
    envelope = caller.pack(QUERY, corpus).envelope
    assert (envelope.quality_tier, envelope.total_facts_available) == (pb.QUALITY_TIER_D, 0)
