"""if_match: an envelope that the caller already has is not made again, and an envelope that would differ always is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from drillcore import Role
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.hierarchy import search_text as seeking
from tests.support.callers.envelopes import TEXTS, EnvelopeCaller, filled, ids
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, create_tenants, running
from tests.support.servers.signatories import person
from tests.support.stores.trails import records

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


def test_an_unchanged_state_is_not_packed_again(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus)
    again = caller.pack(QUERY, corpus, if_match=first.envelope.etag)
    assert again.not_modified
    assert not again.HasField("envelope")
    assert (again.envelope_id, again.headers["CRP-Context-Cache-Status"]) == (first.envelope_id, "HIT")
    assert again.headers["CRP-Context-ETag"] == first.envelope.etag
    assert {fact.access_count for fact in caller.list(corpus)} == {1}, "no fact was read again"
    assert records(caller.server, call="PackEnvelope")[-1]["detail"]["not_modified"] is True


def test_access_alone_changes_nothing(caller: EnvelopeCaller, corpus: str) -> None:
    etag = caller.pack(QUERY, corpus).envelope.etag
    caller.search("conflicts of interest", corpus)
    caller.get(caller.list(corpus)[0].fact_id)
    assert caller.pack(QUERY, corpus, if_match=etag).not_modified


def _add(caller: EnvelopeCaller, corpus: str) -> None:
    caller.put(corpus, facts_pb2.FactDraft(content=NEW, source_id="manual"))


def _edit(caller: EnvelopeCaller, corpus: str) -> None:
    """Changes a fact in place: the ids, and so the etag, stay the same."""
    caller.update(caller.list(corpus)[0].fact_id, content=TEXTS[0].replace("seven", "eight"))


def _weigh(caller: EnvelopeCaller, corpus: str) -> None:
    caller.update(caller.list(corpus)[0].fact_id, importance_weight=0.2)


def _quarantine(caller: EnvelopeCaller, corpus: str) -> None:
    caller.set_status(caller.list(corpus)[0].fact_id, facts_pb2.FACT_STATUS_QUARANTINED, reason="doubt")


def _archive(caller: EnvelopeCaller, corpus: str) -> None:
    caller.archive(caller.list(corpus)[0].fact_id)


def _erase(caller: EnvelopeCaller, corpus: str) -> None:
    caller.server.client(ACME).erase_source(corpus, "manual 0", reason="GDPR")


def _recluster(caller: EnvelopeCaller, corpus: str) -> None:
    alike = [f"The auditor of site {number} reads all records of transactions once a month." for number in range(5)]
    caller.put(corpus, *(facts_pb2.FactDraft(content=text, source_id="sites") for text in alike))


@pytest.mark.parametrize("change", [_add, _edit, _weigh, _quarantine, _archive, _erase, _recluster])
def test_every_change_that_could_matter_makes_an_etag_outdated(
    caller: EnvelopeCaller, corpus: str, change: Callable[[EnvelopeCaller, str], None]
) -> None:
    etag = caller.pack(QUERY, corpus).envelope.etag
    change(caller, corpus)
    again = caller.pack(QUERY, corpus, if_match=etag)
    assert not again.not_modified
    assert again.headers["CRP-Context-Cache-Status"].startswith(("MISS; reason=facts-updated", "PARTIAL"))


def test_an_erasure_is_seen_at_earlier_revisions_too(caller: EnvelopeCaller, corpus: str) -> None:
    moment = pb.EnvelopeQuestion(as_of={"revision": 1}).as_of
    first = caller.pack(QUERY, corpus, as_of=moment)
    assert caller.pack(QUERY, corpus, as_of=moment, if_match=first.envelope.etag).not_modified
    _erase(caller, corpus)
    again = caller.pack(QUERY, corpus, as_of=moment, if_match=first.envelope.etag)
    assert not again.not_modified
    assert TEXTS[0] not in again.envelope.text


def test_an_etag_holds_only_for_its_question_and_its_caller(caller: EnvelopeCaller, corpus: str) -> None:
    etag = caller.pack(QUERY, corpus).envelope.etag
    for fields in ({"budget": 150}, {"grounding_mode": pb.GROUNDING_MODE_OPEN}, {"exact": True}, {"session_id": "s"}):
        assert not caller.pack(QUERY, corpus, if_match=etag, **fields).not_modified
    assert not caller.pack("how long are records kept?", corpus, if_match=etag).not_modified
    assert not caller.pack(QUERY, corpus, if_match="sha256:" + 64 * "0").not_modified
    shared = caller.server.client(OPERATOR).update_corpus(corpus, share_with=[GLOBEX_ID], tenant_id=ACME_ID)
    assert shared.id
    with EnvelopeCaller(caller.server, GLOBEX) as stranger:
        assert not stranger.pack(QUERY, corpus, if_match=etag).not_modified
        assert stranger.pack(QUERY, corpus, if_match=stranger.pack(QUERY, corpus).envelope.etag).not_modified


def test_an_etag_cannot_be_used_by_a_colleague(caller: EnvelopeCaller, corpus: str) -> None:
    known = caller.pack(QUERY, corpus)
    client = person(caller.server, "colleague", Role.READER).log_in()
    with EnvelopeCaller(caller.server, str(client.settings.token)) as colleague:
        assert not colleague.pack(QUERY, corpus, if_match=known.envelope.etag).not_modified
        assert not colleague.pack(QUERY, corpus, if_match=known.envelope_id).not_modified


def test_not_modified_needs_no_embedding(caller: EnvelopeCaller, corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = caller.pack(QUERY, corpus)
    monkeypatch.delattr(seeking, "embed_or_refuse")
    assert caller.pack(QUERY, corpus, if_match=known.envelope.etag).not_modified


def test_no_cache_overrides_if_match(caller: EnvelopeCaller, corpus: str) -> None:
    etag = caller.pack(QUERY, corpus, cache_control="no-cache").envelope.etag
    assert not caller.pack(QUERY, corpus, cache_control="no-cache", if_match=etag).not_modified


def test_facts_that_become_too_old_modify_an_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, cache_control="max-age=3600")
    assert caller.pack(QUERY, corpus, cache_control="max-age=3600", if_match=first.envelope.etag).not_modified
    aged = caller.pack(QUERY, corpus, cache_control="max-age=0")
    assert caller.pack(QUERY, corpus, cache_control="max-age=0", if_match=aged.envelope.etag).not_modified
    assert aged.envelope.facts[0].stale


def test_not_modified_ends_when_the_first_fact_is_too_old(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, cache_control="max-age=2")
    assert not any(fact.stale for fact in first.envelope.facts)
    until = monotonic() + 30
    while (again := caller.pack(QUERY, corpus, cache_control="max-age=2", if_match=first.envelope_id)).not_modified:
        assert monotonic() < until, "the fact never became too old"
    assert all(fact.stale for fact in again.envelope.facts)


def test_a_shared_corpus_that_changes_modifies_an_envelope_of_everything(caller: EnvelopeCaller, corpus: str) -> None:
    with EnvelopeCaller(caller.server, GLOBEX) as owner:
        before = owner.pack(QUERY)
        caller.server.client(OPERATOR).update_corpus(corpus, share_with=[GLOBEX_ID], tenant_id=ACME_ID)
        after = owner.pack(QUERY, if_match=before.envelope.etag)
        assert not after.not_modified
        assert len(ids(after)) == len(TEXTS)
        assert owner.pack(QUERY, if_match=after.envelope.etag).not_modified
        _add(caller, corpus)
        assert not owner.pack(QUERY, if_match=after.envelope.etag).not_modified


def test_salted_etags_hold_only_in_their_session(caller: EnvelopeCaller, corpus: str) -> None:
    def salted(session: str, if_match: str = "") -> pb.PackEnvelopeResponse:
        return caller.pack(QUERY, corpus, session_id=session, salted_etag=True, if_match=if_match)

    first, second, plain = salted("one"), salted("other"), caller.pack(QUERY, corpus)
    assert len({answer.envelope.etag for answer in (first, second, plain)}) == 3
    assert ids(first) == ids(second) == ids(plain)
    assert salted("one", first.envelope.etag).not_modified
    assert not salted("other", first.envelope.etag).not_modified


def test_facts_of_the_session_modify_an_envelope(caller: EnvelopeCaller, corpus: str) -> None:
    first = caller.pack(QUERY, corpus, session_id="s")
    assert caller.pack(QUERY, corpus, session_id="s", if_match=first.envelope.etag).not_modified
    draft = facts_pb2.FactDraft(content=NEW, source_id="talk")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    again = caller.pack(QUERY, corpus, session_id="s", if_match=first.envelope.etag)
    assert NEW in again.envelope.text
    assert [fact.session_only for fact in again.envelope.facts if fact.content == NEW] == [True]
    assert NEW not in caller.pack(QUERY, corpus, session_id="another").envelope.text
