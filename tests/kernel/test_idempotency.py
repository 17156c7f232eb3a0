"""A request id names a write. Repeated under the same id, the write is done once and gets the first answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drillcore import AlreadyExists, Client, Conflict, InvalidArgument, NotFound, Reason
from drillcore_server.kernel.unit import forget_outcomes
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME_ID, GLOBEX_ID, Running
from tests.support.stores.trails import knowledge_keys


def forget(server: Running, before: datetime) -> int:
    root, _ = open_store(server.engine)
    return forget_outcomes(server.engine, Keyspace(root), before)


def test_a_repeated_creation_gives_the_first_record(acme: Client) -> None:
    first = acme.create_corpus("trials", metadata={"b": "2", "a": "1"}, request_id="one")
    assert acme.create_corpus("trials", metadata={"a": "1", "b": "2"}, request_id="one") == first
    assert list(acme.iter_corpora()) == [first]


def test_a_repeated_creation_of_a_tenant_gives_the_first_record(operator: Client) -> None:
    first = operator.create_tenant("acme", request_id="one")
    assert operator.create_tenant("acme", request_id="one") == first
    assert list(operator.iter_tenants()) == [first]


def test_a_repeated_update_is_done_once(acme: Client) -> None:
    made = acme.create_corpus("trials")
    first = acme.update_corpus(made.id, description="new", request_id="one")
    assert acme.update_corpus(made.id, description="new", request_id="one") == first
    assert acme.get_corpus(made.id).version == 2


def test_a_repeated_update_with_an_expected_version_is_no_mismatch(acme: Client) -> None:
    made = acme.create_corpus("trials")
    first = acme.update_corpus(made.id, description="new", expected_version=1, request_id="one")
    assert acme.update_corpus(made.id, description="new", expected_version=1, request_id="one") == first


def test_a_repeated_deletion_is_no_error(operator: Client, acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.delete_corpus(made.id, request_id="one")
    acme.delete_corpus(made.id, request_id="one")
    operator.delete_tenant(GLOBEX_ID, request_id="one")
    operator.delete_tenant(GLOBEX_ID, request_id="one")
    with pytest.raises(NotFound):
        acme.delete_corpus(made.id, request_id="another")


def test_a_repeated_creation_gives_the_first_outcome_though_the_record_has_changed(acme: Client) -> None:
    first = acme.create_corpus("trials", request_id="one")
    changed = acme.update_corpus(first.id, name="renamed", description="changed")
    assert acme.create_corpus("trials", request_id="one") == first
    assert list(acme.iter_corpora()) == [changed]


def test_a_repeated_creation_does_not_bring_a_deleted_record_back(acme: Client) -> None:
    first = acme.create_corpus("trials", request_id="one")
    acme.delete_corpus(first.id)
    assert acme.create_corpus("trials", request_id="one") == first
    assert list(acme.iter_corpora()) == []


def test_another_request_under_the_same_id_is_refused(acme: Client) -> None:
    made = acme.create_corpus("trials", request_id="one")
    for attempt in (
        lambda: acme.create_corpus("other", request_id="one"),
        lambda: acme.create_corpus("trials", description="other", request_id="one"),
        lambda: acme.update_corpus(made.id, description="other", request_id="one"),
        lambda: acme.delete_corpus(made.id, request_id="one"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            attempt()
        assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert list(acme.iter_corpora()) == [made]


def test_another_kind_of_request_with_the_same_content_is_another_request(acme: Client) -> None:
    """UpdateCorpus and DeleteCorpus with an id alone are the same bytes."""
    made = acme.create_corpus("trials")
    acme.update_corpus(made.id, request_id="one")
    with pytest.raises(InvalidArgument) as caught:
        acme.delete_corpus(made.id, request_id="one")
    assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert acme.get_corpus(made.id).version == 2


def test_a_refused_request_may_be_made_again_under_its_id(acme: Client) -> None:
    """Nothing was written, so there is no outcome to repeat."""
    taken = acme.create_corpus("trials")
    with pytest.raises(AlreadyExists):
        acme.create_corpus("trials", request_id="one")
    acme.delete_corpus(taken.id)
    assert acme.create_corpus("trials", request_id="one").id != taken.id


def test_two_callers_may_use_the_same_request_id(operator: Client, acme: Client, globex: Client) -> None:
    ours, theirs = (client.create_corpus("trials", request_id="one") for client in (acme, globex))
    assert (ours.tenant_id, theirs.tenant_id) == (ACME_ID, GLOBEX_ID)
    assert operator.create_corpus("third", tenant_id=ACME_ID, request_id="one").name == "third"


def test_the_request_id_of_a_read_cannot_be_used_by_another_request(acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.get_corpus(made.id, request_id="one")
    with pytest.raises(InvalidArgument, match="REQUEST_ID_REUSED"):
        acme.update_corpus(made.id, description="new", request_id="one")
    assert acme.get_corpus(made.id, request_id="one") == made, "the read can be repeated"


def test_a_repeated_read_with_another_result_is_refused_since_its_record_exists(acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.list_corpora(request_id="one")
    acme.create_corpus("more trials")
    with pytest.raises(Conflict, match="send it again with a new request id"):
        acme.list_corpora(request_id="one")
    assert made in acme.list_corpora(request_id="two").items


def test_duplicates_at_the_same_time_make_one_record(acme: Client) -> None:
    made = concurrently(8, lambda _: acme.create_corpus("trials", request_id="one"))
    assert all(corpus == made[0] for corpus in made)
    assert list(acme.iter_corpora()) == made[:1]


def test_duplicates_at_the_same_time_update_once(acme: Client) -> None:
    corpus = acme.create_corpus("trials")
    concurrently(8, lambda _: acme.update_corpus(corpus.id, description="new", request_id="one"))
    assert acme.get_corpus(corpus.id).version == 2


def test_an_outcome_outlives_the_connection_and_other_writes(server: Running, acme: Client) -> None:
    first = acme.create_corpus("trials", metadata={f"key {n}": "x" * 4_000 for n in range(60)}, request_id="one")
    with server.client(acme.settings.token) as again:
        repeated = again.create_corpus("trials", metadata=dict(first.metadata), request_id="one")
    assert repeated == first


def test_old_outcomes_are_forgotten(server: Running, acme: Client) -> None:
    first = acme.create_corpus("trials", metadata={f"key {n}": "x" * 4_000 for n in range(60)}, request_id="one")
    keys_before = knowledge_keys(server)
    assert forget(server, datetime.now(UTC) + timedelta(seconds=2)) == 3, "two tenants and a corpus were created"
    assert knowledge_keys(server) < keys_before - 6, "the parts of a large outcome go with it"
    acme.update_corpus(first.id, name="renamed")
    with pytest.raises(InvalidArgument, match="REQUEST_ID_REUSED"):
        acme.create_corpus("trials", metadata=dict(first.metadata), request_id="one")
    assert [corpus.name for corpus in acme.iter_corpora()] == ["renamed"], "its audit record stays"


def test_forgetting_outcomes_keeps_the_records_themselves(server: Running, acme: Client) -> None:
    made = acme.create_corpus("trials")
    forget(server, datetime.now(UTC) + timedelta(seconds=2))
    assert list(acme.iter_corpora()) == [made]


def test_newer_outcomes_are_kept(server: Running, acme: Client) -> None:
    first = acme.create_corpus("trials", request_id="one")
    assert forget(server, datetime.now(UTC) - timedelta(seconds=60)) == 0
    assert acme.create_corpus("trials", request_id="one") == first


def test_forgetting_goes_on_until_no_old_outcome_is_left(
    server: Running, acme: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more outcomes than one transaction removes."""
    monkeypatch.setattr("drillcore_server.kernel.unit._FORGOTTEN_AT_ONCE", 3)
    for number in range(5):
        acme.create_corpus(f"corpus {number}")
    assert forget(server, datetime.now(UTC) + timedelta(seconds=2)) == 7
    assert forget(server, datetime.now(UTC) + timedelta(seconds=2)) == 0
