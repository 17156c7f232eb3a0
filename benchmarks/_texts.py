"""Real texts, for benchmarks that need many."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

DATA = Path("../shared/data")


def texts(data: Path) -> Iterator[str]:
    """Yields sentences of real regulations and standards, then two together, then three; each once."""
    for together in (1, 2, 3, 4):
        seen: set[int] = set()
        for name in ("ecfr-sections", "rfc-600"):
            with gzip.open(data / "scale" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
                for line in lines:
                    for text in _passages(json.loads(line)["text"], together):
                        if hash(text) not in seen:
                            seen.add(hash(text))
                            yield text


def _passages(text: str, together: int) -> Iterator[str]:
    sentences = [
        sentence
        for sentence in re.split(r"(?<=[.;:])\s+|\n\n+", text)
        if 80 <= len(sentence) <= 600 and len(sentence.split()) > 12
    ]
    for place in range(0, len(sentences) - together + 1):
        yield " ".join(" ".join(sentences[place : place + together]).split())
