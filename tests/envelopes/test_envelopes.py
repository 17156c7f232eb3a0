"""Envelopes through the real server: their facts, their headers, and that equal requests give equal envelopes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.envelopes.model import RenderFormat
from drillcore_server.facts.filters import FilteredSearch
from drillcore_server.tokenizers.encodings import EncodingName, token_counter
from tests.support.callers.envelopes import BUDGET, TEXTS, EnvelopeCaller, filled, ids, refusal
from tests.support.data.rendered_facts import read, whole
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running
from tests.support.stores.trails import records

QUERY = "how long must records of transactions be kept?"
SOP = """# Deviations

The operator shall record every deviation within 24 hours of its discovery, and the shift manager signs the record.

# Training

Training records are kept for five years after a member of staff has left the company for good.
"""
DUTIES = """# Duties

A firm that carries on a regulated activity in or from the territory shall at all times have in place and apply:

(a) records of every transaction that it makes for a customer, kept for at least seven years;

(b) records of every complaint that a customer makes about it, kept for at least five years;

(c) a procedure by which members of staff report suspicious transactions to the compliance officer.
"""


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[EnvelopeCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: EnvelopeCaller) -> str:
    return filled(caller)


def test_the_best_facts_are_packed_within_the_budget(caller: EnvelopeCaller, corpus: str) -> None:
    envelope = caller.pack(QUERY, corpus, budget=60).envelope
    assert envelope.facts[0].content == TEXTS[0]
    assert 0 < envelope.total_facts_included < envelope.total_facts_available == len(TEXTS)
    assert envelope.token_count <= envelope.token_budget == 60
    assert envelope.saturation == envelope.token_count / 60
    assert [fact.position for fact in envelope.facts] == list(range(1, len(envelope.facts) + 1))


@pytest.mark.parametrize("form", [pb.RENDER_FORMAT_MARKDOWN, pb.RENDER_FORMAT_XML, pb.RENDER_FORMAT_JSON])
@pytest.mark.parametrize(
    ("model", "encoding"), [("gpt-4o", EncodingName.O200K_BASE), ("gpt-4", EncodingName.CL100K_BASE)]
)
def test_the_reported_tokens_are_those_of_the_text(
    caller: EnvelopeCaller, corpus: str, form: pb.RenderFormat.ValueType, model: str, encoding: EncodingName
) -> None:
    budget = pb.TokenBudget(model=model, tokens=100)
    envelope = caller.pack(QUERY, corpus, format=form, question_budget=budget).envelope
    assert envelope.text
    assert envelope.token_count == token_counter(encoding).count(envelope.text)


def test_the_text_can_be_cited_by_number_in_every_format(caller: EnvelopeCaller, corpus: str) -> None:
    markdown = caller.pack(QUERY, corpus).envelope
    said = dict(re.findall(r"^\[(\d+)\] (.*)$", markdown.text, re.MULTILINE))
    assert said == {str(fact.position): fact.content for fact in markdown.facts}
    tagged = caller.pack(QUERY, corpus, format=pb.RENDER_FORMAT_XML).envelope
    assert [element.text for element in ElementTree.fromstring(tagged.text)] == [fact.content for fact in tagged.facts]
    encoded = caller.pack(QUERY, corpus, format=pb.RENDER_FORMAT_JSON).envelope
    assert [entry["text"] for entry in json.loads(encoded.text)] == [fact.content for fact in encoded.facts]


@pytest.mark.parametrize("form", list(RenderFormat))
def test_the_text_states_the_introduction_of_a_list_once(caller: EnvelopeCaller, form: RenderFormat) -> None:
    corpus = caller.corpus("duties")
    caller.add_texts(corpus, {"duties.md": DUTIES})
    envelope = caller.pack(QUERY, corpus, format=pb.RenderFormat.ValueType(form)).envelope
    found = read(envelope.text, form)
    assert [fact.begins_as for fact in found] == [0, 1, 1]
    assert whole(found) == [fact.content for fact in envelope.facts]
    assert all(fact.content.startswith("A firm that carries on") for fact in envelope.facts)
    assert envelope.token_count == token_counter(EncodingName.O200K_BASE).count(envelope.text)


def test_the_budget_is_what_is_left_of_the_window(caller: EnvelopeCaller, corpus: str) -> None:
    budget = pb.TokenBudget(
        model="gpt-4o",
        context_window=4_000,
        system_prompt="You answer questions of compliance officers.",
        expected_response_tokens=1_000,
        safety_margin_tokens=100,
    )
    envelope = caller.pack(QUERY, corpus, question_budget=budget).envelope
    parts, count = envelope.budget, token_counter(EncodingName.O200K_BASE).count
    assert parts.system_prompt == count(budget.system_prompt) + count(envelope.grounding_instruction)
    assert parts.query == count(QUERY)
    assert envelope.token_budget == 4_000 - parts.system_prompt - parts.query - 1_000 - 100


def test_the_etag_is_that_of_the_specification(caller: EnvelopeCaller, corpus: str) -> None:
    envelope = caller.pack(QUERY, corpus).envelope
    names = sorted(fact.fact_id for fact in envelope.facts)
    expected = hashlib.sha256(("|".join(names) + "|" + str(len(names))).encode()).hexdigest()
    assert envelope.etag == f"sha256:{expected}"


def test_the_headers_say_what_the_envelope_says(caller: EnvelopeCaller, corpus: str) -> None:
    answer = caller.pack(QUERY, corpus, budget=60)
    envelope, headers = answer.envelope, answer.headers
    assert headers["CRP-Context-Quality-Tier"] == pb.QualityTier.Name(envelope.quality_tier)[-1]
    assert headers["CRP-Context-Facts-Used"] == f"{len(envelope.facts)}/{len(TEXTS)}"
    assert headers["CRP-Context-Tokens-Used"] == str(envelope.token_count)
    assert headers["CRP-Context-ETag"] == envelope.etag
    assert headers["CRP-Context-Window"] == "1/5"
    assert headers["CRP-Memory-Tier-Hit"] == "3"
    assert headers["CRP-Memory-CKF-Hits"] == str(len(TEXTS))
    assert headers["CRP-Memory-Knowledge-Age"] == "P0D"
    assert float(headers["CRP-Context-Saturation"]) == pytest.approx(envelope.saturation, abs=1e-3)


def test_a_preview_is_the_same_without_content_and_counts_no_access(caller: EnvelopeCaller, corpus: str) -> None:
    preview = caller.preview(QUERY, corpus)
    assert all(fact.access_count == 0 for fact in caller.list(corpus))
    assert TEXTS[0] not in str(preview)
    (record,) = records(caller.server, call="PreviewEnvelope")
    assert set(record["nodes"]) == {fact.fact_id for fact in caller.list(corpus)}, (
        "the facts that the caller was told of"
    )
    envelope = caller.pack(QUERY, corpus).envelope
    assert (preview.etag, preview.quality_tier, preview.estimated_tokens) == (
        envelope.etag,
        envelope.quality_tier,
        envelope.token_count,
    )
    assert {fact.access_count for fact in caller.list(corpus)} == {1}


def test_every_fact_leads_to_the_characters_of_its_document(caller: EnvelopeCaller) -> None:
    corpus = caller.corpus()
    caller.add_texts(corpus, {"sop-7.md": SOP})
    envelope = caller.pack("when must a deviation be recorded?", corpus).envelope
    assert len(envelope.facts) == 2
    for fact in envelope.facts:
        known = fact.provenance
        assert SOP[known.span.start : known.span.end] == fact.content
        assert known.source_id == "sop-7.md"
        assert known.document_title
        assert known.document_id
        assert known.chunk_id
        assert all(raw.span.start < known.span.end and known.span.start < raw.span.end for raw in known.raws)
        assert any(raw.span.start <= known.span.start and known.span.end <= raw.span.end for raw in known.raws), (
            "a raw must hold the whole fact"
        )


def test_a_fact_leads_to_the_raws_of_its_chunk_that_contain_it(caller: EnvelopeCaller) -> None:
    corpus = caller.corpus()
    text = "# Deviations\n\n" + "\n\n".join(
        f"{sentence} The {place} rule is this." for place, sentence in enumerate(TEXTS[:4])
    )
    caller.add_texts(corpus, {"sop-8.md": text})
    facts = caller.pack(QUERY, corpus, budget=1_000).envelope.facts
    chunks = [fact.provenance.chunk_id for fact in facts]
    assert len(set(chunks)) < len(chunks), "several facts are in one chunk"
    assert len({raw.raw_id for fact in facts for raw in fact.provenance.raws}) > len(set(chunks))
    for known in (fact.provenance for fact in facts):
        assert all(raw.span.start < known.span.end and known.span.start < raw.span.end for raw in known.raws)


def test_words_find_a_fact_that_vectors_alone_would_not_put_first(caller: EnvelopeCaller) -> None:
    corpus = caller.corpus()
    form = "Form QX-{} has to be filled in by whoever hands over the shift to somebody else."
    texts = [form.format(number) for number in range(200)]
    caller.put(corpus, *(facts_pb2.FactDraft(content=text, source_id="forms") for text in texts))
    answer = caller.pack("what is form QX-137 for?", corpus, explain=True, scoring=pb.ScoringOptions(policy="fused-1"))
    assert answer.envelope.facts[0].content == texts[137]
    found = {candidate.fact_id: list(candidate.found_by) for candidate in answer.candidates}
    assert "words" in found[answer.envelope.facts[0].fact_id]


def test_an_explanation_lists_every_candidate(caller: EnvelopeCaller, corpus: str) -> None:
    caller.put(corpus, facts_pb2.FactDraft(content=TEXTS[0], source_id="copy", importance_weight=0.1))
    answer = caller.pack(QUERY, corpus, budget=60, explain=True, window_fact_ids=[caller.list(corpus)[4].fact_id])
    outcomes = {candidate.outcome for candidate in answer.candidates}
    assert outcomes == {"included", "duplicate", "over-budget", "in-window"}
    assert len(answer.candidates) == answer.envelope.total_facts_available
    (duplicate,) = [candidate for candidate in answer.candidates if candidate.outcome == "duplicate"]
    assert duplicate.detail in {candidate.fact_id for candidate in answer.candidates if candidate.outcome == "included"}
    assert not caller.pack(QUERY, corpus, budget=60).candidates


def test_quarantined_deleted_and_archived_facts_are_never_packed(caller: EnvelopeCaller, corpus: str) -> None:
    first, second, third = ids(caller.pack(QUERY, corpus))[:3]
    caller.set_status(first, facts_pb2.FACT_STATUS_QUARANTINED, reason="doubtful")
    caller.set_status(second, facts_pb2.FACT_STATUS_DELETED)
    caller.archive(third)
    left = ids(caller.pack(QUERY, corpus))
    assert len(left) == len(TEXTS) - 3
    assert not {first, second, third} & set(left)


def test_a_stale_fact_has_no_freshness_and_is_marked(caller: EnvelopeCaller, corpus: str) -> None:
    (first, *_) = ids(caller.pack(QUERY, corpus))
    caller.set_status(first, facts_pb2.FACT_STATUS_STALE)
    envelope = caller.pack(QUERY, corpus).envelope
    (stale,) = [fact for fact in envelope.facts if fact.fact_id == first]
    assert (stale.stale, stale.freshness_score) == (True, 0.0)
    assert f"[{stale.position}, stale] " in envelope.text
    assert all(fact.freshness_score == 1.0 for fact in envelope.facts if fact.fact_id != first)


def test_max_age_makes_older_facts_stale_for_this_ranking(caller: EnvelopeCaller, corpus: str) -> None:
    assert not any(fact.stale for fact in caller.pack(QUERY, corpus, cache_control="max-age=3600").envelope.facts)
    assert all(fact.stale for fact in caller.pack(QUERY, corpus, cache_control="max-age=0").envelope.facts)


def test_the_mode_changes_weights_and_instruction(caller: EnvelopeCaller, corpus: str) -> None:
    strict = caller.pack(QUERY, corpus, grounding_mode=pb.GROUNDING_MODE_CONTEXT_STRICT).envelope
    plain = caller.pack(QUERY, corpus).envelope
    free = caller.pack(QUERY, corpus, grounding_mode=pb.GROUNDING_MODE_OPEN).envelope
    assert "ONLY" in strict.grounding_instruction
    assert (plain.grounding_mode, free.grounding_instruction) == (pb.GROUNDING_MODE_CONTEXT_PREFERRED, "")
    assert strict.weights.importance > plain.weights.importance > free.weights.importance
    for answer in (strict, plain, free):
        total = (
            answer.weights.relevance + answer.weights.importance + answer.weights.freshness + answer.weights.diversity
        )
        assert total == pytest.approx(1.0)
    assert any(cap.reason == "strict-grounding" for cap in strict.caps) == (strict.saturation < 0.8)


def test_the_query_is_split_into_sub_queries(caller: EnvelopeCaller, corpus: str) -> None:
    query = "Compare the EU AI Act and GDPR approaches to automated decision-making"
    assert list(caller.pack(query, corpus).envelope.sub_queries) == [
        "EU AI Act automated decision-making",
        "GDPR automated decision-making",
        "EU AI Act vs GDPR comparison",
    ]


def test_a_hundred_equal_requests_give_the_same_bytes(caller: EnvelopeCaller, corpus: str) -> None:
    made = {caller.pack(QUERY, corpus).envelope.SerializeToString(deterministic=True) for _ in range(100)}
    assert len(made) == 1


def test_accepted_tiers_are_a_gate_that_says_what_is_missing(caller: EnvelopeCaller, corpus: str) -> None:
    accepted = [pb.QUALITY_TIER_S, pb.QUALITY_TIER_A]
    info = refusal(lambda: caller.pack(QUERY, corpus, budget=4_000, accept_tiers=accepted))
    assert info.reason == Reason.QUALITY_NOT_MET.name
    details = info.metadata
    gap = json.loads(details["gap"])
    assert details["CRP-Status"] == "503"
    assert details["CRP-Context-Quality-Tier"] == gap["best_tier"]
    assert gap["accepted_tiers"] == ["S", "A"]
    assert gap["would_help"]
    assert caller.pack(QUERY, corpus, budget=4_000, accept_tiers=[pb.QUALITY_TIER_D]).envelope.facts


def test_an_empty_store_gives_an_empty_envelope_that_says_so(caller: EnvelopeCaller) -> None:
    envelope = caller.pack(QUERY, caller.corpus()).envelope
    assert (envelope.quality_tier, list(envelope.facts), envelope.text) == (pb.QUALITY_TIER_D, [], "")
    assert (envelope.token_count, envelope.saturation, envelope.token_budget) == (0, 0.0, BUDGET)
    assert caller.pack(QUERY).envelope.quality_tier == pb.QUALITY_TIER_D


def test_only_if_ckf_fails_where_nothing_relevant_is_stored(caller: EnvelopeCaller, corpus: str) -> None:
    empty = caller.corpus("empty")
    info = refusal(lambda: caller.pack(QUERY, empty, cache_control="only-if-ckf"))
    assert (info.reason, info.metadata["CRP-Status"]) == (Reason.NO_CKF_FACTS.name, "424")
    assert caller.pack(QUERY, corpus, cache_control="only-if-ckf").envelope.facts


def test_a_budget_smaller_than_any_fact_packs_nothing(caller: EnvelopeCaller, corpus: str) -> None:
    envelope = caller.pack(QUERY, corpus, budget=3).envelope
    assert (list(envelope.facts), envelope.quality_tier) == ([], pb.QUALITY_TIER_D)
    assert envelope.total_facts_available == len(TEXTS)


def test_the_content_of_a_query_is_in_no_log_line(caller: EnvelopeCaller, corpus: str) -> None:
    caller.pack("what about the zygomorphic valve?", corpus)
    lines = json.dumps(caller.server.log_lines())
    assert "zygomorphic" not in lines
    assert TEXTS[0] not in lines


def test_a_pack_that_tries_many_facts_in_vain_finds_those_that_are_allowed(
    caller: EnvelopeCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = filled(caller)
    draft = facts_pb2.FactDraft(content=f"{TEXTS[2]} Rarely.", source_id="rare", metadata={"rare": "yes"})
    rare = list(caller.put(corpus, draft).fact_ids)
    asked = {"filters": facts_pb2.FactFilters(metadata={"rare": "yes"}), "exact": True}
    patient = caller.pack(QUERY, corpus, **asked)
    gathered = []
    gather = FilteredSearch._gathered
    monkeypatch.setattr(FilteredSearch, "_gathered", lambda own, at: gathered.append(at) or gather(own, at))
    monkeypatch.setattr("drillcore_server.facts.filters.TRIED_MAX", 2)
    impatient = caller.pack(QUERY, corpus, **asked)
    assert ids(patient) == ids(impatient) == rare
    assert len(gathered) == 1, "the allowed facts were gathered once"
    assert caller.get(rare[0]).access_count == 2, "one access for each answer"
    assert caller.replay(impatient.envelope_id).replay == pb.REPLAY_SAME
    nothing = facts_pb2.FactFilters(metadata={"rare": "never"})
    assert list(caller.pack(QUERY, corpus, filters=nothing).envelope.facts) == []
