"""An id that is no UUID is refused, in every field of every request that takes one."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.rpc.error_details_pb2 import ErrorInfo

from drillcore import AlreadyExists, Client, InvalidArgument
from drillcore_proto.reasons import Reason
from tests.support.servers.rpcs import METHODS, call, fields_of, path_of, request_of
from tests.support.servers.running import ACME_ID, OPERATOR, Running

OF_ANY_FORM = {"source_id", "request_id", "session_id", "core_id", "upload_id"}
"""Ids that callers choose in any form."""
FIELDS = [
    (method, field.name)
    for method in METHODS
    for field in fields_of(method).values()
    if re.fullmatch("(.*_)?ids?", field.name) and field.name not in OF_ANY_FORM
]

WRONG_IDS = {
    "a word": "acme",
    "a number": "7",
    "too short": "aaaaaaaa-0000-4000-8000-00000000000",
    "too long": "aaaaaaaa-0000-4000-8000-0000000000011",
    "not hexadecimal": "gggggggg-0000-4000-8000-000000000001",
    "a null": "\x00aaaaaaa-0000-4000-8000-000000000001",
    "very long": "a" * 1_000_000,
    "a path": "../../etc/passwd",
}

TAKEN_BY_PYTHON = {
    "underscore": "aaaa_aaa-0000-4000-8000-000000000001",
    "prefix": "0xaaaaaa-0000-4000-8000-000000000001",
    "sign": "+aaaaaaa-0000-4000-8000-000000000001",
    "space": " aaaaaaa-0000-4000-8000-000000000001",
    "Arabic digits": "\u0661" * 32,
}

every_field = pytest.mark.parametrize(
    ("method", "field"), FIELDS, ids=[f"{method.name}-{field}" for method, field in FIELDS]
)


def ask(server: Running, method: MethodDescriptor, field: str, wrong: str) -> ErrorInfo:
    fields = fields_of(method)
    given = {"tenant_id": str(ACME_ID)} if "tenant_id" in fields else {}
    repeated = fields[field].is_repeated
    request = request_of(method, **{**given, field: [str(uuid4()), wrong] if repeated else wrong})
    return call(server.address, path_of(method), request.SerializeToString(), token=OPERATOR).info


@every_field
def test_an_id_that_is_no_uuid_is_refused(shared: Running, method: MethodDescriptor, field: str) -> None:
    for case, wrong in WRONG_IDS.items():
        info = ask(shared, method, field, wrong)
        assert (info.reason, info.metadata["field"]) == (Reason.INVALID_ID.name, field), case


@pytest.mark.parametrize("wrong", TAKEN_BY_PYTHON.values(), ids=TAKEN_BY_PYTHON.keys())
def test_an_id_that_only_python_accepts_as_a_uuid_is_refused(shared: Running, wrong: str) -> None:
    """Python's UUID parses its digits as a number, and so accepts everything that may stand in a number."""
    for method, field in FIELDS:
        info = ask(shared, method, field, wrong)
        assert (info.reason, info.metadata["field"]) == (Reason.INVALID_ID.name, field), f"{method.name} {field}"


def test_a_missing_id_is_refused_where_an_id_is_needed(operator: Client, acme: Client) -> None:
    for attempt in (
        lambda: operator.get_tenant(""),
        lambda: operator.update_tenant(""),
        lambda: operator.delete_tenant(""),
        lambda: acme.get_corpus(""),
        lambda: acme.update_corpus(""),
        lambda: acme.delete_corpus(""),
    ):
        with pytest.raises(InvalidArgument) as caught:
            attempt()
        assert caught.value.reason is Reason.INVALID_ID
        assert caught.value.metadata["field"] == "id"


def test_a_request_with_neither_id_nor_name_is_refused(shared: Running) -> None:
    answer = call(shared.address, "/drillcore_proto.v1.TenantService/GetTenant", b"", token=OPERATOR)
    assert answer.info.reason == Reason.INVALID_ID.name


def test_an_id_in_capitals_is_the_same_id(operator: Client) -> None:
    made = operator.create_tenant("acme", tenant_id=str(ACME_ID).upper())
    assert made.id == ACME_ID
    assert operator.get_tenant(str(ACME_ID)) == made
    with pytest.raises(AlreadyExists):
        operator.create_tenant("other", tenant_id=str(ACME_ID))
