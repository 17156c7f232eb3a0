"""Tenants: created, read, changed and deleted by an operator."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from drillcore import AlreadyExists, Client, Conflict, FailedPrecondition, NotFound, Reason
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME_ID


def test_a_created_tenant_has_the_requested_values(operator: Client) -> None:
    before = datetime.now(UTC)
    made = operator.create_tenant("acme", metadata={"region": "eu"}, tenant_id=ACME_ID)
    assert (made.id, made.name, made.metadata, made.version) == (ACME_ID, "acme", {"region": "eu"}, 1)
    assert made.created_by == "root"
    assert before <= made.created_at == made.updated_at <= datetime.now(UTC)


def test_a_tenant_gets_an_id_of_its_own_if_none_is_given(operator: Client) -> None:
    first, second = operator.create_tenant("one"), operator.create_tenant("other")
    assert isinstance(first.id, UUID)
    assert first.id != second.id


def test_a_tenant_is_found_by_its_id(operator: Client) -> None:
    made = operator.create_tenant("acme", metadata={"region": "eu"})
    assert operator.get_tenant(made.id) == made


def test_a_tenant_is_found_by_its_name(operator: Client) -> None:
    made = operator.create_tenant("acme", metadata={"region": "eu"})
    operator.create_tenant("acme 2")
    assert operator.get_tenant(name="acme") == made


def test_a_tenant_that_never_existed_is_not_found(operator: Client) -> None:
    with pytest.raises(NotFound) as caught:
        operator.get_tenant(uuid4())
    assert caught.value.reason is Reason.TENANT_NOT_FOUND
    with pytest.raises(NotFound) as caught:
        operator.get_tenant(name="nobody")
    assert caught.value.reason is Reason.TENANT_NOT_FOUND


def test_two_tenants_cannot_have_one_name(operator: Client) -> None:
    first = operator.create_tenant("acme")
    with pytest.raises(AlreadyExists) as caught:
        operator.create_tenant("acme")
    assert caught.value.reason is Reason.TENANT_EXISTS
    assert list(operator.iter_tenants()) == [first]


def test_two_tenants_cannot_have_one_id(operator: Client) -> None:
    first = operator.create_tenant("acme", tenant_id=ACME_ID)
    with pytest.raises(AlreadyExists) as caught:
        operator.create_tenant("other", tenant_id=ACME_ID)
    assert caught.value.reason is Reason.TENANT_EXISTS
    assert list(operator.iter_tenants()) == [first]


def test_an_update_changes_what_it_names_and_nothing_else(operator: Client) -> None:
    old = operator.create_tenant("acme", metadata={"keep": "1", "replace": "2", "remove": "3"})
    new = operator.update_tenant(old.id, set_metadata={"replace": "4", "add": "5"}, remove_metadata=["remove"])
    assert new.metadata == {"keep": "1", "replace": "4", "add": "5"}
    assert (new.id, new.name, new.created_at, new.created_by) == (old.id, old.name, old.created_at, old.created_by)
    assert new.version == 2
    assert new.updated_at > old.updated_at
    assert operator.get_tenant(old.id) == new


def test_removing_missing_metadata_is_no_error(operator: Client) -> None:
    made = operator.create_tenant("acme", metadata={"keep": "1"})
    assert operator.update_tenant(made.id, remove_metadata=["never there"]).metadata == {"keep": "1"}


def test_renaming_a_tenant_frees_its_old_name(operator: Client) -> None:
    made = operator.create_tenant("old name")
    operator.update_tenant(made.id, name="new name")
    assert operator.get_tenant(name="new name").id == made.id
    with pytest.raises(NotFound):
        operator.get_tenant(name="old name")
    assert operator.create_tenant("old name").id != made.id


def test_renaming_a_tenant_to_its_own_name_is_no_error(operator: Client) -> None:
    made = operator.create_tenant("acme")
    assert operator.update_tenant(made.id, name="acme").name == "acme"
    assert operator.get_tenant(name="acme").id == made.id


def test_a_tenant_cannot_be_renamed_to_a_taken_name(operator: Client) -> None:
    first, second = operator.create_tenant("first"), operator.create_tenant("second")
    with pytest.raises(AlreadyExists) as caught:
        operator.update_tenant(second.id, name="first", set_metadata={"key": "value"})
    assert caught.value.reason is Reason.TENANT_EXISTS
    assert operator.get_tenant(second.id) == second
    assert operator.get_tenant(name="first") == first


def test_an_update_of_another_version_is_refused(operator: Client) -> None:
    made = operator.create_tenant("acme")
    current = operator.update_tenant(made.id, set_metadata={"by": "somebody"}, expected_version=1)
    with pytest.raises(Conflict) as caught:
        operator.update_tenant(made.id, set_metadata={"by": "me"}, expected_version=1)
    assert caught.value.reason is Reason.VERSION_MISMATCH
    assert caught.value.metadata["version"] == "2"
    assert operator.get_tenant(made.id) == current


def test_concurrent_updates_of_a_tenant_lose_nothing(operator: Client) -> None:
    made = operator.create_tenant("acme")
    concurrently(12, lambda number: operator.update_tenant(made.id, set_metadata={f"key {number}": str(number)}))
    found = operator.get_tenant(made.id)
    assert found.metadata == {f"key {number}": str(number) for number in range(12)}
    assert found.version == 13


def test_a_deleted_tenant_is_not_found(operator: Client) -> None:
    made = operator.create_tenant("acme")
    operator.delete_tenant(made.id)
    for attempt in (
        lambda: operator.get_tenant(made.id),
        lambda: operator.get_tenant(name="acme"),
        lambda: operator.update_tenant(made.id, name="new"),
        lambda: operator.delete_tenant(made.id),
        lambda: operator.list_corpora(tenant_id=made.id),
        lambda: operator.create_corpus("corpus", tenant_id=made.id),
    ):
        with pytest.raises(NotFound) as caught:
            attempt()
        assert caught.value.reason is Reason.TENANT_NOT_FOUND


def test_a_deleted_tenants_name_may_be_used_again(operator: Client) -> None:
    first = operator.create_tenant("acme")
    operator.delete_tenant(first.id)
    second = operator.create_tenant("acme")
    assert operator.get_tenant(name="acme").id == second.id != first.id


def test_a_deleted_tenants_id_is_never_used_again(operator: Client) -> None:
    operator.create_tenant("acme", tenant_id=ACME_ID)
    operator.delete_tenant(ACME_ID)
    with pytest.raises(AlreadyExists) as caught:
        operator.create_tenant("other", tenant_id=ACME_ID)
    assert caught.value.reason is Reason.TENANT_EXISTS


def test_a_tenant_with_corpora_cannot_be_deleted(operator: Client) -> None:
    made = operator.create_tenant("acme")
    corpus = operator.create_corpus("corpus", tenant_id=made.id)
    with pytest.raises(FailedPrecondition) as caught:
        operator.delete_tenant(made.id)
    assert caught.value.reason is Reason.TENANT_NOT_EMPTY
    assert operator.get_corpus(corpus.id, tenant_id=made.id) == corpus


def test_a_tenant_whose_corpora_are_all_deleted_can_be_deleted(operator: Client) -> None:
    made = operator.create_tenant("acme")
    corpus = operator.create_corpus("corpus", tenant_id=made.id)
    operator.delete_corpus(corpus.id, tenant_id=made.id)
    operator.delete_tenant(made.id)
    assert list(operator.iter_tenants()) == []


def test_a_deletion_of_another_version_is_refused(operator: Client) -> None:
    made = operator.create_tenant("acme")
    current = operator.update_tenant(made.id, set_metadata={"by": "somebody"})
    with pytest.raises(Conflict) as caught:
        operator.delete_tenant(made.id, expected_version=1)
    assert caught.value.reason is Reason.VERSION_MISMATCH
    assert operator.get_tenant(made.id) == current


def test_no_corpus_can_be_created_in_a_tenant_that_is_being_deleted(operator: Client) -> None:
    """Either the deletion finds the corpus, or the creation finds the tenant deleted, in any order of the two."""

    def race(number: int) -> tuple[bool, bool]:
        tenant = operator.create_tenant(f"tenant {number}")

        def delete() -> bool:
            try:
                operator.delete_tenant(tenant.id)
            except FailedPrecondition:
                return False
            return True

        def create() -> bool:
            try:
                operator.create_corpus("corpus", tenant_id=tenant.id)
            except NotFound:
                return False
            return True

        deleted, created = concurrently(2, lambda turn: (delete, create)[turn]())
        return deleted, created

    assert all(deleted != created for deleted, created in map(race, range(20)))
