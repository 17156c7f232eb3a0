"""Listings of tenants and corpora stop after as many stored records as one transaction reads in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from drillcore import Client, NotFound
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access
from tests.support.servers.people import refused
from tests.support.servers.running import ACME_ID, GLOBEX_ID

DELETED = 9
KEPT = 3


@pytest.fixture(params=[("LISTED_KEYS_MAX", 2), ("LISTED_BYTES_MAX", 100)], ids=["keys", "bytes"])
def little_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, value = request.param
    monkeypatch.setattr(f"drillcore_server.kernel.pages.{limit}", value)


def ids_of_pages(read: Callable[[str], Any]) -> list[list[UUID]]:
    """The ids on each page, up to the end of the listing."""
    page = read("")
    pages = [[item.id for item in page.items]]
    while page.next_page_token:
        page = read(page.next_page_token)
        pages.append([item.id for item in page.items])
    return pages


@pytest.mark.usefixtures("little_at_once")
def test_a_page_of_tenants_looks_at_few_deleted_ones_and_the_next_goes_on(operator: Client) -> None:
    kept = {operator.create_tenant(f"kept {number}").id for number in range(KEPT)}
    for number in range(DELETED):
        operator.delete_tenant(operator.create_tenant(f"deleted {number}").id)
    pages = ids_of_pages(lambda token: operator.list_tenants(page_token=token))
    assert [id_ for page in pages for id_ in page] == sorted(kept)
    assert len(pages) > DELETED / 2
    assert [tenant.id for tenant in operator.iter_tenants()] == sorted(kept)


@pytest.mark.usefixtures("little_at_once")
def test_a_page_of_corpora_looks_at_few_deleted_ones_and_the_next_goes_on(acme: Client) -> None:
    kept = {acme.create_corpus(f"kept {number}").id for number in range(KEPT)}
    for number in range(DELETED):
        acme.delete_corpus(acme.create_corpus(f"deleted {number}").id)
    pages = ids_of_pages(lambda token: acme.list_corpora(page_token=token))
    assert [id_ for page in pages for id_ in page] == sorted(kept)
    assert len(pages) > DELETED / 2


def shared(operator: Client, globex: Client, name: str, corpus_id: UUID | None = None) -> UUID:
    made = globex.create_corpus(name, corpus_id=corpus_id or uuid4())
    return operator.update_corpus(made.id, tenant_id=GLOBEX_ID, share_with=[ACME_ID]).id


@pytest.mark.usefixtures("little_at_once")
def test_a_shared_corpus_is_listed_though_a_deleted_one_has_its_id(
    operator: Client, acme: Client, globex: Client
) -> None:
    ids = sorted(uuid4() for _ in range(DELETED))
    for number, id_ in enumerate(ids):
        acme.delete_corpus(acme.create_corpus(f"deleted {number}", corpus_id=id_).id)
        shared(operator, globex, f"rules {number}", id_)
    assert [corpus.id for corpus in acme.iter_corpora()] == ids


def test_a_shared_corpus_is_found_by_its_name_among_others(operator: Client, acme: Client, globex: Client) -> None:
    for number in range(KEPT):
        acme.create_corpus(f"own {number}")
        shared(operator, globex, f"rules {number}")
    wanted = shared(operator, globex, "the rules")
    globex.create_corpus("not shared")
    assert acme.get_corpus(name="the rules").id == wanted
    for name in ("not shared", "nothing"):
        with pytest.raises(NotFound):
            acme.get_corpus(name=name)


def test_an_own_corpus_hides_a_shared_one_of_its_id_from_a_search_by_name(
    operator: Client, acme: Client, globex: Client
) -> None:
    hidden = shared(operator, globex, "the rules")
    acme.create_corpus("mine", corpus_id=hidden)
    with pytest.raises(NotFound):
        acme.get_corpus(name="the rules")


def test_a_name_is_not_sought_among_too_many_shared_corpora(
    operator: Client, acme: Client, globex: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SHARED_NAMES_MAX", 2)
    for number in range(3):
        shared(operator, globex, f"rules {number}")
    mine = acme.create_corpus("mine").id
    assert acme.get_corpus(name="mine").id == mine
    with refused(Reason.TOO_LARGE):
        acme.get_corpus(name="rules 1")
