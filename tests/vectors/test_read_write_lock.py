"""The read-write lock: readers share it, a writer has it alone, and no thread waits for ever."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from drillcore_server.vectors.hnsw_graph import ReadWriteLock


def test_no_thread_reads_while_another_writes() -> None:
    lock, state = ReadWriteLock(), [0, 0]

    def read() -> None:
        for _ in range(1_000):
            with lock.reading():
                assert state[0] == state[1]

    def write() -> None:
        for _ in range(1_000):
            with lock.writing():
                state[0] += 1
                time.sleep(0)  # lets other threads run
                state[1] += 1

    with ThreadPoolExecutor(6) as threads:
        for future in [threads.submit(work) for work in (read, write, read, write, read, read)]:
            future.result()
    assert state == [2_000, 2_000]


def test_readers_hold_the_lock_together() -> None:
    lock, both = ReadWriteLock(), threading.Barrier(2)

    def read() -> None:
        with lock.reading():
            both.wait(timeout=30)

    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(read), threads.submit(read)]:
            future.result()


def test_a_writer_gets_its_turn_among_readers_that_never_pause() -> None:
    lock, written = ReadWriteLock(), threading.Event()

    def read() -> None:
        while not written.is_set():
            with lock.reading():
                pass

    def write() -> None:
        for _ in range(200):
            with lock.writing():
                pass
        written.set()

    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(read) for _ in range(3)]
        threads.submit(write).result(timeout=60)
        for future in reading:
            future.result(timeout=60)


def test_a_reader_waits_for_one_turn_of_a_writer_that_never_pauses() -> None:
    lock, stop, turns_taken = ReadWriteLock(), threading.Event(), [0]

    def write() -> None:
        while not stop.is_set():
            with lock.writing():
                turns_taken[0] += 1
                time.sleep(0.001)  # so that the reader meets a writer

    def waited() -> int:
        before = turns_taken[0]
        with lock.reading():
            return turns_taken[0] - before

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            assert statistics.median(waited() for _ in range(100)) <= 2
        finally:
            stop.set()
        writing.result(timeout=60)
