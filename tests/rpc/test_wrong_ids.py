"""An id that is no UUID is refused, in every field of every request that takes one."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore import AlreadyExists, Client, InvalidArgument
from drillcore_proto.reasons import Reason
from tests.rpc.rpcs import METHODS, call, path_of, request_of
from tests.rpc.running import ACME_ID, OPERATOR, Running

FIELDS = [
    (method, field.name)
    for method in METHODS
    for field in method.input_type.fields
    if field.name == "id" or field.name.endswith("_id")
]

WRONG_IDS = {
    "a word": "acme",
    "a number": "7",
    "too short": "aaaaaaaa-0000-4000-8000-00000000000",
    "too long": "aaaaaaaa-0000-4000-8000-0000000000011",
    "not hexadecimal": "gggggggg-0000-4000-8000-000000000001",
    "an underscore, which Python takes within numbers": "aaaa_aaa-0000-4000-8000-000000000001",
    "a prefix, which Python takes before numbers": "0xaaaaaa-0000-4000-8000-000000000001",
    "a sign, which Python takes before numbers": "+aaaaaaa-0000-4000-8000-000000000001",
    "Arabic digits, which Python takes in numbers": "\u0661" * 32,
    "a space": " aaaaaaa-0000-4000-8000-000000000001",
    "a null": "\x00aaaaaaa-0000-4000-8000-000000000001",
    "very long": "a" * 1_000_000,
    "a path": "../../etc/passwd",
}

every_field = pytest.mark.parametrize(
    ("method", "field"), FIELDS, ids=[f"{method.name}-{field}" for method, field in FIELDS]
)


@every_field
@pytest.mark.parametrize("wrong", WRONG_IDS.values(), ids=WRONG_IDS.keys())
def test_an_id_that_is_no_uuid_is_refused(shared: Running, method: MethodDescriptor, field: str, wrong: str) -> None:
    content = request_of(method, **{"tenant_id": str(ACME_ID)} if "tenant_id" in _fields(method) else {})
    setattr(content, field, wrong)
    answer = call(shared.address, path_of(method), content.SerializeToString(), token=OPERATOR)
    assert answer.info.reason == Reason.INVALID_ID.name
    assert answer.info.metadata["field"] == field


def _fields(method: MethodDescriptor) -> set[str]:
    return {field.name for field in method.input_type.fields}


def test_no_id_at_all_is_refused_where_one_is_needed(operator: Client, acme: Client) -> None:
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
