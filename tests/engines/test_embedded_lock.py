"""Only one process at a time has a data directory. The others are told which process has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drillcore_fdb.embedded import EmbeddedEngine, EmbeddedSettings, compact, verify
from drillcore_fdb.errors import StoreCorruptError, StoreInUseError
from tests.support.processes.killed import process
from tests.support.stores.stores import opened

HOLD = """
import sys
from pathlib import Path
from drillcore_fdb.embedded import EmbeddedEngine, EmbeddedSettings
engine = EmbeddedEngine.open(EmbeddedSettings(path=Path(sys.argv[1])))
engine.run(lambda tr: tr.set(b"held", b"yes"))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_open_in_the_same_process_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        with pytest.raises(StoreInUseError, match=rf"{tmp_path} is in use by process {os.getpid()} since 20"):
            EmbeddedEngine.open(EmbeddedSettings(path=tmp_path))
        engine.run(lambda tr: tr.set(b"a", b"the first one goes on"))
    with opened(tmp_path) as engine:
        assert engine.run(lambda tr: tr.get(b"a"))


def test_a_store_held_by_another_process_is_refused_until_that_process_is_killed(tmp_path: Path) -> None:
    with process("-c", HOLD, str(tmp_path)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreInUseError, match=f"in use by process {holder.pid} since"):
            EmbeddedEngine.open(EmbeddedSettings(path=tmp_path))
        holder.kill()
        holder.wait()
        with opened(tmp_path) as engine:
            assert engine.run(lambda tr: tr.get(b"held")) == b"yes"


@pytest.mark.parametrize("tool", [verify, compact])
def test_no_tool_touches_an_open_store(tmp_path: Path, tool: object) -> None:
    with opened(tmp_path), pytest.raises(StoreInUseError):
        tool(tmp_path)  # type: ignore[operator]
    tool(tmp_path)  # type: ignore[operator]


def test_a_failed_open_does_not_keep_the_directory(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    marker = (tmp_path / "engine.json").read_bytes()
    (tmp_path / "engine.json").write_text("not JSON")
    for _ in range(2):
        with pytest.raises(StoreCorruptError):
            EmbeddedEngine.open(EmbeddedSettings(path=tmp_path))
    (tmp_path / "engine.json").write_bytes(marker)
    with opened(tmp_path):
        pass
