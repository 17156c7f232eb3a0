"""Whatever changes between two calls, NOT_MODIFIED means that the envelope would be the same, byte by byte.

Several callers hold envelopes from their last question. An etag stands for what an envelope says; its id stands for
all its bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.callers.envelopes import TEXTS, EnvelopeCaller, filled
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

QUERIES = ("how long must records be kept?", "who reports suspicious transactions to the authority?")
PLACES = st.integers(0, 30)


class Envelopes(RuleBasedStateMachine):
    """A corpus that changes, and questions whose first and last answers are kept."""

    @initialize()
    def start(self) -> None:
        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        server = self._open.enter_context(running(folder))
        create_tenants(server.client(OPERATOR))
        self.caller = self._open.enter_context(EnvelopeCaller(server, ACME))
        self.corpus = filled(self.caller)
        self.known = {query: [self._pack(query)] for query in QUERIES}
        self.changes = 0

    def teardown(self) -> None:
        self._open.close()

    def _pack(self, query: str, if_match: str = "") -> pb.PackEnvelopeResponse:
        return self.caller.pack(query, self.corpus, budget=90, if_match=if_match, session_id="s")

    def _facts(self) -> list[facts_pb2.Fact]:
        return self.caller.list(self.corpus)

    def _change(self, place: int, change: Callable[[facts_pb2.Fact], object]) -> None:
        self.changes += 1
        found = [fact for fact in self._facts() if fact.status == facts_pb2.FACT_STATUS_ACTIVE and not fact.archived]
        if found:
            change(found[place % len(found)])

    @rule(place=PLACES)
    def add(self, place: int) -> None:
        self.changes += 1
        content = TEXTS[place % len(TEXTS)].replace("records", f"records number {self.changes}")
        self.caller.put(self.corpus, facts_pb2.FactDraft(content=content, source_id=f"manual {place % 4}"))

    @rule(place=PLACES)
    def edit(self, place: int) -> None:
        self._change(
            place, lambda fact: self.caller.update(fact.fact_id, content=f"{fact.content} Rule {self.changes}.")
        )

    @rule(place=PLACES, weight=st.sampled_from([0.1, 0.95]))
    def weigh(self, place: int, weight: float) -> None:
        self._change(place, lambda fact: self.caller.update(fact.fact_id, importance_weight=weight))

    @rule(place=PLACES, status=st.sampled_from([facts_pb2.FACT_STATUS_STALE, facts_pb2.FACT_STATUS_DELETED]))
    def move(self, place: int, status: facts_pb2.FactStatus.ValueType) -> None:
        self._change(place, lambda fact: self.caller.set_status(fact.fact_id, status))

    @rule(place=PLACES)
    def archive(self, place: int) -> None:
        self._change(place, lambda fact: self.caller.archive(fact.fact_id))

    @rule()
    def keep_in_the_session(self) -> None:
        self.changes += 1
        content = f"Somebody said that records of visit {self.changes} are kept for a year at least."
        draft = facts_pb2.FactDraft(content=content, source_id="talk")
        self.caller.put(self.corpus, draft, cache_control="no-store", session_id="s")

    @rule(place=st.integers(0, 3))
    def erase(self, place: int) -> None:
        self.changes += 1
        sources = {fact.source_id for fact in self._facts() if fact.status != facts_pb2.FACT_STATUS_DELETED}
        if f"manual {place}" in sources:
            self.caller.server.client(ACME).erase_source(self.corpus, f"manual {place}", reason="asked for")

    @rule()
    def read(self) -> None:
        """Reads facts, which counts accesses and changes nothing else."""
        self.caller.search(QUERIES[0], self.corpus)
        if self._facts():
            self.caller.get(self._facts()[0].fact_id)

    @invariant()
    def not_modified_means_the_same(self) -> None:
        for query, held in self.known.items():
            by_etag = [self._pack(query, answer.envelope.etag).not_modified for answer in held]
            by_id = [self._pack(query, answer.envelope_id).not_modified for answer in held]
            fresh = self._pack(query)
            for answer, is_said in zip(held, by_etag, strict=True):
                assert not is_said or _said(fresh) == _said(answer)
            for answer, is_said in zip(held, by_id, strict=True):
                assert not is_said or _bytes(fresh.envelope) == _bytes(answer.envelope)
            assert self._pack(query, fresh.envelope_id).not_modified, "nothing has changed since the last call"
            if _said(held[-1]) != _said(fresh):
                held.append(fresh)
            del held[1:-3]


def _said(answer: pb.PackEnvelopeResponse) -> tuple[str, int]:
    """The parts of an envelope that its etag stands for."""
    return answer.envelope.text, answer.envelope.quality_tier


def _bytes(envelope: pb.Envelope) -> bytes:
    """An envelope's bytes without the sources of its facts: the session knows more communities each time."""
    told = pb.Envelope()
    told.CopyFrom(envelope)
    told.memory_tier_hit = 0
    for fact in told.facts:
        fact.memory_tier = 0
    return told.SerializeToString(deterministic=True)


Envelopes.TestCase.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEnvelopes = Envelopes.TestCase
