"""Raw calls of EnvelopeService and of the services for facts and documents, as one caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import envelopes_pb2_grpc, facts_pb2
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import info_of
from tests.support.servers.running import Running

BUDGET = 200
TEXTS = (
    "The firm must keep records of every transaction for at least seven years after it was made.",
    "A customer may withdraw from the contract within fourteen days of signing it, without giving a reason.",
    "The board reviews the policy on conflicts of interest once a year and publishes what it has found.",
    "Records of complaints are kept for five years from the day on which the complaint was settled.",
    "The compliance officer reports suspicious transactions to the authority within two working days.",
    "Training records of every member of staff are kept for as long as the person is employed by the firm.",
)


class EnvelopeCaller(FactCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.envelopes = envelopes_pb2_grpc.EnvelopeServiceStub(self._channel)

    def __enter__(self) -> EnvelopeCaller:
        return self

    def pack(
        self, query: str, *corpora: str, request_id: str | None = None, budget: int | None = BUDGET, **fields: Any
    ) -> pb.PackEnvelopeResponse:
        """`fields` belong to the request or to the question; `question_budget` is a whole budget message."""
        asked = _fields_of(pb.EnvelopeQuestion, fields)
        if "question_budget" in fields:
            asked["budget_message"] = fields["question_budget"]
        request = pb.PackEnvelopeRequest(
            question=question(query, *corpora, budget=budget, **asked),
            **_fields_of(pb.PackEnvelopeRequest, fields),
        )
        return self.envelopes.PackEnvelope(request, **self.options(request_id))

    def preview(self, query: str, *corpora: str, budget: int | None = BUDGET, **fields: Any) -> Any:
        request = pb.PreviewEnvelopeRequest(question=question(query, *corpora, budget=budget, **fields))
        return self.envelopes.PreviewEnvelope(request, **self.options())

    def go_on(
        self, continuation: str, answer: str = "", request_id: str | None = None, **fields: Any
    ) -> pb.PackEnvelopeResponse:
        request = pb.ContinueEnvelopeRequest(continuation_id=continuation, previous_answer=answer, **fields)
        return self.envelopes.ContinueEnvelope(request, **self.options(request_id))

    def replay(self, envelope: str) -> pb.GetEnvelopeResponse:
        return self.envelopes.GetEnvelope(pb.GetEnvelopeRequest(envelope_id=envelope), **self.options())


def question(
    query: str, *corpora: str, budget: int | None = BUDGET, budget_message: pb.TokenBudget | None = None, **fields: Any
) -> pb.EnvelopeQuestion:
    wanted = budget_message or pb.TokenBudget(model="gpt-4o", tokens=budget)
    return pb.EnvelopeQuestion(query=query, corpus_ids=corpora, budget=wanted, **fields)


def _fields_of(message: Any, fields: dict[str, Any]) -> dict[str, Any]:
    known = set(message.DESCRIPTOR.fields_by_name)
    return {name: value for name, value in fields.items() if name in known}


def ids(answer: pb.PackEnvelopeResponse) -> list[str]:
    return [fact.fact_id for fact in answer.envelope.facts]


def filled(caller: EnvelopeCaller, name: str = "plan") -> str:
    """A corpus with a fact for each of the texts."""
    corpus = caller.corpus(name)
    drafts = [
        facts_pb2.FactDraft(content=text, source_id=f"manual {number}", importance_weight=0.7)
        for number, text in enumerate(TEXTS)
    ]
    caller.put(corpus, *drafts)
    return corpus


def refusal(call: Callable[[], object]) -> error_details_pb2.ErrorInfo:
    """The reason for which a call is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return info_of(caught.value)
