"""Key findings: what a group of documents obliges, forbids, times, limits and defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drillcore_server.domain.digests import Finding, FindingKind, Passage
from drillcore_server.ingest.processing.cues import kind_of

FINDINGS_MAX: Final = 10


def key_findings(ranked: Sequence[Passage]) -> tuple[Finding, ...]:
    """From passages, best first, none repeating another: the best of each kind in turn, in the order of the kinds.

    Plain statements only fill what the others leave.
    """
    by_kind: dict[FindingKind, list[Finding]] = {kind: [] for kind in FindingKind}
    for passage in ranked:
        kind = kind_of(passage.text)
        by_kind[kind].append(Finding(kind, passage))
    statements = by_kind.pop(FindingKind.STATEMENT)
    chosen = (_in_turn(list(by_kind.values())) + statements)[:FINDINGS_MAX]
    order = list(FindingKind)
    return tuple(sorted(chosen, key=lambda finding: order.index(finding.kind)))


def _in_turn(kinds: Sequence[Sequence[Finding]]) -> list[Finding]:
    longest = max(map(len, kinds), default=0)
    return [findings[rank] for rank in range(longest) for findings in kinds if rank < len(findings)]
