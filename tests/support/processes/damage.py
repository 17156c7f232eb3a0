"""Reads damaged copies of a store and prints a line of JSON for each seed.

Run it as `python -m tests.support.processes.damage STORE SCRATCH SEED...`.

Each copy has one page overwritten, and is read in a process of its own: LMDB trusts its pages, so a damaged page may
end the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from pathlib import Path

from drillcore_fdb import codec
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings, verify
from drillcore_fdb.errors import EngineError

PAGE_BYTES = 4096


def digest(path: Path) -> str:
    """The hash of every record of a store, put together and checked by the codec."""
    engine = EmbeddedEngine.open(EmbeddedSettings(path=path, durability=Durability.RELAXED))
    records = engine.run(lambda tr: list(codec.scan(tr, b"", b"\xff")))
    engine.close()
    return hashlib.sha256(repr(records).encode()).hexdigest()


def damage(path: Path, seed: int) -> str:
    """Overwrites a page, or a few bytes of a page."""
    dice = random.Random(seed)
    data = path / "kv" / "data.mdb"
    page = dice.randrange(data.stat().st_size // PAGE_BYTES)
    kind, offset, length = dice.choice(
        [("noise", 0, PAGE_BYTES), ("zeros", 0, PAGE_BYTES), ("head", 0, 24), ("middle", dice.randrange(3_000), 64)]
    )
    with data.open("r+b") as file:
        file.seek(page * PAGE_BYTES + offset)
        file.write(bytes(length) if kind == "zeros" else dice.randbytes(length))
    return f"{kind} in page {page}"


def read(path: Path) -> str:
    """Runs `digest` in a process of its own. Returns its result, or how the process ended."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(2)
        try:
            outcome = digest(path)
        except EngineError as error:
            outcome = f"refused: {type(error).__name__}"
        except BaseException as error:
            outcome = f"raised: {error!r}"
        os.write(send, outcome.encode())
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as pipe:
        outcome = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return outcome or f"died: {os.waitstatus_to_exitcode(status)}"


def main(store: str, scratch: str, *seeds: str) -> None:
    for seed in seeds:
        copy = Path(scratch) / seed
        shutil.copytree(store, copy)
        damaged = damage(copy, int(seed))
        problems = verify(copy)
        print(json.dumps({"seed": int(seed), "what": damaged, "problems": problems[:3], "outcome": read(copy)}))
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(*sys.argv[1:])
