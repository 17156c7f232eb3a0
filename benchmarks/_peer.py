"""Runs crprotocol's envelope builder in a process of its own, for the benchmark of envelopes.

Only its `construct()` is measured, with its defaults. It has the facts in memory, and the server's model has made every
vector that it needs beforehand: those of the facts, the query, and the aspects it finds in the query. So it embeds
nothing, reads nothing from disk, answers nobody and keeps no record. Its cross-encoder is left out, as wherever that
model is not installed. It counts tokens by its own estimate.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder

Rows = npt.NDArray[np.float32]


def is_installed() -> bool:
    return importlib.util.find_spec("crp") is not None


@dataclass(frozen=True)
class Peer:
    process: subprocess.Popen[str]

    def construct(self, query: str) -> dict[str, float]:
        """Returns how long the envelope of a query took, and what it contains."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(query) + "\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def peer_process(directory: str, facts: Sequence[str], budget_tokens: int) -> Iterator[Peer]:
    given = Path(directory) / "peer.json"
    given.write_text(json.dumps({"facts": list(facts), "budget_tokens": budget_tokens}))
    command = [sys.executable, "-m", "benchmarks._peer", str(given)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Peer(process)
    finally:
        process.terminate()
        process.wait()


class _Vectors:
    """Replaces the peer's sentence transformer: looks vectors up, and makes only unknown ones."""

    def __init__(self, texts: list[str]) -> None:
        self._places = {text: place for place, text in enumerate(texts)}
        self._rows: Rows = builtin_embedder().embed(texts)

    def encode(self, texts: list[str], **_options: Any) -> Rows:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._places]
        if fresh:
            self._places |= {text: len(self._rows) + place for place, text in enumerate(fresh)}
            self._rows = np.concatenate([self._rows, builtin_embedder().embed(fresh)])
        return self._rows[[self._places[text] for text in texts]]


def _serve(given: dict[str, Any]) -> None:
    from crp.core.task_intent import TaskIntent
    from crp.envelope import builder, decomposer
    from crp.extraction.types import Fact

    vectors = _Vectors(given["facts"])
    decomposer._EMBED_MODEL, decomposer._ST_AVAILABLE = vectors, True
    facts = [Fact(id=str(place), text=text) for place, text in enumerate(given["facts"])]
    for line in sys.stdin:
        task, state = TaskIntent(task_input=json.loads(line)), builder.EnvelopeState(facts=facts)
        decomposer.decompose_task_aspects(task)  # makes the vectors of its aspects known
        started = time.perf_counter()
        result = builder.construct(task, given["budget_tokens"], state)
        took_s = time.perf_counter() - started
        assert result.decomposition.used_ml_model, "the peer did not use the vectors"
        answer = {
            "seconds": took_s,
            "aspects": len(result.decomposition.aspects),
            "facts": result.facts_included,
            "tokens": result.envelope_tokens,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(json.loads(Path(sys.argv[1]).read_text()))
