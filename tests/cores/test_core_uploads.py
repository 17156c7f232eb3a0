"""Uploads of cores that broke off are kept for a while, within bounds, for the caller who began them."""

from __future__ import annotations

from threading import Event, Thread
from uuid import UUID

import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.cores.uploads import PRINCIPAL_UPLOADS_MAX, UPLOADS_MAX, CoreUploads, Upload
from drillcore_server.kernel.errors import Refused
from drillcore_server.storage.ids import CorpusId, PrincipalId
from drillcore_server.storage.sealed_file import SealedFile

CORPUS = CorpusId(UUID(int=7))
ANN, BOB = PrincipalId("ann"), PrincipalId("bob")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def uploads(clock: Clock) -> CoreUploads:
    return CoreUploads(bytes_max=1_000, keep_s=60.0, clock=clock)


def begin(uploads: CoreUploads, name: str = "one", principal: PrincipalId = ANN) -> Upload:
    return uploads.begin(principal, None, CORPUS, name)


def refusal(error: pytest.ExceptionInfo[Refused]) -> Reason:
    return error.value.reason


def test_an_upload_that_broke_off_is_continued(uploads: CoreUploads) -> None:
    first = begin(uploads)
    first.write(b"abc")
    first.leave()
    second = begin(uploads)
    second.write(b"def")
    assert b"".join(second.file.pieces()) == b"abcdef"


def test_an_upload_is_forgotten_after_a_while(uploads: CoreUploads, clock: Clock) -> None:
    first = begin(uploads)
    first.write(b"abc")
    first.leave()
    clock.now += 61.0
    assert begin(uploads).file.size_bytes == 0


def test_a_returning_caller_takes_the_upload_over_from_its_lost_call(
    uploads: CoreUploads,
) -> None:
    first = begin(uploads)
    first.write(b"abc")
    second = begin(uploads)
    with pytest.raises(Refused) as caught:
        first.write(b"xyz")
    assert refusal(caught) is Reason.CANCELLED
    first.leave()
    first.drop()
    second.write(b"def")
    assert b"".join(second.file.pieces()) == b"abcdef"


def test_a_complete_upload_cannot_be_taken_over_until_it_is_left(uploads: CoreUploads) -> None:
    first = begin(uploads)
    first.write(b"abc")
    first.end()
    assert begin(uploads, "two").file.size_bytes == 0
    second = begin(uploads)
    assert second.file.size_bytes == 0
    second.drop()
    first.leave()
    again = begin(uploads)
    assert again.file.size_bytes == 3
    with pytest.raises(Refused) as caught:
        again.write(b"more")
    assert refusal(caught) is Reason.CORE_CHANGED


def test_an_upload_that_is_left_gives_way_to_one_begun_meanwhile(uploads: CoreUploads) -> None:
    first = begin(uploads)
    first.write(b"abc")
    first.end()
    second = begin(uploads)
    second.write(b"x")
    first.leave()
    second.write(b"y")
    assert b"".join(second.file.pieces()) == b"xy"


def test_a_core_has_a_largest_size(uploads: CoreUploads) -> None:
    upload = begin(uploads)
    upload.write(b"0" * 1_000)
    with pytest.raises(Refused) as caught:
        upload.write(b"1")
    assert refusal(caught) is Reason.TOO_LARGE


def test_waiting_uploads_make_room_and_active_ones_do_not(uploads: CoreUploads) -> None:
    waiting = begin(uploads, "waiting")
    waiting.write(b"0" * 1_000)
    waiting.leave()
    first, second = begin(uploads, "first"), begin(uploads, "second")
    first.write(b"0" * 1_000)
    second.write(b"0" * 1_000)
    assert begin(uploads, "waiting").file.size_bytes == 0
    with pytest.raises(Refused) as caught:
        begin(uploads, "third").write(b"0")
    assert refusal(caught) is Reason.TOO_LARGE


def test_the_number_of_uploads_is_bounded(uploads: CoreUploads) -> None:
    for number in range(UPLOADS_MAX):
        begin(uploads, "one", PrincipalId(f"{number}"))
    with pytest.raises(Refused) as caught:
        begin(uploads, "one more")
    assert refusal(caught) is Reason.TOO_LARGE


def test_a_caller_with_many_uploads_does_not_block_other_callers(uploads: CoreUploads) -> None:
    waiting = begin(uploads, "waiting", BOB)
    waiting.write(b"x")
    waiting.leave()
    own = [begin(uploads, f"{number}") for number in range(PRINCIPAL_UPLOADS_MAX)]
    with pytest.raises(Refused) as caught:
        begin(uploads, "one more")
    assert refusal(caught) is Reason.TOO_LARGE
    own[3].leave()
    begin(uploads, "one more")
    assert begin(uploads, "waiting", BOB).file.size_bytes == 1, "the caller's own upload gives way"


def test_an_upload_is_not_taken_over_in_the_middle_of_a_write(uploads: CoreUploads) -> None:
    upload, taken = begin(uploads), Event()

    def take_over() -> None:
        begin(uploads)
        taken.set()

    thread = Thread(target=take_over)

    class Watched(SealedFile):
        def write(self, data: bytes) -> int:
            thread.start()
            assert not taken.wait(0.1)
            return super().write(data)

    upload.kept.file = Watched()
    upload.write(b"x")
    thread.join()
    assert taken.is_set()
