"""GetEnvelope builds an issued envelope again as of its revisions and compares the two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from drillcore import Grant, Role
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.envelopes.read import forget_envelopes
from drillcore_server.facts.model import Fact
from drillcore_server.storage.ids import FactId
from drillcore_server.storage.sealed import SealedRecords
from tests.support.callers.envelopes import TEXTS, EnvelopeCaller, filled, ids, refusal
from tests.support.servers.running import ACME, GLOBEX, OPERATOR, create_tenants, running
from tests.support.servers.signatories import person
from tests.support.stores.aged import age, keys_of, keyspace
from tests.support.stores.fact_blocks import edit_fact

QUERY = "how long must records of transactions be kept?"
NEW = "Records of board meetings are kept for ten years after the meeting, together with their annexes."


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[EnvelopeCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: EnvelopeCaller) -> str:
    return filled(caller)


def test_an_envelope_is_built_again_byte_by_byte_whatever_changed_since(caller: EnvelopeCaller, corpus: str) -> None:
    issued = caller.pack(QUERY, corpus)
    caller.put(corpus, facts_pb2.FactDraft(content=NEW, source_id="manual"))
    caller.update(ids(issued)[0], content=TEXTS[0].replace("seven", "eight"))
    replayed = caller.replay(issued.envelope_id)
    assert replayed.replay == pb.REPLAY_SAME
    assert replayed.envelope == issued.envelope
    sent = issued.envelope.SerializeToString(deterministic=True)
    assert replayed.issued_sha256 == hashlib.sha256(sent).hexdigest()
    assert (replayed.query, list(replayed.fact_ids)) == (QUERY, ids(issued))
    assert replayed.created_at == issued.created_at
    assert replayed.audit_record_id


def test_windows_of_a_chain_are_built_again_too(caller: EnvelopeCaller, corpus: str) -> None:
    scoring = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
    first = caller.pack(QUERY, corpus, budget=42, scoring=scoring, session_id="s")
    second = caller.go_on(first.continuation_id)
    assert caller.replay(first.envelope_id).replay == pb.REPLAY_SAME
    again = caller.replay(second.envelope_id)
    assert again.replay == pb.REPLAY_SAME
    assert (again.parent_envelope_id, again.window_number) == (first.envelope_id, 2)


def test_a_replay_says_which_facts_were_erased(caller: EnvelopeCaller, corpus: str) -> None:
    issued = caller.pack(QUERY, corpus)
    caller.server.client(ACME).erase_source(corpus, "manual 0", reason="GDPR", purge_now=True)
    replayed = caller.replay(issued.envelope_id)
    assert replayed.replay == pb.REPLAY_ERASED
    assert len(replayed.missing_fact_ids) == 1
    assert TEXTS[0] not in str(replayed)


def test_facts_of_a_session_are_not_built_again(caller: EnvelopeCaller, corpus: str) -> None:
    draft = facts_pb2.FactDraft(content=NEW, source_id="talk")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    issued = caller.pack(QUERY, corpus, session_id="s")
    assert NEW in issued.envelope.text
    replayed = caller.replay(issued.envelope_id)
    assert replayed.replay == pb.REPLAY_SESSION_OVER
    assert NEW not in str(replayed)


def edit(caller: EnvelopeCaller, corpus: str, fact: str, content: str) -> None:
    """Edits a fact in the store itself, at the revision that wrote the fact. No caller may do this."""
    keys, sealed = keys_of(caller.server, corpus), SealedRecords(caller.server.server.keyring)

    def edited(stored: Fact) -> Fact:
        return replace(stored, content=content)

    caller.server.engine.run(lambda tr: edit_fact(tr, keys, sealed, FactId(UUID(fact)), edited))


@pytest.mark.parametrize("session", ["", "s"])
def test_an_edited_store_is_found_out_even_in_a_session(caller: EnvelopeCaller, corpus: str, session: str) -> None:
    if session:
        draft = facts_pb2.FactDraft(content=NEW, source_id="talk")
        caller.put(corpus, draft, cache_control="no-store", session_id=session)
    issued = caller.pack(QUERY, corpus, session_id=session)
    known = next(fact for fact in issued.envelope.facts if fact.content == TEXTS[0])
    edit(caller, corpus, known.fact_id, TEXTS[0].replace("seven", "nine"))
    assert caller.replay(issued.envelope_id).replay == pb.REPLAY_DIFFERENT


def test_a_salted_envelope_is_built_again(caller: EnvelopeCaller, corpus: str) -> None:
    issued = caller.pack(QUERY, corpus, session_id="s", salted_etag=True)
    assert caller.replay(issued.envelope_id).replay == pb.REPLAY_SAME


def test_only_its_caller_and_auditors_see_an_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    issued = caller.pack(QUERY, corpus)
    with EnvelopeCaller(caller.server, GLOBEX) as stranger:
        assert refusal(lambda: stranger.replay(issued.envelope_id)).reason == Reason.ENVELOPE_NOT_FOUND.name
    assert refusal(lambda: caller.replay(str(uuid4()))).reason == Reason.ENVELOPE_NOT_FOUND.name
    for role, expected in ((Role.READER, None), (Role.AUDITOR, pb.REPLAY_SAME)):
        client = person(caller.server, role.name.lower(), role).log_in()
        with EnvelopeCaller(caller.server, str(client.settings.token)) as colleague:
            if expected is None:
                assert refusal(lambda: colleague.replay(issued.envelope_id)).reason == Reason.ENVELOPE_NOT_FOUND.name
            else:
                assert colleague.replay(issued.envelope_id).replay == expected


def test_an_auditor_of_one_corpus_sees_no_envelopes_of_others(caller: EnvelopeCaller, corpus: str) -> None:
    """An envelope may contain facts of several corpora, and its question belongs to the tenant."""
    issued = caller.pack(QUERY, corpus)
    grants = [Grant(Role.AUDITOR, corpus_id=UUID(corpus)), Grant(Role.READER, corpus_id=UUID(corpus))]
    client = person(caller.server, "narrow", *grants).log_in()
    with EnvelopeCaller(caller.server, str(client.settings.token)) as colleague:
        assert refusal(lambda: colleague.replay(issued.envelope_id)).reason == Reason.ENVELOPE_NOT_FOUND.name


def test_a_replay_of_a_trimmed_revision_says_that_it_was_trimmed(caller: EnvelopeCaller, corpus: str) -> None:
    issued = caller.pack(QUERY, corpus)
    age(caller.server, corpus, days=40)
    caller.put(corpus, facts_pb2.FactDraft(content=NEW, source_id="manual"))
    age(caller.server, corpus, days=40)
    caller.put(corpus, facts_pb2.FactDraft(content=f"{NEW} Always.", source_id="manual"))
    client = caller.server.client(ACME)
    client.update_corpus(corpus, retention_days=30)
    client.trim_corpus(corpus)
    replayed = caller.replay(issued.envelope_id)
    assert (replayed.replay, replayed.HasField("envelope")) == (pb.REPLAY_TRIMMED, False)
    assert list(replayed.fact_ids) == ids(issued)


def test_envelopes_are_forgotten_after_their_retention_and_sessions_when_they_are_idle(
    caller: EnvelopeCaller, corpus: str
) -> None:
    scoring = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
    issued = [caller.pack(QUERY, corpus, budget=42, scoring=scoring, session_id="s") for _ in range(3)]
    engine, keys, now = caller.server.engine, keyspace(caller.server), datetime.now(UTC)
    assert forget_envelopes(engine, keys, now) == 0
    assert forget_envelopes(engine, keys, now + timedelta(days=1)) == 1, (
        "the session is forgotten once, however often it was used"
    )
    assert refusal(lambda: caller.go_on(issued[0].continuation_id)).reason == Reason.CONTINUATION_NOT_FOUND.name
    assert caller.replay(issued[0].envelope_id).replay == pb.REPLAY_SAME
    assert forget_envelopes(engine, keys, now + timedelta(days=399)) == 0
    assert forget_envelopes(engine, keys, now + timedelta(days=401)) == len(issued)
    for answer in issued:
        assert refusal(lambda e=answer.envelope_id: caller.replay(e)).reason == Reason.ENVELOPE_NOT_FOUND.name  # type: ignore[misc]
    again = caller.pack(QUERY, corpus, budget=42, scoring=scoring, session_id="s", if_match=issued[0].envelope.etag)
    assert not again.not_modified
