"""Corpora: created, read, changed and deleted by a caller of their tenant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from drillcore import AlreadyExists, AsyncClient, Client, Conflict, NotFound, Reason
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, ACME_ID, Running


def test_a_created_corpus_has_the_requested_values(acme: Client) -> None:
    before, corpus_id = datetime.now(UTC), uuid4()
    made = acme.create_corpus("trials", description="All trials", metadata={"site": "12"}, corpus_id=corpus_id)
    assert (made.id, made.tenant_id, made.name) == (corpus_id, ACME_ID, "trials")
    assert (made.description, made.metadata, made.version) == ("All trials", {"site": "12"}, 1)
    assert made.created_by == "ann@acme"
    assert before <= made.created_at == made.updated_at <= datetime.now(UTC)


def test_a_corpus_is_found_by_its_id(acme: Client) -> None:
    made = acme.create_corpus("trials", description="All trials", metadata={"site": "12"})
    assert acme.get_corpus(made.id) == made


def test_a_corpus_is_found_by_its_name(acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.create_corpus("trials 2")
    assert acme.get_corpus(name="trials") == made


def test_a_corpus_that_never_existed_is_not_found(acme: Client) -> None:
    with pytest.raises(NotFound) as caught:
        acme.get_corpus(uuid4())
    assert caught.value.reason is Reason.CORPUS_NOT_FOUND
    with pytest.raises(NotFound) as caught:
        acme.get_corpus(name="nothing")
    assert caught.value.reason is Reason.CORPUS_NOT_FOUND


def test_two_corpora_of_a_tenant_cannot_have_one_name(acme: Client) -> None:
    first = acme.create_corpus("trials")
    with pytest.raises(AlreadyExists) as caught:
        acme.create_corpus("trials")
    assert caught.value.reason is Reason.CORPUS_EXISTS
    assert list(acme.iter_corpora()) == [first]


def test_two_corpora_of_a_tenant_cannot_have_one_id(acme: Client) -> None:
    first = acme.create_corpus("trials")
    with pytest.raises(AlreadyExists) as caught:
        acme.create_corpus("other", corpus_id=first.id)
    assert caught.value.reason is Reason.CORPUS_EXISTS
    assert list(acme.iter_corpora()) == [first]


def test_corpora_of_two_tenants_may_have_one_name(acme: Client, globex: Client) -> None:
    ours, theirs = acme.create_corpus("trials"), globex.create_corpus("trials")
    assert acme.get_corpus(name="trials") == ours
    assert globex.get_corpus(name="trials") == theirs


def test_an_update_changes_what_it_names_and_nothing_else(acme: Client) -> None:
    old = acme.create_corpus("trials", description="kept", metadata={"keep": "1", "replace": "2", "remove": "3"})
    new = acme.update_corpus(old.id, set_metadata={"replace": "4", "add": "5"}, remove_metadata=["remove"])
    assert new.metadata == {"keep": "1", "replace": "4", "add": "5"}
    assert (new.id, new.tenant_id, new.name, new.description) == (old.id, ACME_ID, "trials", "kept")
    assert (new.created_at, new.created_by, new.version) == (old.created_at, old.created_by, 2)
    assert new.updated_at > old.updated_at
    assert acme.get_corpus(old.id) == new


def test_a_description_can_be_changed_and_emptied(acme: Client) -> None:
    made = acme.create_corpus("trials", description="first")
    assert acme.update_corpus(made.id, description="second").description == "second"
    assert acme.update_corpus(made.id, description="").description == ""
    assert acme.get_corpus(made.id).description == ""


def test_renaming_a_corpus_frees_its_old_name(acme: Client) -> None:
    made = acme.create_corpus("old name")
    acme.update_corpus(made.id, name="new name")
    assert acme.get_corpus(name="new name").id == made.id
    with pytest.raises(NotFound):
        acme.get_corpus(name="old name")
    assert acme.create_corpus("old name").id != made.id


def test_a_corpus_cannot_be_renamed_to_a_taken_name(acme: Client) -> None:
    first, second = acme.create_corpus("first"), acme.create_corpus("second")
    with pytest.raises(AlreadyExists) as caught:
        acme.update_corpus(second.id, name="first", description="changed")
    assert caught.value.reason is Reason.CORPUS_EXISTS
    assert acme.get_corpus(second.id) == second
    assert acme.get_corpus(name="first") == first


def test_an_update_of_another_version_is_refused(acme: Client) -> None:
    made = acme.create_corpus("trials")
    current = acme.update_corpus(made.id, description="somebody's", expected_version=1)
    with pytest.raises(Conflict) as caught:
        acme.update_corpus(made.id, description="mine", expected_version=1)
    assert caught.value.reason is Reason.VERSION_MISMATCH
    assert caught.value.metadata["version"] == "2"
    assert acme.get_corpus(made.id) == current


def test_an_expected_version_of_zero_is_checked_like_any_other(acme: Client) -> None:
    made = acme.create_corpus("trials")
    with pytest.raises(Conflict):
        acme.update_corpus(made.id, description="mine", expected_version=0)


def test_only_one_of_several_updates_that_expect_the_same_version_wins(acme: Client) -> None:
    made = acme.create_corpus("trials")

    def update(number: int) -> bool:
        try:
            acme.update_corpus(made.id, description=str(number), expected_version=1)
        except Conflict:
            return False
        return True

    won = concurrently(8, update)
    assert sum(won) == 1
    assert acme.get_corpus(made.id).description == str(won.index(True))


def test_concurrent_updates_of_a_corpus_lose_nothing(acme: Client) -> None:
    made = acme.create_corpus("trials")
    concurrently(12, lambda number: acme.update_corpus(made.id, set_metadata={f"key {number}": str(number)}))
    found = acme.get_corpus(made.id)
    assert found.metadata == {f"key {number}": str(number) for number in range(12)}
    assert found.version == 13


def test_only_one_of_several_concurrent_callers_gets_a_name(acme: Client) -> None:
    def create(_number: int) -> bool:
        try:
            acme.create_corpus("wanted")
        except AlreadyExists:
            return False
        return True

    assert sum(concurrently(8, create)) == 1
    assert [corpus.name for corpus in acme.iter_corpora()] == ["wanted"]


def test_a_deleted_corpus_is_not_found(acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.delete_corpus(made.id)
    for attempt in (
        lambda: acme.get_corpus(made.id),
        lambda: acme.get_corpus(name="trials"),
        lambda: acme.update_corpus(made.id, name="new"),
        lambda: acme.delete_corpus(made.id),
    ):
        with pytest.raises(NotFound) as caught:
            attempt()
        assert caught.value.reason is Reason.CORPUS_NOT_FOUND


def test_a_deleted_corpus_name_may_be_used_again(acme: Client) -> None:
    first = acme.create_corpus("trials")
    acme.delete_corpus(first.id)
    second = acme.create_corpus("trials")
    assert acme.get_corpus(name="trials").id == second.id != first.id


def test_a_deleted_corpus_id_is_never_used_again(acme: Client) -> None:
    made = acme.create_corpus("trials")
    acme.delete_corpus(made.id)
    with pytest.raises(AlreadyExists) as caught:
        acme.create_corpus("other", corpus_id=made.id)
    assert caught.value.reason is Reason.CORPUS_EXISTS


def test_a_deletion_of_another_version_is_refused(acme: Client) -> None:
    made = acme.create_corpus("trials")
    current = acme.update_corpus(made.id, description="changed")
    with pytest.raises(Conflict) as caught:
        acme.delete_corpus(made.id, expected_version=1)
    assert caught.value.reason is Reason.VERSION_MISMATCH
    assert acme.get_corpus(made.id) == current


def test_the_async_client_does_the_same(server: Running, acme: Client) -> None:
    async def session() -> None:
        async with AsyncClient(server.address, token=ACME) as client:
            made = await client.create_corpus("trials", description="All trials", metadata={"site": "12"})
            new = await client.update_corpus(made.id, set_metadata={"reviewed": "yes"}, remove_metadata=["site"])
            assert new.metadata == {"reviewed": "yes"}
            assert await client.get_corpus(name="trials") == new
            assert [corpus async for corpus in client.iter_corpora()] == [new]
            await client.delete_corpus(made.id)
            with pytest.raises(NotFound) as caught:
                await client.get_corpus(made.id)
            assert caught.value.reason is Reason.CORPUS_NOT_FOUND

    asyncio.run(session())
    assert list(acme.iter_corpora()) == []
