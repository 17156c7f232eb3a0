"""Lists come in pages: every record once, in a stable order, and a page token is valid in its own list only."""

from __future__ import annotations

import base64
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from drillcore import Client, InvalidArgument, Page, Reason
from drillcore_fdb.engine import Transaction
from drillcore_server.kernel import corpus_store as stored_corpora
from drillcore_server.kernel.corpus_store import CORPORA
from drillcore_server.kernel.pages import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from drillcore_server.storage.ids import CorpusId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.servers.running import ACME_ID, Running


def corpora(client: Client, count: int) -> list[str]:
    """Makes corpora with distinct names."""
    return [client.create_corpus(f"corpus {number}").name for number in range(count)]


def refusal(client: Client, token: str) -> Reason | None:
    with pytest.raises(InvalidArgument) as caught:
        client.list_corpora(page_token=token)
    assert caught.value.metadata["field"] == "page_token"
    return caught.value.reason


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 8])
def test_every_corpus_is_on_exactly_one_page(acme: Client, page_size: int) -> None:
    names = corpora(acme, 7)
    listed = [corpus.name for corpus in acme.iter_corpora(page_size=page_size)]
    assert sorted(listed) == names


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 8])
def test_every_tenant_is_on_exactly_one_page(operator: Client, page_size: int) -> None:
    names = [operator.create_tenant(f"tenant {number}").name for number in range(7)]
    assert sorted(tenant.name for tenant in operator.iter_tenants(page_size=page_size)) == names


def test_a_page_has_the_requested_size_and_the_last_page_has_no_token(acme: Client) -> None:
    corpora(acme, 5)
    pages: list[Page[object]] = [acme.list_corpora(page_size=2)]
    while pages[-1].next_page_token:
        pages.append(acme.list_corpora(page_size=2, page_token=pages[-1].next_page_token))
    assert [len(page.items) for page in pages] == [2, 2, 1]


def test_a_page_that_is_just_full_is_the_last(acme: Client) -> None:
    corpora(acme, 3)
    assert acme.list_corpora(page_size=3).next_page_token == ""


def test_the_order_is_the_same_whatever_the_page_size(acme: Client) -> None:
    corpora(acme, 7)
    whole = list(acme.iter_corpora())
    assert list(acme.iter_corpora(page_size=2)) == whole
    assert list(acme.iter_corpora(page_size=3)) == whole


def test_an_empty_list_is_one_empty_page(acme: Client) -> None:
    assert acme.list_corpora() == Page((), "")


def test_deleted_records_are_on_no_page(acme: Client, operator: Client) -> None:
    corpora(acme, 6)
    deleted = list(acme.iter_corpora())[::2]
    for corpus in deleted:
        acme.delete_corpus(corpus.id)
    left = list(acme.iter_corpora(page_size=1))
    assert len(left) == 3
    assert not {corpus.id for corpus in left} & {corpus.id for corpus in deleted}


def test_a_list_goes_on_after_the_record_that_its_token_names_is_deleted(acme: Client) -> None:
    corpora(acme, 4)
    first = acme.list_corpora(page_size=2)
    acme.delete_corpus(first.items[-1].id)
    rest = acme.list_corpora(page_token=first.next_page_token)
    assert len(rest.items) == 2
    assert len({corpus.id for corpus in (*first.items, *rest.items)}) == 4


def test_large_records_are_listed_whole(acme: Client) -> None:
    """Records over 100 kB are stored in several values. A page must neither split nor skip them."""
    metadata = {f"key {number}": "x" * 4_000 for number in range(60)}
    for number in range(3):
        acme.create_corpus(f"large {number}", metadata=metadata)
        acme.create_corpus(f"small {number}")
    listed = list(acme.iter_corpora(page_size=1))
    assert sorted(corpus.name for corpus in listed) == sorted(f"{s} {n}" for s in ("large", "small") for n in range(3))
    assert all(corpus.metadata == (metadata if "large" in corpus.name else {}) for corpus in listed)


def fill(server: Running, client: Client, count: int) -> None:
    """Copies a corpus many times directly in the store, which is faster than many calls."""
    first = client.create_corpus("first")
    root, _ = open_store(server.engine)
    keys = Keyspace(root)

    def work(tr: Transaction) -> None:
        model = stored_corpora.get(tr, keys, TenantId(ACME_ID), CorpusId(first.id))
        for number in range(1, count):
            CORPORA.insert(tr, keys, replace(model, id=CorpusId(uuid4()), name=f"corpus {number}"))

    server.engine.run(work)


def test_the_page_size_has_a_default_and_a_maximum(server: Running, acme: Client) -> None:
    fill(server, acme, PAGE_SIZE_MAX + 1)
    assert len(acme.list_corpora().items) == PAGE_SIZE_DEFAULT
    page = acme.list_corpora(page_size=2**32 - 1)
    assert len(page.items) == PAGE_SIZE_MAX
    assert len(acme.list_corpora(page_token=page.next_page_token).items) == 1


def test_a_token_of_another_list_is_refused(operator: Client, acme: Client, globex: Client) -> None:
    """This holds for tokens of the list of tenants and of the list of a tenant's corpora."""
    corpora(acme, 2)
    assert refusal(acme, operator.list_tenants(page_size=1).next_page_token) is Reason.INVALID_PAGE_TOKEN
    with pytest.raises(InvalidArgument) as caught:
        operator.list_tenants(page_token=acme.list_corpora(page_size=1).next_page_token)
    assert caught.value.reason is Reason.INVALID_PAGE_TOKEN


def test_a_token_of_another_tenants_list_is_refused(acme: Client, globex: Client) -> None:
    corpora(globex, 2)
    assert refusal(acme, globex.list_corpora(page_size=1).next_page_token) is Reason.INVALID_PAGE_TOKEN


def test_a_mangled_token_is_refused(acme: Client) -> None:
    corpora(acme, 2)
    token = acme.list_corpora(page_size=1).next_page_token
    other_first = "B" if token[0] == "A" else "A"
    mangled = [other_first + token[1:], token[:-4], token[1:], token + token, token[::-1], token + "AAAA", "!" + token]
    assert {refusal(acme, wrong) for wrong in mangled} == {Reason.INVALID_PAGE_TOKEN}


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "null",
        "0",
        " ",
        "=",
        "\x00",
        "ünïcödé",
        "a" * 100_000,
        str(UUID(int=7)),
        base64.b64encode(bytes(20)).decode(),
    ],
    ids=lambda token: ascii(token[:20]),
)
def test_a_made_up_token_is_refused(acme: Client, token: str) -> None:
    assert refusal(acme, token) is Reason.INVALID_PAGE_TOKEN
