"""JSON is read strictly and written in canonical form. Base64 has a single form too."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.audit.encoding import (
    canonical_json,
    canonical_record,
    from_base64,
    parse_count,
    parse_id,
    parse_json,
    parse_object,
    to_base64,
)
from drillcore_formats.audit.findings import Malformed
from tests.support.paths import GOLDEN_FILES

VECTORS = json.loads((GOLDEN_FILES / "rfc8785.json").read_text())["files"]

# From RFC 8785, appendix B.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555554": "333333333.33333325",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("name", VECTORS)
def test_the_rfcs_own_files_are_written_as_it_says(name: str) -> None:
    parsed = parse_json(VECTORS[name]["input"], name, floats=True)
    assert canonical_json(parsed) == VECTORS[name]["output"].encode()


@pytest.mark.parametrize("bits", NUMBERS)
def test_the_rfcs_own_numbers_are_written_as_it_says(bits: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == NUMBERS[bits].encode()


@given(values)
def test_the_canonical_form_is_that_of_another_implementation(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)
    assert canonical_json(parse_json(canonical_json(value), "it", floats=True)) == canonical_json(value)


plain_values = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(2**53) + 1, 2**53 - 1),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain_values, max_size=5))
def test_the_faster_writer_for_records_writes_the_same(value: Any) -> None:
    assert canonical_record(value) == canonical_json(value)


def test_names_are_sorted_by_utf_16_code_units() -> None:
    value = {"\uffff": 1, "\U00010000": 2}
    assert canonical_record(value) == canonical_json(value) == '{"\U00010000":2,"\uffff":1}'.encode()


def test_a_lone_surrogate_is_refused_by_the_faster_writer_too() -> None:
    with pytest.raises(Malformed):
        canonical_record({"text": "\ud800"})


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53, -(2**53), {1, 2}, b"x", "\ud800", {"\udc00": 1}])
def test_a_value_without_a_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(Malformed):
        canonical_json(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{} {}",
        '{"a": 1, "a": 1}',
        '[{"a": {"b": 1, "b": 2}}]',
        "NaN",
        "-Infinity",
        "1.0",
        "1e3",
        "9007199254740992",
        "-" + "9" * 5_000,
        "[" * 100_000,
        b"\xff",
    ],
)
def test_ambiguous_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(Malformed, match=r"^the file "):
        parse_json(text, "the file")


@pytest.mark.parametrize("text", ["[]", "null", '"{}"', "3"])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_object(text, "it")


@pytest.mark.parametrize("value", [None, 5, "", "x", "5707E000-0000-4000-8000-000000000001", "5707e0"])
def test_a_value_that_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(Malformed, match="the id of the store is not a UUID"):
        parse_id(value, "the store")


@pytest.mark.parametrize("value", [None, True, -1, 1.0, "1"])
def test_a_value_that_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        parse_count(value, "it")


@given(st.binary(max_size=40))
def test_base64_has_one_form(data: bytes) -> None:
    text = to_base64(data)
    assert from_base64(text, "it", len(data)) == data
    with pytest.raises(Malformed):
        from_base64(text, "it", len(data) + 1)


@pytest.mark.parametrize("text", [None, b"AA==", "AA", "AA=", "AB==", "AAB=", "AA==\n", " AA==", "AA==AA==", "Ä==="])
def test_other_forms_of_base64_are_refused(text: object) -> None:
    with pytest.raises(Malformed):
        from_base64(text, "it")
