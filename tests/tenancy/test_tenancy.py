"""A tenant sees only its own records: those of other tenants are not found by any name."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore import Client, InvalidArgument, NotFound, PermissionDenied, Reason
from tests.support.servers.rpcs import (
    CORPUS_METHODS,
    FABRIC_METHODS,
    KNOWLEDGE_METHODS,
    TENANT_METHODS,
    RawAnswer,
    call,
    fields_of,
    name_of,
    path_of,
    request_of,
)
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, OPERATOR, Running

SECRET = "globex-secret-corpus"
every_corpus_method = pytest.mark.parametrize("method", CORPUS_METHODS, ids=name_of)
every_method_in_a_tenant = pytest.mark.parametrize(
    "method", [*CORPUS_METHODS, *KNOWLEDGE_METHODS, *FABRIC_METHODS], ids=name_of
)
every_tenant_method = pytest.mark.parametrize("method", TENANT_METHODS, ids=name_of)


def ask(server: Running, token: str, method: MethodDescriptor, **fields: Any) -> RawAnswer:
    known = {name: value for name, value in fields.items() if name in fields_of(method)}
    return call(server.address, path_of(method), request_of(method, **known).SerializeToString(), token=token)


@every_method_in_a_tenant
def test_another_tenants_id_is_not_found(server: Running, globex: Client, method: MethodDescriptor) -> None:
    theirs = globex.create_corpus(SECRET, description=SECRET)
    answer = ask(server, ACME, method, tenant_id=str(GLOBEX_ID), id=str(theirs.id))
    assert answer.info.reason == Reason.TENANT_NOT_FOUND.name
    assert SECRET not in repr(answer)
    assert list(globex.iter_corpora()) == [theirs]


@every_method_in_a_tenant
def test_another_tenant_and_an_unknown_tenant_get_the_same_refusal(
    server: Running, globex: Client, method: MethodDescriptor
) -> None:
    nobody, corpus = uuid4(), str(globex.create_corpus(SECRET).id)
    real = ask(server, ACME, method, tenant_id=str(GLOBEX_ID), id=corpus)
    unreal = ask(server, ACME, method, tenant_id=str(nobody), id=corpus)
    assert (real.code, real.info.reason) == (unreal.code, unreal.info.reason)
    assert real.details.replace(str(GLOBEX_ID), "X") == unreal.details.replace(str(nobody), "X")


@every_corpus_method
def test_another_tenants_corpus_id_is_not_found_in_a_callers_own_tenant(
    server: Running, globex: Client, method: MethodDescriptor
) -> None:
    theirs = globex.create_corpus(SECRET, description=SECRET)
    for own in ("", str(ACME_ID)):
        answer = ask(server, ACME, method, tenant_id=own, id=str(theirs.id))
        if method.name not in {"CreateCorpus", "ListCorpora"}:  # these name no existing corpus
            assert answer.info.reason == Reason.CORPUS_NOT_FOUND.name
        assert SECRET not in repr(answer)
    assert list(globex.iter_corpora()) == [theirs]


def test_another_tenants_corpus_is_not_found_by_its_name(acme: Client, globex: Client) -> None:
    globex.create_corpus(SECRET)
    with pytest.raises(NotFound) as caught:
        acme.get_corpus(name=SECRET)
    assert caught.value.reason is Reason.CORPUS_NOT_FOUND
    with pytest.raises(NotFound) as caught:
        acme.get_corpus(name=SECRET, tenant_id=GLOBEX_ID)
    assert caught.value.reason is Reason.TENANT_NOT_FOUND


def test_a_name_or_id_that_another_tenant_uses_is_free(acme: Client, globex: Client) -> None:
    """Otherwise a refusal would reveal that it exists."""
    theirs = globex.create_corpus(SECRET)
    ours = acme.create_corpus(SECRET, corpus_id=theirs.id)
    assert acme.get_corpus(theirs.id) == ours
    assert globex.get_corpus(theirs.id) == theirs


def test_a_tenants_list_holds_its_own_corpora_only(acme: Client, globex: Client) -> None:
    ours = [acme.create_corpus("ours")]
    theirs = [globex.create_corpus("theirs 1"), globex.create_corpus("theirs 2")]
    assert list(acme.iter_corpora()) == ours
    assert sorted(globex.iter_corpora(), key=lambda corpus: corpus.name) == theirs


def test_a_tenant_may_name_itself(acme: Client) -> None:
    made = acme.create_corpus("ours", tenant_id=ACME_ID)
    assert acme.get_corpus(made.id, tenant_id=ACME_ID) == made


@every_tenant_method
def test_tenants_are_for_operators_only(server: Running, acme: Client, method: MethodDescriptor) -> None:
    for tenant_id in (ACME_ID, GLOBEX_ID):
        answer = ask(server, ACME, method, id=str(tenant_id))
        assert answer.info.reason == Reason.PERMISSION_DENIED.name
        assert "globex" not in repr(answer)


def test_a_refused_change_of_tenants_has_no_effect(operator: Client, acme: Client) -> None:
    before = list(operator.iter_tenants())
    for attempt in (
        lambda: acme.create_tenant("mine"),
        lambda: acme.update_tenant(ACME_ID, name="mine"),
        lambda: acme.delete_tenant(GLOBEX_ID),
    ):
        with pytest.raises(PermissionDenied):
            attempt()
    assert list(operator.iter_tenants()) == before


@every_method_in_a_tenant
def test_an_operator_must_name_the_tenant(server: Running, operator: Client, method: MethodDescriptor) -> None:
    answer = ask(server, OPERATOR, method)
    assert answer.info.reason == Reason.TENANT_REQUIRED.name
    assert answer.info.metadata["field"] == "tenant_id"


def test_an_operator_may_act_in_any_tenant(operator: Client, acme: Client) -> None:
    made = operator.create_corpus("trials", tenant_id=ACME_ID)
    assert made.created_by == "root"
    assert acme.get_corpus(name="trials") == made
    operator.delete_corpus(made.id, tenant_id=ACME_ID)
    assert list(acme.iter_corpora()) == []


def test_the_client_of_an_operator_may_be_configured_for_a_tenant(server: Running, acme: Client) -> None:
    with server.client(tenant_id=ACME_ID) as client:
        made = client.create_corpus("trials")
    assert acme.get_corpus(name="trials") == made


@every_corpus_method
def test_a_corpus_is_not_found_in_another_tenant_by_an_operator(
    server: Running, globex: Client, method: MethodDescriptor
) -> None:
    theirs = globex.create_corpus(SECRET)
    answer = ask(server, OPERATOR, method, tenant_id=str(ACME_ID), id=str(theirs.id))
    if method.name not in {"CreateCorpus", "ListCorpora"}:
        assert answer.info.reason == Reason.CORPUS_NOT_FOUND.name
    assert SECRET not in repr(answer)


@every_method_in_a_tenant
def test_the_token_of_a_deleted_tenant_finds_nothing(
    server: Running, operator: Client, acme: Client, method: MethodDescriptor
) -> None:
    operator.delete_tenant(ACME_ID)
    assert ask(server, ACME, method).info.reason == Reason.TENANT_NOT_FOUND.name


@every_method_in_a_tenant
def test_the_token_of_a_tenant_that_does_not_exist_yet_finds_nothing(server: Running, method: MethodDescriptor) -> None:
    assert ask(server, ACME, method).info.reason == Reason.TENANT_NOT_FOUND.name


def test_a_repeated_write_is_not_answered_once_the_tenant_is_deleted(operator: Client, acme: Client) -> None:
    made = acme.create_corpus("trials", request_id="one")
    acme.delete_corpus(made.id)
    operator.delete_tenant(ACME_ID)
    with pytest.raises(NotFound) as caught:
        acme.create_corpus("trials", request_id="one")
    assert caught.value.reason is Reason.TENANT_NOT_FOUND


def test_the_server_tells_callers_who_they_are(operator: Client, acme: Client) -> None:
    assert (acme.server_info().principal, acme.server_info().tenant_id) == ("ann@acme", ACME_ID)
    assert (operator.server_info().principal, operator.server_info().tenant_id) == ("root", None)


def test_a_malformed_tenant_id_is_invalid_rather_than_missing(acme: Client) -> None:
    with pytest.raises(InvalidArgument) as caught:
        acme.list_corpora(tenant_id="globex")
    assert caught.value.reason is Reason.INVALID_ID
