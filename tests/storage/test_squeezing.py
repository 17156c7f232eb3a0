"""Records are compressed before they are sealed and are read back unchanged."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.storage.records import dense, dictionary, squeezed, unsqueezed

SENTENCE = b"The competent authority shall provide information in accordance with the requirements of this Regulation."


@given(
    st.one_of(st.binary(max_size=200), st.builds(lambda unit, times: unit * times, st.binary(max_size=9), st.just(99)))
)
def test_any_record_is_read_back_unchanged(record: bytes) -> None:
    assert unsqueezed(squeezed(record)) == record
    assert unsqueezed(dense(record)) == record
    assert len(squeezed(record)) <= len(record) + 1


def test_a_single_sentence_takes_less_than_half() -> None:
    assert len(squeezed(SENTENCE)) < len(SENTENCE) / 2


def test_the_dictionary_never_changes() -> None:
    """Records that were stored with one dictionary cannot be read with another."""
    assert (
        hashlib.sha256(dictionary()).hexdigest() == "643c19974c2cca3ff82d11a30cd0919c69edaec532bc1c3c15031e80d245b4b6"
    )


@pytest.mark.parametrize(
    "stored", [b"", b"\2" + SENTENCE, b"\1" + SENTENCE, squeezed(SENTENCE)[:-3], squeezed(SENTENCE)[:1]]
)
def test_bytes_that_were_never_compressed_are_damage(stored: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        unsqueezed(stored)
