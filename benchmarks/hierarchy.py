"""Adds, removes and reads documents through the real server at two sizes of corpus; compares ingestion with
its parts."""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks._measure import percentile, seconds
from benchmarks._server import real_server
from drillcore import Client, Level, NewDocument
from drillcore_server.documents.ingestion.prepared_documents import builtin_counter, builtin_embedder

DATA = Path("../shared/data")


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks hierarchy")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/ecfr-sections.jsonl.gz")
    parser.add_argument("--small", type=int, default=100, help="documents of the small corpus")
    parser.add_argument("--large", type=int, default=10_000, help="documents of the large corpus")
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args(arguments)
    documents = _documents(options.data, options.large + 2 * options.samples)
    with (
        tempfile.TemporaryDirectory(dir=".") as directory,
        real_server(directory) as (address, token, data),
        Client(address, token=token) as client,
    ):
        tenant = client.create_tenant("benchmark").id
        small = _filled(client, tenant, "small", documents[: options.small])
        before_bytes = _size(data)
        ingest_s = seconds(lambda: _filled(client, tenant, "large", documents[: options.large]))
        stored_bytes = _size(data) - before_bytes
        large = client.get_corpus(name="large", tenant_id=tenant).id
        characters = sum(len(text) for _, text in documents[: options.large])
        fresh = documents[options.large :]
        changes = _changes(client, tenant, small, large, fresh, options.samples)
        return {
            "benchmark": "hierarchy",
            **changes,
            **_reads(client, tenant, large, options.samples),
            "ingest_ratio": round(ingest_s / _parts_s([text for _, text in documents[: options.large]]), 2),
            "ingest_characters_per_s": round(characters / ingest_s),
            "bytes_per_byte": round(stored_bytes / sum(len(t.encode()) for _, t in documents[: options.large]), 2),
        }


def _documents(data: Path, count: int) -> list[tuple[str, str]]:
    with gzip.open(data / "scale" / "ecfr-sections.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for _, line in zip(range(count), lines, strict=False)]
    return [(record["id"], f"{record['title']}\n\n{record['text']}") for record in records]


def _new(document: tuple[str, str]) -> NewDocument:
    return NewDocument(name=f"{document[0]}.txt", content=document[1].encode())


def _filled(client: Client, tenant: object, name: str, documents: Sequence[tuple[str, str]]) -> object:
    corpus = client.create_corpus(name, tenant_id=tenant).id
    for start in range(0, len(documents), 1_000):
        client.add_documents(corpus, map(_new, documents[start : start + 1_000]), tenant_id=tenant, timeout_s=3600)
    return corpus


def _changes(
    client: Client, tenant: object, small: object, large: object, fresh: Sequence[tuple[str, str]], samples: int
) -> dict[str, float]:
    """Adds one document to each corpus in turn and removes it, so that a busy moment affects both."""
    times: dict[str, list[float]] = {"add small": [], "add large": [], "remove small": [], "remove large": []}
    for document in fresh[:samples]:
        for name, corpus in (("small", small), ("large", large)):
            added: list[object] = []
            times[f"add {name}"].append(
                seconds(
                    lambda c=corpus, d=document, a=added: a.append(client.add_documents(c, [_new(d)], tenant_id=tenant))
                )  # type: ignore[misc]
            )
            document_id = added[0].outcomes[0].document_id  # type: ignore[attr-defined]
            times[f"remove {name}"].append(
                seconds(lambda c=corpus, i=document_id: client.remove_documents(c, [i], tenant_id=tenant))  # type: ignore[misc]
            )
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "add_growth": round(median["add large"] / median["add small"], 2),
        "remove_growth": round(median["remove large"] / median["remove small"], 2),
        "add_one_ms": round(median["add large"] * 1e3, 1),
        "remove_one_ms": round(median["remove large"] * 1e3, 1),
    }


def _reads(client: Client, tenant: object, corpus: object, samples: int) -> dict[str, object]:
    master = client.query(level=Level.MASTER, corpus_ids=[corpus], tenant_id=tenant).items[0].node
    sections = client.drill_down(master.id, Level.SECTION, tenant_id=tenant, page_size=samples).items
    chunks = client.drill_down(sections[0].id, Level.CHUNK, tenant_id=tenant, page_size=samples).items
    raws = client.drill_down(chunks[0].id, Level.RAW, tenant_id=tenant, page_size=samples).items
    nodes = {"master": [master], "section": sections, "chunk": chunks, "raw": raws}
    read = {
        level: _p99_ms([lambda n=node: client.get_node(n.id, tenant_id=tenant) for node in found], samples * 10)
        for level, found in nodes.items()
    }
    drill = _p99_ms([lambda: client.drill_down(sections[0].id, Level.RAW, tenant_id=tenant)], samples)
    text = "records of the audit trail must be kept"
    ask = [lambda: client.query(text, corpus_ids=[corpus], tenant_id=tenant, page_size=10)]
    first, search = _p99_ms(ask, 1), _p99_ms(ask, samples)
    return {"read_p99_ms": read, "drill_p99_ms": drill, "search_first_ms": first, "search_p99_ms": search}


def _p99_ms(calls: Sequence[Callable[[], object]], count: int) -> float:
    return round(percentile([seconds(calls[number % len(calls)]) for number in range(count)], 0.99) * 1e3, 2)


def _parts_s(texts: Sequence[str]) -> float:
    """Embeds and tokenises the same text alone, paragraph by paragraph."""
    paragraphs = [part for text in texts for part in text.split("\n\n") if part.strip()]
    embedder, counter = builtin_embedder(), builtin_counter()
    embedder.embed(paragraphs[:10])
    return seconds(lambda: embedder.embed(paragraphs)) + seconds(lambda: counter.count_many(paragraphs))


def _size(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("data.mdb"))
