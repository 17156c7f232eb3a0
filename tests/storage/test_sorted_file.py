from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.storage.sealed_file import PIECE_BYTES, SealedFile, SortedFile


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 2_000))
def test_items_come_sorted_and_without_duplicates_however_little_memory_is_used(
    items: list[bytes], run_bytes: int
) -> None:
    with SortedFile(run_bytes) as file:
        for item in items:
            file.add(item)
        assert list(file) == sorted(set(items))
        assert list(file) == sorted(set(items)), "the file can be read again"


def test_many_runs_are_merged_into_few() -> None:
    items = [number.to_bytes(3, "big") for number in range(3_000)]
    with SortedFile(run_bytes=1_000) as file:
        for item in reversed(items):
            file.add(item)
        assert list(file) == items


def test_an_item_may_be_larger_than_a_piece_of_a_file() -> None:
    items = [bytes([number]) * (2 * PIECE_BYTES + number) for number in (3, 1, 2)]
    with SortedFile(run_bytes=0) as file:
        for item in items:
            file.add(item)
        assert list(file) == sorted(items)


def test_a_sealed_file_can_be_read_from_any_offset() -> None:
    data = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"the end"
    with SealedFile() as file:
        file.write(data)
        for offset in (0, 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, len(data) - 1, len(data), len(data) + 1):
            assert b"".join(file.pieces_from(offset)) == data[offset:]
        assert b"".join(file.pieces_from(5 * PIECE_BYTES)) == b""
