"""The bytes of leaves, of signed messages and of commitments never change, so that old records verify for ever."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid

import pytest

from drillcore_formats.audit.findings import Malformed
from drillcore_formats.audit.leaves import Leaf, commit_to, signed_message

STORE, LOG, RECORD = (uuid.UUID(int=number) for number in (1, 2, 3))
LEAF = Leaf(STORE, LOG, 7, bytes(range(10)), RECORD, b"c" * 32, b"hash", b"s" * 64)


def test_the_bytes_of_a_leaf_never_change() -> None:
    assert LEAF.encode() == (
        b"\1"
        + STORE.bytes
        + LOG.bytes
        + b"\0\0\0\7"
        + bytes(range(10))
        + RECORD.bytes
        + b"c" * 32
        + b"hash"
        + b"s" * 64
    )
    assert Leaf.decode(LEAF.encode()) == LEAF


def test_the_bytes_that_are_signed_never_change() -> None:
    expected = b"drillcore audit record 1\n" + STORE.bytes + LOG.bytes + RECORD.bytes + b"c" * 32
    assert LEAF.signed == signed_message(STORE, LOG, RECORD, b"c" * 32) == expected


def test_the_bytes_of_a_commitment_never_change() -> None:
    assert commit_to(b"salt", b"body") == hashlib.sha256(b"drillcore audit body 1\nsaltbody").digest()


@pytest.mark.parametrize("data", [b"", LEAF.encode()[:-1], LEAF.encode() + b"x", b"\2" + LEAF.encode()[1:]])
def test_bytes_that_are_no_leaf_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Leaf.decode(data)


def test_places_are_ordered_by_incarnation_and_then_versionstamp() -> None:
    earlier = dataclasses.replace(LEAF, incarnation=6, versionstamp=b"\xff" * 10)
    assert earlier.place < LEAF.place < dataclasses.replace(LEAF, versionstamp=b"\1" * 10).place
