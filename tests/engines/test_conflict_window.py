"""The conflict check, compared with a list of all commits that is searched from end to end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_fdb.embedded.conflicts import ConflictWindow

KEEP_S = 5.0
KEYS = [b"", b"a", b"b", b"b\0", b"c"]
RANGES = list(combinations(KEYS, 2))
FEW_KEYS = st.lists(st.sampled_from(KEYS), max_size=2)
SOME_KEYS = FEW_KEYS | FEW_KEYS.map(lambda few: [*few, *(b"z%02d" % number for number in range(20))])
"""Few keys and many: a check of a range handles many keys differently."""
SOME_RANGES = st.lists(st.sampled_from(RANGES), max_size=1)
Ranges = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Commit:
    version: int
    keys: list[bytes]
    ranges: Ranges
    at_s: float

    def writes_into(self, keys: list[bytes], ranges: Ranges) -> bool:
        own = [*self.ranges, *((key, key + b"\0") for key in self.keys)]
        read = [*ranges, *((key, key + b"\0") for key in keys)]
        return any(begin < end_read and begin_read < end for begin, end in own for begin_read, end_read in read)


COMMITS = st.tuples(st.just("commit"), st.lists(st.tuples(SOME_KEYS, SOME_RANGES), min_size=1, max_size=2))
STEPS = st.lists(
    COMMITS
    | st.tuples(st.just("pass"), st.sampled_from([1.0, 3.0, 6.0]))
    | st.sampled_from([("commit", [([b"a"], [])]), ("pass", 6.0), ("reset",)]),
    max_size=20,
)


class Naive:
    """Never forgets a commit, but knows the last version before the window."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.oldest_version = 0

    def forget_old(self, now_s: float) -> None:
        gone = [commit.version for commit in self.commits if commit.at_s < now_s - KEEP_S]
        self.oldest_version = max([self.oldest_version, *gone])

    def conflicts(self, read_version: int, keys: list[bytes], ranges: Ranges) -> bool:
        since = [commit for commit in self.commits if commit.version > read_version]
        return any(commit.writes_into(keys, ranges) for commit in since)


def check_all(window: ConflictWindow, naive: Naive, version: int) -> None:
    """Compares all versions that can be judged: for every single key, every single range, and one of each."""
    assert window.oldest_version == naive.oldest_version, "a transaction becomes too old at another time than promised"
    reads: list[tuple[list[bytes], Ranges]] = [([key], []) for key in KEYS] + [([], [span]) for span in RANGES]
    reads += [([b"c", b"a"], [(b"", b"a")]), ([], [])]
    for read_version in range(naive.oldest_version, version + 1):
        for keys, ranges in reads:
            expected = naive.conflicts(read_version, keys, ranges)
            assert window.conflicts(read_version, keys, ranges) == expected, (read_version, keys, ranges)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_a_transaction_conflicts_exactly_if_its_reads_were_written_since(steps: list[tuple]) -> None:
    window, naive = ConflictWindow(0, KEEP_S), Naive()
    version, now_s = 0, 100.0
    for step in steps:
        match step:
            case "commit", group:
                version += 1
                for keys, ranges in group:
                    window.record(version, keys, ranges, now_s)
                    naive.commits.append(Commit(version, keys, ranges, now_s))
                window.forget_old(now_s)
                naive.forget_old(now_s)
            case "pass", seconds:
                now_s += seconds
            case ("reset",):
                window.reset(version)
                naive.oldest_version = version
    check_all(window, naive, version)


def test_old_commits_are_forgotten_so_that_the_window_does_not_grow() -> None:
    window = ConflictWindow(0, KEEP_S)
    for version in range(1, 1_001):
        window.record(version, [b"%d" % version], [(b"a", b"b")], float(version))
        window.forget_old(float(version))
    assert window.oldest_version == 1_000 - KEEP_S - 1
    assert len(window._written) == len(window._last_version) == window._range_writes == KEEP_S + 1
