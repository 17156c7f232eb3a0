"""If any single byte of a record's line is changed, the export is refused."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.audit.exported import verify_export
from drillcore_formats.audit.proofs import verify_proof
from tests.support.data.audit_logs import make_log, written

LOG = make_log(5)
EXPORT = written(LOG.export())
FIRST_RECORD = EXPORT.index(b"\n") + 1
SELECTION = written(LOG.selection([1, 3]))
PROOF = LOG.proof(3).encode()
SPACE = b" \t\r\n"


def flipped(data: bytes, place: int, change: int) -> bytes:
    return data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]


def says_the_same(data: bytes, place: int, change: int) -> bool:
    """Whether the changed bytes are the same JSON: white space between tokens may differ."""
    return data[place] in SPACE and data[place] ^ change in SPACE


@given(st.integers(FIRST_RECORD, len(EXPORT) - 1), st.integers(1, 255))
def test_a_changed_byte_of_an_export_is_found(place: int, change: int) -> None:
    report = verify_export(io.BytesIO(flipped(EXPORT, place, change)), LOG.pins)
    assert not report.ok or says_the_same(EXPORT, place, change)


@given(st.integers(SELECTION.index(b"\n") + 1, len(SELECTION) - 1), st.integers(1, 255))
def test_a_changed_byte_of_a_selection_is_found(place: int, change: int) -> None:
    report = verify_export(io.BytesIO(flipped(SELECTION, place, change)), LOG.pins)
    assert not report.ok or says_the_same(SELECTION, place, change)


@given(st.integers(0, len(PROOF) - 1), st.integers(1, 255))
def test_a_changed_byte_of_a_proof_is_found(place: int, change: int) -> None:
    assert not verify_proof(flipped(PROOF, place, change).decode(errors="replace"), LOG.pins).ok


@given(st.binary(max_size=300))
def test_no_input_makes_the_verifier_crash(data: bytes) -> None:
    assert not verify_export(io.BytesIO(data), LOG.pins).ok
    assert not verify_proof(data.decode(errors="replace"), LOG.pins).ok
    head = EXPORT[:FIRST_RECORD]
    assert not verify_export(io.BytesIO(head + data), LOG.pins).ok
