"""Cache directives of PutFacts and SearchFacts, and facts that are kept only in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import grpc
import pytest

from drillcore import Grant, Role
from drillcore_fdb.engine import Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.app.config import FactSettings
from drillcore_server.facts import session_fact_store
from drillcore_server.facts.session_fact_store import SESSION, FactSession
from drillcore_server.storage.keyring import KeyErased, KeyNumber
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.spaces import Space
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import info_of, refused
from tests.support.servers.people import make_service
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running, create_tenants, running
from tests.support.stores.trails import all_records

STORED = "The firm must keep records of every transaction for at least seven years after it was made."
KEPT = "A customer may withdraw from the contract within fourteen days of signing it, without giving a reason."
OTHER = "The board reviews the policy on conflicts of interest once a year and publishes what it has found."
FACTS_MAX = 5


@dataclass
class Desk:
    """A corpus of acme with one fact, and the callers of the tests."""

    server: Running
    corpus: str
    stored: str
    caller: FactCaller
    open: ExitStack

    def caller_of(self, token: str) -> FactCaller:
        return self.open.enter_context(FactCaller(self.server, token))

    def keep(self, *texts: str, session: str = "s-1", caller: FactCaller | None = None, **fields: Any) -> list[str]:
        """Puts facts into a session."""
        drafts = [pb.FactDraft(content=text, source_id="talk") for text in texts]
        put = (caller or self.caller).put(self.corpus, *drafts, cache_control="no-store", session_id=session, **fields)
        return list(put.fact_ids)

    def found(self, text: str = KEPT, caller: FactCaller | None = None, **fields: Any) -> list[str]:
        return [hit.fact.fact_id for hit in (caller or self.caller).search(text, **fields).hits]

    def end(self, session: str = "s-1", caller: FactCaller | None = None, request_id: str | None = None) -> int:
        who = caller or self.caller
        request = pb.EndSessionRequest(session_id=session)
        return who.facts.EndSession(request, **who.options(request_id)).facts_forgotten

    def keys(self) -> list[bytes]:
        """The keys of everything that is stored about sessions."""
        keys = self.server.server._unit.keys
        spaces = [keys._spaces[space].range() for space in (Space.SESSION_FACTS, Space.SESSION_ENDS)]
        return [key for space in spaces for key, _ in self.run(lambda tr, space=space: list(tr.range(*space)))]

    def run(self, work: Callable[[Transaction], Any]) -> Any:
        return self.server.engine.run(work)

    def sweep(self, *, after: timedelta) -> int:
        return self.server.server.sessions.sweep(datetime.now(UTC) + after)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with running(tmp_path, facts=FactSettings(session_facts_max=FACTS_MAX)) as server, ExitStack() as stack:
        create_tenants(server.client())
        caller = stack.enter_context(FactCaller(server, ACME))
        corpus = caller.corpus()
        (stored,) = caller.put(corpus, pb.FactDraft(content=STORED, source_id="manual")).fact_ids
        yield Desk(server, corpus, stored, caller, stack)


def test_a_fact_put_with_no_store_is_found_in_its_session_only(desk: Desk) -> None:
    (kept,) = desk.keep(KEPT)
    (hit, _) = desk.caller.search(KEPT, session_id="s-1").hits
    assert (hit.fact.fact_id, hit.fact.content, hit.fact.session_only, hit.fact.corpus_id) == (
        kept,
        KEPT,
        True,
        desk.corpus,
    )
    assert hit.score == pytest.approx(1.0, abs=1e-3)
    for session in ("", "s-2"):
        assert desk.found(session_id=session) == [desk.stored]
    with refused(Reason.FACT_NOT_FOUND):
        desk.caller.get(kept)
    assert [fact.fact_id for fact in desk.caller.list(desk.corpus)] == [desk.stored]


def test_facts_of_a_session_and_stored_ones_are_ranked_together(desk: Desk) -> None:
    kept = desk.keep(KEPT, OTHER)
    assert desk.found(STORED, session_id="s-1")[0] == desk.stored
    assert desk.found(OTHER, session_id="s-1")[0] == kept[1]
    hits = desk.caller.search(KEPT, session_id="s-1", limit=2).hits
    assert len(hits) == 2
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_no_store_makes_no_revision_and_changes_no_state(desk: Desk) -> None:
    before, head = desk.caller.state(desk.corpus), desk.caller.head(desk.corpus)
    drafts = [pb.FactDraft(content=KEPT, source_id="talk")]
    put = desk.caller.put(desk.corpus, *drafts, cache_control="No-Store, reuse-ckf", session_id="s-1")
    assert put.revision == head
    assert desk.caller.state(desk.corpus) == before
    assert [entry.revision for entry in desk.caller.history(corpus_id=desk.corpus)] == [1]


def test_another_callers_session_of_the_same_name_is_not_found(desk: Desk) -> None:
    desk.keep(KEPT)
    colleague = desk.caller_of(make_service(desk.server, Grant(Role.WRITER)).token)
    assert desk.found(caller=colleague, session_id="s-1") == [desk.stored]
    assert desk.end(caller=colleague) == 0
    (theirs,) = desk.keep(OTHER, caller=colleague)
    assert theirs not in desk.found(OTHER, session_id="s-1")
    assert desk.end(caller=colleague) == 1
    assert len(desk.found(session_id="s-1")) == 2


def test_a_session_belongs_to_one_tenant_even_for_an_operator(desk: Desk) -> None:
    operator = desk.server.client()
    elsewhere = operator.create_corpus("elsewhere", tenant_id=GLOBEX_ID).id
    root = desk.caller_of(OPERATOR)
    draft = pb.FactDraft(content=KEPT, source_id="talk")
    root.put(str(elsewhere), draft, cache_control="no-store", session_id="s-1", tenant_id=str(GLOBEX_ID))
    found = root.search(KEPT, session_id="s-1", tenant_id=str(ACME_ID)).hits
    assert [hit.fact.fact_id for hit in found] == [desk.stored]


def test_a_session_that_is_ended_leaves_nothing_and_its_key_is_destroyed(desk: Desk) -> None:
    desk.keep(KEPT, OTHER)
    (number,) = numbers(desk)
    assert desk.end() == 2
    assert desk.found(session_id="s-1") == [desk.stored]
    assert desk.keys() == []
    with pytest.raises(KeyErased):
        desk.server.server.keyring.cipher(number)
    assert desk.end() == 0


def test_the_same_id_begins_a_new_session_after_the_end(desk: Desk) -> None:
    desk.keep(KEPT)
    desk.end()
    (again,) = desk.keep(OTHER)
    assert desk.found(OTHER, session_id="s-1") == [again, desk.stored]


def test_an_unused_session_ends(desk: Desk) -> None:
    desk.keep(KEPT, OTHER)
    (number,) = numbers(desk)
    age(desk, timedelta(hours=1))
    assert desk.found(session_id="s-1") == [desk.stored]
    assert desk.sweep(after=timedelta()) == 1
    assert desk.keys() == []
    with pytest.raises(KeyErased):
        desk.server.server.keyring.cipher(number)
    (record,) = [record for record in all_records(desk.server) if record["call"] == "Housekeeping"]
    assert record["detail"]["session_facts_forgotten"] == 2


def test_the_sweep_leaves_sessions_that_are_not_over(desk: Desk) -> None:
    kept = desk.keep(KEPT)
    assert desk.sweep(after=timedelta(minutes=29)) == 0
    assert set(kept) < set(desk.found(session_id="s-1"))


@pytest.mark.parametrize("use", ["search", "put"])
def test_using_a_session_puts_off_its_end(desk: Desk, use: str) -> None:
    desk.keep(KEPT)
    age(desk, timedelta(minutes=20))
    if use == "search":
        assert len(desk.found(session_id="s-1")) == 2
    else:
        desk.keep(OTHER)
    assert desk.sweep(after=timedelta(minutes=25)) == 0
    assert len(desk.found(session_id="s-1")) >= 2


def test_a_session_used_while_it_is_swept_stays(desk: Desk) -> None:
    """The sweep has seen that the session is over, but a call that began before puts off its end."""
    (kept,) = desk.keep(KEPT)
    (number,) = numbers(desk)
    keys, later = desk.server.server._unit.keys, datetime.now(UTC) + timedelta(hours=1)
    (seen,) = desk.run(lambda tr: session_fact_store.sessions_over(tr.snapshot, keys, later, 100))
    desk.run(lambda tr: session_fact_store.renew(tr, keys, replace(seen, facts=1), later))
    with mock.patch.object(session_fact_store, "sessions_over", side_effect=[[seen], []]):
        assert desk.sweep(after=timedelta(hours=1)) == 0
    desk.server.server.keyring.cipher(number)
    assert kept in desk.found(session_id="s-1")


def test_a_session_that_cannot_be_removed_does_not_keep_the_others(desk: Desk) -> None:
    desk.keep(KEPT)
    desk.keep(OTHER, session="s-2")
    first, second = numbers(desk)
    remove = session_fact_store.remove

    def remove_all_but_the_first(tr: Transaction, keys: Keyspace, ended: FactSession) -> int | None:
        if ended.number == first:
            raise OSError("the disk is gone")
        return remove(tr, keys, ended)

    with mock.patch.object(session_fact_store, "remove", remove_all_but_the_first), pytest.raises(ExceptionGroup):
        desk.sweep(after=timedelta(hours=1))
    assert numbers(desk) == [first]
    with pytest.raises(KeyErased):
        desk.server.server.keyring.cipher(second)
    assert desk.sweep(after=timedelta(hours=1)) == 1


def test_a_source_that_is_erased_is_gone_from_sessions_too(desk: Desk) -> None:
    """The fact is sealed under the key of its source too."""
    draft = pb.FactDraft(content=KEPT, source_id="manual")
    put = desk.caller.put(desk.corpus, draft, cache_control="no-store", session_id="s-1")
    (other_fact,) = desk.keep(OTHER)
    assert set(put.fact_ids) < set(desk.found(session_id="s-1"))
    client = desk.server.client(ACME)
    client.erase_source(desk.corpus, "manual", reason="asked to")
    assert desk.found(session_id="s-1") == [other_fact]


def test_a_source_that_the_corpus_gets_later_is_erased_from_sessions_too(desk: Desk) -> None:
    (kept,) = desk.keep(KEPT)
    desk.caller.put(desk.corpus, pb.FactDraft(content=OTHER, source_id="talk"))
    assert kept in desk.found(session_id="s-1")
    desk.server.client(ACME).erase_source(desk.corpus, "talk", reason="asked to")
    assert desk.found(session_id="s-1") == [desk.stored]


def test_a_new_session_in_place_of_an_ended_one_has_none_of_its_facts_and_both_keys_are_destroyed(desk: Desk) -> None:
    desk.keep(KEPT)
    age(desk, timedelta(hours=1))
    (again,) = desk.keep(OTHER)
    old, new = numbers(desk)
    assert set(desk.found(session_id="s-1")) == {again, desk.stored}
    assert desk.sweep(after=timedelta()) == 1
    with pytest.raises(KeyErased):
        desk.server.server.keyring.cipher(old)
    assert again in desk.found(session_id="s-1")
    desk.end()
    with pytest.raises(KeyErased):
        desk.server.server.keyring.cipher(new)


def test_a_session_whose_end_was_interrupted_is_ended_by_the_next_sweep(desk: Desk) -> None:
    """The call fails after its commit, before the key is destroyed."""
    desk.keep(KEPT)
    (number,) = numbers(desk)
    keyring = desk.server.server.keyring
    with mock.patch.object(keyring, "destroy", side_effect=RuntimeError), pytest.raises(grpc.RpcError):
        desk.end(request_id="one")
    assert desk.found(session_id="s-1") == [desk.stored]
    keyring.cipher(number)
    assert desk.end(request_id="one") == 1, "a repeated request finishes what it began"
    assert desk.keys() == []
    with pytest.raises(KeyErased):
        keyring.cipher(number)


def test_a_repeated_put_is_done_once(desk: Desk) -> None:
    drafts, fields = [pb.FactDraft(content=KEPT, source_id="talk")], {"cache_control": "no-store", "session_id": "s-1"}
    first = desk.caller.put(desk.corpus, *drafts, request_id="one", **fields)
    assert desk.caller.put(desk.corpus, *drafts, request_id="one", **fields) == first
    assert len(desk.found(session_id="s-1")) == 2


def test_a_session_keeps_a_limited_number_of_facts(desk: Desk) -> None:
    texts = [f"{KEPT} Point number {number} of the list is this one." for number in range(FACTS_MAX)]
    desk.keep(*texts)
    with refused(Reason.TOO_LARGE, field="session_id"):
        desk.keep(OTHER)
    assert desk.end() == FACTS_MAX
    with refused(Reason.TOO_LARGE, field="session_id"):
        desk.keep(*texts, OTHER)
    assert desk.keys() == []


def test_an_id_belongs_to_one_fact_of_a_session(desk: Desk) -> None:
    draft = pb.FactDraft(content=KEPT, source_id="talk", fact_id=str(uuid4()))
    fields = {"cache_control": "no-store", "session_id": "s-1"}
    desk.caller.put(desk.corpus, draft, **fields)
    with refused(Reason.NODE_EXISTS):
        desk.caller.put(desk.corpus, draft, **fields)


def test_content_of_a_session_is_sealed(desk: Desk) -> None:
    desk.keep(KEPT)
    whole = KeyRange(b"", b"\xff")
    stored = desk.run(lambda tr: list(tr.range(*whole)))
    assert not [key for key, value in stored if KEPT.encode()[:20] in key + value]


def test_a_caller_who_may_not_write_the_corpus_keeps_no_session_facts_beside_it(desk: Desk) -> None:
    reader = desk.caller_of(make_service(desk.server, Grant(Role.READER)).token)
    with refused(Reason.PERMISSION_DENIED):
        desk.keep(KEPT, caller=reader)
    with refused(Reason.CORPUS_NOT_FOUND):
        desk.keep(KEPT, caller=desk.caller_of(GLOBEX))


def test_calls_about_sessions_are_on_the_record(desk: Desk) -> None:
    (kept,) = desk.keep(KEPT)
    desk.found(session_id="s-1")
    desk.end()
    calls = {"PutFacts", "SearchFacts", "EndSession"}
    _, put, search, end = [record for record in all_records(desk.server) if record["call"] in calls]
    assert (put["nodes"], put["detail"]["session_facts"], put["corpora"]) == ([kept], 1, {desk.corpus: 1})
    assert kept in search["nodes"]
    assert end["detail"]["session_facts_forgotten"] == 1
    assert not [record for record in (put, search, end) if KEPT in str({**record, "opened": None})]


def test_filters_hold_for_facts_of_a_session(desk: Desk) -> None:
    (kept,) = desk.keep(KEPT)
    assert desk.found(session_id="s-1", filters=pb.FactFilters(source_ids=["talk"])) == [kept]
    assert desk.found(session_id="s-1", filters=pb.FactFilters(source_ids=["manual"])) == [desk.stored]


def test_facts_of_a_session_beside_a_corpus_that_is_not_searched_are_not_found(desk: Desk) -> None:
    (kept,) = desk.keep(KEPT)
    other_corpus = desk.caller.corpus("other")
    hits = desk.caller.search(KEPT, other_corpus, session_id="s-1").hits
    assert kept not in {hit.fact.fact_id for hit in hits}


def test_only_if_ckf_fails_with_424_unless_a_stored_fact_is_relevant(desk: Desk) -> None:
    assert desk.found(STORED, cache_control="only-if-ckf") == [desk.stored]
    for session in ("", "s-1"):
        desk.keep("Volcanoes erupt where plates of the earth drift apart or are pushed below one another.")
        with pytest.raises(grpc.RpcError) as caught:
            desk.found("volcanoes that erupt", cache_control="only-if-ckf", session_id=session)
        info = info_of(caught.value)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert (info.reason, info.metadata["CRP-Status"]) == (Reason.NO_CKF_FACTS.name, "424")


def test_facts_older_than_max_age_are_reported_as_stale(desk: Desk) -> None:
    def stale(directives: str) -> list[bool]:
        return [hit.stale for hit in desk.caller.search(STORED, cache_control=directives).hits]

    assert stale("") == [False]
    assert stale("max-age=3600") == [False]
    assert stale("max-age=0") == [True]
    assert desk.caller.get(desk.stored).status == pb.FACT_STATUS_ACTIVE


def test_no_cache_and_reuse_ckf_change_nothing_in_a_search(desk: Desk) -> None:
    for directives in ("no-cache", "reuse-ckf", "no-store", "no-cache, reuse-ckf"):
        assert desk.found(STORED, cache_control=directives) == [desk.stored]


@pytest.mark.parametrize("wrong", ["store", "max-age=x", "no-store, no-store", "no-store,"])
def test_invalid_directives_are_refused(desk: Desk, wrong: str) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="cache_control"):
        desk.found(cache_control=wrong)
    with refused(Reason.INVALID_ARGUMENT, field="cache_control"):
        desk.caller.put(desk.corpus, pb.FactDraft(content=KEPT, source_id="talk"), cache_control=wrong)


@pytest.mark.parametrize("wrong", ["", "s" * 129, "s\n", "\u00fc"], ids=["none", "long", "control", "not ASCII"])
def test_an_invalid_session_id_is_refused(desk: Desk, wrong: str) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="session_id"):
        desk.keep(KEPT, session=wrong)
    with refused(Reason.INVALID_ARGUMENT, field="session_id"):
        desk.end(wrong)
    if wrong:
        with refused(Reason.INVALID_ARGUMENT, field="session_id"):
            desk.found(session_id=wrong)


def test_facts_put_without_no_store_cannot_name_a_session(desk: Desk) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="session_id"):
        desk.caller.put(desk.corpus, pb.FactDraft(content=KEPT, source_id="talk"), session_id="s-1")


def test_a_session_takes_no_vectors_of_another_model_than_the_corpus_has(desk: Desk) -> None:
    draft = pb.FactDraft(content=KEPT, source_id="talk", embedding=[1.0, 0.5, 0.25])
    fields = {"cache_control": "no-store", "session_id": "s-1", "embedding_model": "theirs"}
    with refused(Reason.MODEL_MISMATCH):
        desk.caller.put(desk.corpus, draft, **fields)
    assert desk.keys() == []


def test_bad_facts_are_refused_in_a_session_too(desk: Desk) -> None:
    with refused(Reason.FACT_TOO_SHORT):
        desk.keep("too short")
    assert desk.keys() == []


def numbers(desk: Desk) -> list[KeyNumber]:
    """The numbers of the keys of all sessions, in the order of the sessions' ends."""
    keys = desk.server.server._unit.keys
    far = datetime.now(UTC) + timedelta(days=30)
    over = desk.run(lambda tr: session_fact_store.sessions_over(tr.snapshot, keys, far, 100))
    return [KeyNumber(session.number) for session in over]


def age(desk: Desk, by: timedelta) -> None:
    """Changes all sessions as if they had not been used for the given time."""
    keys = desk.server.server._unit.keys

    def work(tr: Transaction) -> None:
        far = datetime.now(UTC) + timedelta(days=30)
        for session in session_fact_store.sessions_over(tr, keys, far, 100):
            aged = replace(session, ends_at=session.ends_at - by)
            head = SESSION.read(tr, session_fact_store.head_key(keys, session.own))
            assert head is not None
            session_fact_store.forget(tr, keys, session)
            SESSION.write(tr, session_fact_store.head_key(keys, session.own), replace(head, ends_at=aged.ends_at))
            session_fact_store._set_end(tr, keys, aged)

    desk.run(work)
