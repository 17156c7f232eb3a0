"""Legal hold: a corpus on hold is not trimmed and cannot be deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from drillcore import Client, Conflict, FailedPrecondition, InvalidArgument, LegalHold, Reason, ResourceExhausted
from drillcore_server.kernel.corpus_model import REASON_CHARACTERS_MAX
from tests.support.callers.knowledge import Caller, at_revision, files
from tests.support.data.texts import REGULATIONS
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, ACME_ID, Running
from tests.support.stores.aged import age


@pytest.fixture
def corpus(acme: Client) -> str:
    return str(acme.create_corpus("trials").id)


def test_a_hold_says_why_who_and_when(operator: Client, acme: Client, corpus: str) -> None:
    before = datetime.now(UTC)
    hold = acme.update_corpus(corpus, hold_reason="Case 2026-17").legal_hold
    assert hold is not None
    assert (hold.on, hold.reason, hold.by) == (True, "Case 2026-17", "ann@acme")
    assert before <= hold.at <= datetime.now(UTC)
    assert acme.get_corpus(corpus).legal_hold == hold
    released = operator.update_corpus(corpus, release_reason="settled", tenant_id=ACME_ID).legal_hold
    assert released is not None
    assert released == LegalHold(False, "settled", "root", released.at)
    assert released.at > hold.at


def test_a_corpus_begins_without_a_hold(acme: Client, corpus: str) -> None:
    assert acme.get_corpus(corpus).legal_hold is None


def test_an_active_hold_is_not_overwritten(operator: Client, acme: Client, corpus: str) -> None:
    held = acme.update_corpus(corpus, hold_reason="Case 2026-17")
    with pytest.raises(FailedPrecondition) as caught:
        operator.update_corpus(corpus, hold_reason="another", description="changed", tenant_id=ACME_ID)
    assert caught.value.reason is Reason.CORPUS_ON_HOLD
    assert acme.get_corpus(corpus) == held


def test_a_corpus_without_a_hold_cannot_be_released(acme: Client, corpus: str) -> None:
    before = acme.get_corpus(corpus)
    with pytest.raises(FailedPrecondition) as caught:
        acme.update_corpus(corpus, release_reason="settled")
    assert caught.value.reason is Reason.CORPUS_NOT_ON_HOLD
    assert acme.get_corpus(corpus) == before
    acme.update_corpus(corpus, hold_reason="a case")
    acme.update_corpus(corpus, release_reason="settled")
    with pytest.raises(FailedPrecondition):
        acme.update_corpus(corpus, release_reason="settled again")
    again = acme.update_corpus(corpus, hold_reason="another case").legal_hold
    assert again is not None
    assert again.on


@pytest.mark.parametrize("field", ["hold_reason", "release_reason"])
@pytest.mark.parametrize("reason", ["", " \n\t"], ids=["empty", "blank"])
def test_a_hold_and_its_release_need_a_reason(acme: Client, corpus: str, field: str, reason: str) -> None:
    if field == "release_reason":
        acme.update_corpus(corpus, hold_reason="a case")
    before = acme.get_corpus(corpus)
    with pytest.raises(InvalidArgument) as caught:
        acme.update_corpus(corpus, **{field: reason})  # type: ignore[arg-type]
    assert caught.value.metadata["field"] == field
    assert acme.get_corpus(corpus) == before


def test_a_reason_has_a_limit(acme: Client, corpus: str) -> None:
    with pytest.raises(ResourceExhausted) as caught:
        acme.update_corpus(corpus, hold_reason="r" * (REASON_CHARACTERS_MAX + 1))
    assert caught.value.reason is Reason.TOO_LARGE
    acme.update_corpus(corpus, hold_reason="r" * REASON_CHARACTERS_MAX)


def test_a_hold_of_another_version_is_refused(acme: Client, corpus: str) -> None:
    with pytest.raises(Conflict):
        acme.update_corpus(corpus, hold_reason="a case", expected_version=7)
    assert acme.get_corpus(corpus).legal_hold is None


def test_only_one_of_several_concurrent_holds_is_put_on(acme: Client, corpus: str) -> None:
    def hold(number: int) -> bool:
        try:
            acme.update_corpus(corpus, hold_reason=f"case {number}")
        except FailedPrecondition:
            return False
        return True

    won = concurrently(6, hold)
    assert sum(won) == 1
    kept = acme.get_corpus(corpus).legal_hold
    assert kept is not None
    assert kept.reason == f"case {won.index(True)}"


def test_a_corpus_on_hold_cannot_be_deleted_until_it_is_released(operator: Client, acme: Client, corpus: str) -> None:
    held = acme.update_corpus(corpus, hold_reason="a case")
    for client, tenant in ((acme, None), (operator, ACME_ID)):
        with pytest.raises(FailedPrecondition) as caught:
            client.delete_corpus(corpus, tenant_id=tenant)
        assert caught.value.reason is Reason.CORPUS_ON_HOLD
    with pytest.raises(FailedPrecondition):
        operator.delete_tenant(ACME_ID)
    assert acme.get_corpus(corpus) == held
    acme.update_corpus(corpus, release_reason="settled")
    acme.delete_corpus(corpus)


def test_a_corpus_on_hold_is_not_trimmed_until_it_is_released(server: Running, acme: Client, corpus: str) -> None:
    caller = Caller(server.address, ACME)
    for name in ("records.txt", "food.txt"):
        caller.add(corpus, *files({name: REGULATIONS[name]}))
    age(server, corpus, 9)
    acme.update_corpus(corpus, retention_days=1, hold_reason="a case")
    before = caller.list_documents(corpus, as_of=at_revision(1))
    with pytest.raises(FailedPrecondition) as caught:
        acme.trim_corpus(corpus)
    assert caught.value.reason is Reason.CORPUS_ON_HOLD
    assert caller.list_documents(corpus, as_of=at_revision(1)) == before
    acme.update_corpus(corpus, release_reason="settled")
    assert acme.trim_corpus(corpus).oldest_revision == 2
    caller.close()


def test_documents_can_change_during_a_hold_and_every_revision_is_kept(
    server: Running, acme: Client, corpus: str
) -> None:
    caller = Caller(server.address, ACME)
    acme.update_corpus(corpus, hold_reason="a case")
    ids = caller.add_texts(corpus, {"records.txt": REGULATIONS["records.txt"]})
    caller.remove(corpus, ids["records.txt"])
    assert caller.list_documents(corpus) == []
    assert caller.text(corpus, ids["records.txt"], at_revision(1)) == REGULATIONS["records.txt"]
    caller.close()


def test_a_hold_repeated_under_the_same_request_id_is_put_on_once(acme: Client, corpus: str) -> None:
    first = acme.update_corpus(corpus, hold_reason="a case", request_id="one")
    assert acme.update_corpus(corpus, hold_reason="a case", request_id="one") == first
