"""Packs envelopes with the real server, through the client, for the benchmark of evidence."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from benchmarks._evidence_sets import Answers, Context, EvidenceSet, Place
from benchmarks._server import server_process
from drillcore import Client, EnvelopeFact, NewDocument, ScoringOptions, Span

MODEL = "gpt-4"
"""Its tokens are counted like those of the others."""
CALL_DOCUMENTS = 100
"""Documents added by one call."""
LOOK_AGAIN_S = 0.5
LONG_S = 24 * 3600.0


def drillcore(evidence: EvidenceSet, embedder: str, policy: str, budgets: Sequence[int], directory: Path) -> Answers:
    """Adds documents as files, finds communities, then asks PackEnvelope each question at each budget."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as stored,
        server_process(stored, DRILLCORE_INGEST_EMBEDDER=embedder) as serving,
        Client(serving.address, token=serving.token) as client,
    ):
        tenant = client.create_tenant("benchmark").id
        corpus = client.create_corpus(evidence.name, tenant_id=tenant).id
        _add(client, tenant, corpus, evidence)
        _find_communities(client, tenant, corpus)
        asked = [question.text for question in evidence.questions]
        return {budget: [_packed(client, tenant, corpus, text, budget, policy) for text in asked] for budget in budgets}


def _add(client: Client, tenant: UUID, corpus: UUID, evidence: EvidenceSet) -> None:
    names = list(evidence.documents)
    for start in range(0, len(names), CALL_DOCUMENTS):
        files = [NewDocument(name, evidence.documents[name].encode()) for name in names[start : start + CALL_DOCUMENTS]]
        client.add_documents(corpus, files, tenant_id=tenant, timeout_s=LONG_S)


def _find_communities(client: Client, tenant: UUID, corpus: UUID) -> None:
    """Does what the server does by itself after a while."""
    client.recompute_communities(corpus, tenant_id=tenant)
    while client.list_communities(corpus, tenant_id=tenant, page_size=1).last_run is None:
        time.sleep(LOOK_AGAIN_S)


def _packed(client: Client, tenant: UUID, corpus: UUID, text: str, budget: int, policy: str) -> Context:
    packed = client.pack_envelope(
        text,
        corpus_ids=[corpus],
        model=MODEL,
        budget_tokens=budget,
        scoring=ScoringOptions(policy=policy),
        tenant_id=tenant,
    )
    assert packed.envelope is not None, "no envelope was asked for on a condition"
    places = tuple(place for fact in packed.envelope.facts for place in _places(fact))
    return Context(packed.envelope.token_count, places)


def _places(fact: EnvelopeFact) -> Iterator[Place]:
    """Returns the places of a fact and of its introduction: both are in the text."""
    assert fact.provenance is not None, "every fact is of a document here"
    spans: list[Span | None] = [fact.provenance.span, *fact.provenance.lead_spans]
    yield from (Place(fact.source_id, span.start, span.end) for span in spans if span is not None)
