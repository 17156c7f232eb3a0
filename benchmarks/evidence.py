"""Evidence recall at a token budget: the share of the answer to a question that is in the context packed for it.

Contexts are packed by Drillcore, through the real server and client; by BM25, with and without stems, over titled
paragraphs; by the nearest titled paragraphs of the same embedder; and by crprotocol. All are scored by the characters
of the documents, with the data's own `score.py`. Any set in the form of `_evidence_sets` works.

recall        by set, system and budget; `figures` also has completeness, precision and mean tokens
least_lead    by embedder: Drillcore's recall minus the best other's, where that is least
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from benchmarks._evidence_drillcore import drillcore
from benchmarks._evidence_rivals import Nearest, Paragraphs, Peer, bm25
from benchmarks._evidence_sets import Answers, Context, EvidenceSet, Scorer, sets_in
from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.vectors.embedding.embedders import Embedder
from drillcore_server.vectors.embedding.minilm import load_minilm

DATA = Path("../shared/data/evidence")
BUDGETS = (1_000, 2_000, 4_000)
EMBEDDERS = ("static", "minilm")
RIVALS = ("bm25", "nearest", "crprotocol")
OWN = "drillcore"
Figures = dict[str, dict[str, dict[str, dict[str, float]]]]
"""By questions, system and budget."""


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks evidence")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="a set, or a folder of sets: documents/, queries*.jsonl"
    )
    parser.add_argument("--scorer", type=Path, default=DATA / "score.py")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    parser.add_argument("--embedders", nargs="+", choices=EMBEDDERS, default=EMBEDDERS)
    parser.add_argument("--systems", nargs="+", choices=(OWN, *RIVALS), default=(OWN, *RIVALS))
    parser.add_argument("--policy", default="fused-1", help="scoring policy of Drillcore")
    parser.add_argument("--questions", type=int, help="the most questions of each file")
    parser.add_argument("--directory", type=Path, default=Path(), help="folder for temporary stores")
    options = parser.parse_args(arguments)
    scorer, figures = Scorer(options.scorer), Figures()
    for evidence in sets_in(options.data, options.questions):
        for system, answers in _answered(evidence, options):
            for name, scored in _scored(scorer, evidence, answers):
                figures.setdefault(name, {})[system] = scored
                _say(f"{name}, {system}: {_recalls(scored)}")
    return {
        "benchmark": "evidence",
        "budgets": list(options.budgets),
        "recall": {name: {system: _recalls(by) for system, by in found.items()} for name, found in figures.items()},
        "least_lead": {embedder: _least_lead(figures, embedder) for embedder in options.embedders},
        "figures": figures,
    }


def _answered(evidence: EvidenceSet, options: argparse.Namespace) -> Iterator[tuple[str, Answers]]:
    """Yields for each system its name and what it packed for all questions of the set."""
    paragraphs, budgets = Paragraphs.of(evidence), options.budgets
    _say(f"{evidence.name}: {len(evidence.documents)} documents, {len(paragraphs.texts)} paragraphs")
    if "bm25" in options.systems:
        yield "bm25", bm25(paragraphs, evidence.questions, budgets, stemmed=False)
        yield "bm25, stems", bm25(paragraphs, evidence.questions, budgets, stemmed=True)
    for embedder in options.embedders:
        if {"nearest", "crprotocol"} & set(options.systems):
            nearest = Nearest.by(_loaded(embedder), paragraphs)
            if "nearest" in options.systems:
                yield f"nearest, {embedder}", nearest.answers(evidence.questions, budgets)
            if "crprotocol" in options.systems:
                yield f"crprotocol, {embedder}", Peer(nearest).answers(evidence.questions, budgets)
        if OWN in options.systems:
            yield f"{OWN}, {embedder}", drillcore(evidence, embedder, options.policy, budgets, options.directory)


def _loaded(embedder: str) -> Embedder:
    return builtin_embedder() if embedder == "static" else load_minilm()


def _scored(
    scorer: Scorer, evidence: EvidenceSet, answers: Answers
) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """Yields the scores for each file of questions."""
    rest: Mapping[int, Iterator[Context]] = {budget: iter(contexts) for budget, contexts in answers.items()}
    for file, questions in evidence.asked.items():
        packed = {budget: list(islice(contexts, len(questions))) for budget, contexts in rest.items()}
        yield f"{evidence.name}/{file}", {str(budget): scorer.score(questions, own) for budget, own in packed.items()}


def _recalls(scored: Mapping[str, Mapping[str, float]]) -> list[float]:
    return [round(by["recall"], 3) for by in scored.values()]


def _least_lead(figures: Figures, embedder: str) -> float | None:
    leads = [lead for found in figures.values() for lead in _leads(found, embedder)]
    return round(min(leads), 3) if leads else None


def _leads(found: Mapping[str, Mapping[str, Mapping[str, float]]], embedder: str) -> Iterator[float]:
    own = found.get(f"{OWN}, {embedder}", {})
    others: Sequence[str] = [name for name in found if not name.startswith(OWN) and not _is_of_another(name, embedder)]
    for budget, by in own.items():
        if others:
            yield by["recall"] - max(found[name][budget]["recall"] for name in others)


def _is_of_another(system: str, embedder: str) -> bool:
    return any(system.endswith(f", {other}") for other in EMBEDDERS if other != embedder)


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
