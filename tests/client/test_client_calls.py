"""What the clients send and return. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import drillcore
from drillcore import AsyncClient, Client, Corpus, LegalHold, Trimmed
from drillcore_proto.reasons import API_VERSION_HEADER, REASON_HEADER, REQUEST_ID_HEADER
from drillcore_proto.v1.corpora_pb2 import TrimCorpusResponse
from tests.support.servers.in_memory_server import Peer, running

TENANT = uuid.UUID("11111111-1111-1111-1111-111111111111")

Do = Callable[..., Any]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def sync(address: str, work: Callable[[Client], Any], **options: Any) -> Any:
    with Client(address, **options) as client:
        return work(client)


def asynchronous(address: str, work: Callable[[AsyncClient], Any], **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, **options) as client:
            return await work(client)

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    """Makes a call to the peer and returns its result."""
    return lambda work, **options: request.param(peer.address, work, **options)


def test_a_created_corpus_comes_back_with_every_field(do: Do) -> None:
    corpus = do(
        lambda client: client.create_corpus("trials", description="Phase II", metadata={"a": "b"}, tenant_id=TENANT)
    )
    assert corpus == Corpus(
        id=corpus.id,
        tenant_id=TENANT,
        name="trials",
        description="Phase II",
        metadata={"a": "b"},
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        created_by="test",
        updated_at=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC),
        version=1,
    )
    assert isinstance(corpus.id, uuid.UUID)


def test_a_corpus_is_found_by_id_and_by_name(do: Do) -> None:
    corpus = do(lambda client: client.create_corpus("trials", tenant_id=TENANT))
    assert do(lambda client: client.get_corpus(corpus.id)) == corpus
    assert do(lambda client: client.get_corpus(str(corpus.id))) == corpus
    assert do(lambda client: client.get_corpus(name="trials")) == corpus


def test_an_update_changes_only_the_named_fields(do: Do) -> None:
    corpus = do(
        lambda client: client.create_corpus(
            "trials", description="old", metadata={"a": "1", "b": "2"}, tenant_id=TENANT
        )
    )
    updated = do(lambda client: client.update_corpus(corpus.id, set_metadata={"c": "3"}, remove_metadata=["a"]))
    assert (updated.name, updated.description, updated.metadata) == ("trials", "old", {"b": "2", "c": "3"})
    assert updated.version == 2


def test_an_empty_description_is_sent(do: Do) -> None:
    corpus = do(lambda client: client.create_corpus("trials", description="old", tenant_id=TENANT))
    assert do(lambda client: client.update_corpus(corpus.id, description="")).description == ""


def test_a_deleted_corpus_is_gone(do: Do, peer: Peer) -> None:
    corpus = do(lambda client: client.create_corpus("trials", tenant_id=TENANT))
    assert do(lambda client: client.delete_corpus(corpus.id)) is None
    assert peer.records == {}


def test_a_policy_and_a_hold_come_back_unchanged(do: Do) -> None:
    corpus = do(lambda client: client.create_corpus("trials", tenant_id=TENANT))
    assert (corpus.retention_days, corpus.legal_hold) == (None, None)
    at = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    held = do(lambda client: client.update_corpus(corpus.id, retention_days=30, hold_reason="a case"))
    assert (held.retention_days, held.legal_hold) == (30, LegalHold(True, "a case", "test", at))
    released = do(lambda client: client.update_corpus(corpus.id, keep_everything=True, release_reason="settled"))
    assert (released.retention_days, released.legal_hold) == (None, LegalHold(False, "settled", "test", at))


@pytest.mark.parametrize(
    "both",
    [{"retention_days": 3, "keep_everything": True}, {"hold_reason": "a", "release_reason": "b"}],
    ids=["retention", "hold"],
)
def test_arguments_that_exclude_each_other_are_refused_before_any_call(
    do: Do, peer: Peer, both: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        do(lambda client: client.update_corpus(TENANT, **both))
    assert peer.seen == []


def test_a_trim_returns_what_it_removed(do: Do, peer: Peer) -> None:
    peer.trims = [TrimCorpusResponse(oldest_revision=7, records_removed=12, finished=True)]
    assert do(lambda client: client.trim_corpus(TENANT)) == Trimmed(7, 12, True)


def test_a_tenant_is_created_found_changed_and_deleted(do: Do, peer: Peer) -> None:
    tenant = do(lambda client: client.create_tenant("acme", metadata={"region": "eu"}, tenant_id=TENANT))
    assert (tenant.id, tenant.name, tenant.metadata) == (TENANT, "acme", {"region": "eu"})
    assert do(lambda client: client.get_tenant(TENANT)) == do(lambda client: client.get_tenant(name="acme")) == tenant
    assert do(lambda client: client.update_tenant(TENANT, name="apex")).name == "apex"
    do(lambda client: client.delete_tenant(TENANT))
    assert peer.records == {}


def test_the_server_describes_itself(do: Do) -> None:
    info = do(lambda client: client.server_info())
    assert (info.version, info.api_version, info.engine, info.tenant_id) == ("9.8.7", "1.5", "embedded", None)


def test_a_page_has_the_token_of_the_next(do: Do) -> None:
    for name in "abc":
        do(lambda client, name=name: client.create_tenant(name))
    page = do(lambda client: client.list_tenants(page_size=2))
    assert [tenant.name for tenant in page.items] == ["a", "b"]
    rest = do(lambda client: client.list_tenants(page_size=2, page_token=page.next_page_token))
    assert ([tenant.name for tenant in rest.items], rest.next_page_token) == (["c"], "")


def test_iteration_goes_through_all_pages(peer: Peer) -> None:
    async def names() -> list[str]:
        async with AsyncClient(peer.address) as client:
            return [corpus.name async for corpus in client.iter_corpora(page_size=2)]

    with Client(peer.address, tenant_id=TENANT) as client:
        for name in "abcde":
            client.create_corpus(name)
        peer.seen.clear()
        assert [corpus.name for corpus in client.iter_corpora(page_size=2)] == list("abcde")
        assert len(peer.seen) == len(set(peer.request_ids())) == 3
        assert list(client.iter_tenants()) == []
    assert asyncio.run(names()) == list("abcde")


def test_every_call_carries_token_version_and_a_request_id_of_its_own(do: Do, peer: Peer) -> None:
    do(lambda client: client.server_info(), token="secret")
    do(lambda client: client.server_info(), token="secret")
    first, second = (metadata for _, metadata in peer.seen)
    assert first["authorization"] == "Bearer secret"
    assert first[API_VERSION_HEADER] == "1.5"
    assert uuid.UUID(first[REQUEST_ID_HEADER]) != uuid.UUID(second[REQUEST_ID_HEADER])


def test_a_given_request_id_is_sent(do: Do, peer: Peer) -> None:
    do(lambda client: client.create_tenant("acme", request_id="my-request"))
    assert peer.request_ids() == ["my-request"]


@pytest.mark.parametrize("request_id", ["", "two\nlines", "größe"])
def test_a_request_id_that_cannot_be_sent_is_refused(do: Do, request_id: str) -> None:
    with pytest.raises(ValueError, match="request id"):
        do(lambda client: client.server_info(request_id=request_id))


def test_the_default_tenant_is_used_unless_the_call_names_one(do: Do, peer: Peer) -> None:
    second_tenant = uuid.uuid4()
    do(lambda client: client.create_corpus("one"), tenant_id=TENANT)
    do(lambda client: client.create_corpus("two", tenant_id=second_tenant), tenant_id=TENANT)
    assert [request.tenant_id for request in peer.requests] == [str(TENANT), str(second_tenant)]


def test_a_get_needs_either_an_id_or_a_name(do: Do, peer: Peer) -> None:
    with pytest.raises(TypeError, match="either an id or name="):
        do(lambda client: client.get_corpus())
    with pytest.raises(TypeError, match="either an id or name="):
        do(lambda client: client.get_tenant(TENANT, name="acme"))
    assert peer.seen == []


def test_calls_of_a_closed_client_are_refused(peer: Peer) -> None:
    client = Client(peer.address)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.server_info()

    async def use_after_close() -> None:
        client = AsyncClient(peer.address)
        await client.close()
        await client.server_info()

    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(use_after_close())


def test_an_async_client_may_be_made_outside_the_event_loop(peer: Peer) -> None:
    client = AsyncClient(peer.address)

    async def ask() -> str:
        async with client:
            return (await client.server_info()).version

    assert asyncio.run(ask()) == "9.8.7"


def test_both_clients_have_the_same_methods_with_the_same_arguments_and_documentation() -> None:
    names = {name for name in {*dir(Client), *dir(AsyncClient)} if not name.startswith("_")}
    assert {"create_corpus", "iter_corpora", "close", "from_settings"} <= names
    for name in names:
        method, awaited = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(method) == inspect.signature(awaited), name
        assert inspect.getdoc(method) == inspect.getdoc(awaited) != "", name


def test_methods_show_their_arguments(peer: Peer) -> None:
    with Client(peer.address) as client:
        assert list(inspect.signature(client.get_tenant).parameters) == ["tenant_id", "name", "request_id", "timeout_s"]
    assert drillcore.Client.get_tenant.__doc__ == "The tenant with this id or name. Raises NotFound."


def test_a_reason_in_any_language_is_sent_with_every_call(do: Do, peer: Peer) -> None:
    do(lambda client: client.list_corpora(), reason="Prüfung § 11.10(e)")
    assert peer.seen[-1][1][REASON_HEADER] == "Prüfung § 11.10(e)".encode()


def test_no_reason_is_sent_unless_given(do: Do, peer: Peer) -> None:
    do(lambda client: client.list_corpora())
    assert REASON_HEADER not in peer.seen[-1][1]
