"""Context envelopes as people read them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from drillcore._api.envelope_data import (
    BudgetParts,
    Candidate,
    Envelope,
    EnvelopeFact,
    EnvelopePreview,
    IssuedEnvelope,
    PackedEnvelope,
    Provenance,
    QualityTier,
    Replay,
    TierCap,
)
from drillcore.cli.text import counted, first_words, one_line, pairs, printable

Row = tuple[str, RenderableType]

CONTENT_WIDTH: Final = 240
"""How many characters of a fact to show. The text for the prompt has all of them."""
BAR_WIDTH: Final = 24

_STYLES: Final = {
    QualityTier.S: "bold green",
    QualityTier.A: "bold green",
    QualityTier.B: "bold yellow",
    QualityTier.C: "bold yellow",
    QualityTier.D: "bold red",
}
_SATURATIONS: Final = (
    (0.99, "full"),
    (0.95, "nearly full"),
    (0.85, "well packed"),
    (0.70, "moderate"),
    (0.0, "sparse"),
)
_MEMORY: Final = ("the caller's window", "the session", "what the session used before", "the store")
_VERDICTS: Final = {
    Replay.SAME: ("SAME", "green", "built again, it is what was issued, byte by byte"),
    Replay.FACTS_SAME: (
        "FACTS SAME",
        "green",
        "every fact is unchanged, but the search was approximate and selects other facts now",
    ),
    Replay.ERASED: ("ERASED", "yellow", "some of its facts were erased since"),
    Replay.SESSION_OVER: (
        "SESSION OVER",
        "yellow",
        "it used facts or an answer of a session that is over, so it cannot be built again",
    ),
    Replay.DIFFERENT: (
        "DIFFERENT",
        "bold red",
        "the store has other content than it had then: run `drillcore audit verify` and `drillcore fsck`",
    ),
    Replay.TRIMMED: ("TRIMMED", "yellow", "its revisions are no longer kept, so it cannot be built again"),
}


class Bar:
    """A share as a bar and a number. It has no colour, and uses ASCII where a terminal has no block characters."""

    def __init__(self, share: float, words: str) -> None:
        self._share, self._words = share, words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        done, left = ("#", "-") if options.ascii_only else ("█", "░")
        number = round(min(max(self._share, 0.0), 1.0) * BAR_WIDTH)
        yield Text(f"{done * number}{left * (BAR_WIDTH - number)} {self._words}")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(BAR_WIDTH, BAR_WIDTH + 1 + len(self._words)).with_maximum(options.max_width)


def pack_report(found: PackedEnvelope) -> list[RenderableType]:
    """How good an envelope is, its facts, and how it was made; without candidates and headers."""
    if found.envelope is None:
        return [f"not modified: your envelope {found.envelope_id or ''} is still current"]
    envelope = found.envelope
    report = [*_worth_and_facts(envelope), "", pairs([*_making(envelope), *_chain_rows(found, envelope)])]
    if found.continuation_id:
        report += ["", f"there is more: drillcore pack --continue {printable(found.continuation_id)}"]
    return report


def preview_report(found: EnvelopePreview) -> Table:
    rows = [
        ("tier", _tier_text(found.quality_tier)),
        *_caps(found.caps),
        _saturation_row(found.saturation),
        ("tokens", Text(f"{found.estimated_tokens:,} of {found.token_budget:,}")),
        ("facts", Text(f"{found.facts_included:,} of {counted(found.facts_available, 'candidate')}")),
        *_lines("communities", found.communities),
        ("found in", Text(_memory(found.memory_tier_hit))),
        *_read(found.revisions, found.etag),
        *_lines("warning", found.warnings),
    ]
    return pairs(rows)


def issued_report(found: IssuedEnvelope) -> list[RenderableType]:
    """The issued envelope, how it compares with the one built now, and the one built now."""
    word, style, meaning = _VERDICTS[found.replay]
    rows: list[Row] = [
        ("query", one_line(found.query)),
        ("issued", Text(f"{one_line(found.created_at)} by {printable(found.created_by)}")),
        ("tier then", _tier_text(found.quality_tier)),
        ("facts then", Text(f"{len(found.fact_ids):,}")),
        *_lines("missing", map(str, found.missing_fact_ids)),
        ("window", Text(str(found.window_number))),
        *_lines("window before", [str(found.parent_envelope_id)] if found.parent_envelope_id else ()),
        *_read(found.revisions, ""),
        ("sha-256", Text(found.issued_sha256)),
        *_lines("audit record", [str(found.audit_record_id)] if found.audit_record_id else ()),
    ]
    report: list[RenderableType] = [Text.assemble((word, style), f": {meaning}"), "", pairs(rows)]
    if found.envelope is not None:
        report += ["", "as it is built now:", "", *_worth_and_facts(found.envelope), "", pairs(_making(found.envelope))]
    return report


def facts_table(facts: Iterable[EnvelopeFact]) -> Table:
    """Facts with their citation number, scores and origin."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        table.add_row(str(fact.position), f"{fact.composite_score:.3f}", _fact_text(fact))
    return table


def candidates_table(candidates: Iterable[Candidate]) -> Table:
    """The outcome of each candidate, and the reason for it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("#", "score", "outcome"):
        table.add_column(column, no_wrap=True)
    table.add_column("fact", overflow="fold")
    for candidate in candidates:
        score, outcome = f"{candidate.composite_score:.3f}", printable(candidate.outcome)
        table.add_row(str(candidate.position or ""), score, outcome, _why(candidate))
    return table


def header_lines(headers: Mapping[str, str]) -> list[RenderableType]:
    return [printable(f"{name}: {headers[name]}") for name in sorted(headers)]


def _worth_and_facts(envelope: Envelope) -> list[RenderableType]:
    """What a reader looks for first: the quality and the facts."""
    return [pairs(_worth(envelope)), "", facts_table(envelope.facts) if envelope.facts else _no_facts(envelope)]


def _worth(envelope: Envelope) -> Iterator[Row]:
    parts = f"coverage {envelope.coverage_score:.3f}, relevance {envelope.relevance_mean:.3f}"
    yield "tier", _tier_text(envelope.quality_tier, f", quality {envelope.quality_score:.3f} ({parts})")
    yield from _caps(envelope.caps)
    yield _saturation_row(envelope.saturation)
    counter = f", counted by {printable(envelope.tokenizer)}"
    yield "tokens", Text(f"{envelope.token_count:,} of {envelope.token_budget:,}{counter}")
    yield "facts", Text(_facts_counted(envelope))
    yield from _lines("warning", envelope.warnings)


def _making(envelope: Envelope) -> Iterator[Row]:
    if envelope.budget.context_window:
        yield "budget", Text(_budget(envelope.budget))
    yield from _lines("communities", envelope.ckf_communities)
    yield from _lines("asked as", envelope.sub_queries if len(envelope.sub_queries) > 1 else ())
    yield "search", Text(_search(envelope))
    yield "scoring", Text(_scoring(envelope))
    grounding = filter(None, [envelope.grounding_mode.value, envelope.grounding_instruction])
    yield "grounding", one_line(": ".join(grounding))
    yield from _read(envelope.revisions, envelope.etag)


def _chain_rows(found: PackedEnvelope, envelope: Envelope) -> Iterator[Row]:
    session = f" of session {found.session_id}" if found.session_id else ""
    history = (
        f", tiers so far {' '.join(tier.value for tier in found.quality_history)}" if found.quality_history else ""
    )
    yield "window", one_line(f"{envelope.window_number}{session}{history}")
    made = f", made {one_line(found.created_at)}" if found.created_at else ""
    yield "envelope", Text(f"{found.envelope_id or 'not kept'}{made}")


def _tier_text(tier: QualityTier, more: str = "") -> Text:
    return Text.assemble((tier.value, _STYLES[tier]), more)


def _saturation_row(saturation: float) -> Row:
    word = next((word for least, word in _SATURATIONS if saturation >= least), "sparse")
    return "saturation", Bar(saturation, f"{saturation:.3f}, {word}")


def _caps(caps: Iterable[TierCap]) -> Iterator[Row]:
    lines = [f"at {cap.tier.value} by {cap.reason}" + (f": {cap.detail}" if cap.detail else "") for cap in caps]
    return _lines("capped", lines)


def _lines(name: str, values: Iterable[str]) -> Iterator[Row]:
    """A row with a line for each value; no row without values."""
    if lines := [one_line(value) for value in values]:
        yield name, Text("\n").join(lines)


def _read(revisions: Mapping[UUID, int], etag: str) -> Iterator[Row]:
    yield from _lines("read", (f"corpus {corpus} at revision {revisions[corpus]}" for corpus in sorted(revisions)))
    yield from _lines("etag", [etag] if etag else ())


def _budget(parts: BudgetParts) -> str:
    taken = {
        "system prompt": parts.system_prompt,
        "query": parts.query,
        "response": parts.expected_response,
        "margin": parts.safety_margin,
    }
    return f"{parts.context_window:,} context window" + "".join(
        f" - {tokens:,} {name}" for name, tokens in taken.items()
    )


def _facts_counted(envelope: Envelope) -> str:
    deferred = f", {len(envelope.deferred_fact_ids):,} left for the next window" if envelope.deferred_fact_ids else ""
    included = f"{envelope.total_facts_included:,} of {counted(envelope.total_facts_available, 'candidate')}"
    return included + deferred


def _no_facts(envelope: Envelope) -> str:
    candidates, budget = envelope.total_facts_available, counted(envelope.token_budget, "token")
    return f"no facts: none of {counted(candidates, 'candidate')} fits into {budget}" if candidates else "no facts"


def _search(envelope: Envelope) -> str:
    compared = "every vector compared" if envelope.exact else "approximate"
    timely = ["time-sensitive"] if envelope.time_sensitive else []
    return ", ".join([printable(envelope.strategy), compared, f"found in {_memory(envelope.memory_tier_hit)}", *timely])


def _memory(tier: int) -> str:
    return f"memory tier {tier}" + (f" ({_MEMORY[tier]})" if tier < len(_MEMORY) else "")


def _scoring(envelope: Envelope) -> str:
    used = envelope.weights
    weights = f"relevance {used.relevance:.2f}, importance {used.importance:.2f}, diversity {used.diversity:.2f}"
    ages = f"freshness {used.freshness:.2f} over {used.freshness_horizon_days:,} days before {envelope.ranked_on}"
    return f"{printable(envelope.scoring_policy)}: {weights}, {ages}; relevant from {used.relevance_floor:.2f}"


def _fact_text(fact: EnvelopeFact) -> Text:
    scores = {
        "relevance": fact.relevance_score,
        "importance": fact.importance_weight,
        "freshness": fact.freshness_score,
        "diversity": fact.diversity_bonus,
    }
    notes = {"stale": fact.stale, "session only": fact.session_only, "the answer so far": fact.answer_summary}
    measured = ", ".join(
        [*(f"{name} {score:.2f}" for name, score in scores.items()), counted(fact.token_count, "token")]
    )
    marks = [fact.community, *(note for note, holds in notes.items() if holds)]
    described = "; ".join([measured, *(printable(mark) for mark in marks if mark)])
    where = "; ".join(filter(None, [_place(fact.source_id, fact.provenance), f"fact {fact.fact_id}"]))
    return Text.assemble(first_words(fact.content, CONTENT_WIDTH), (f"\n{described}\n{where}", "dim"))


def _place(source_id: str, provenance: Provenance | None) -> str:
    """The source, the place in it, the document, and the characters of its text."""
    if provenance is None:
        return printable(source_id)
    location, title = provenance.source_location, provenance.document_title
    if location.startswith(title):  # the headings begin with the title already
        title = ""
    span = f"characters {provenance.span.start}-{provenance.span.end}" if provenance.span else ""
    return printable(", ".join(filter(None, [source_id, location, title, span])))


def _why(candidate: Candidate) -> Text:
    tokens = counted(candidate.token_count, "token") if candidate.token_count else ""  # 0: there was no room to try it
    found = f"found by {' '.join(candidate.found_by)}"
    measured = ", ".join(filter(None, [f"relevance {candidate.relevance_score:.3f}", tokens, found]))
    same = "same as " if candidate.outcome == "duplicate" else ""
    detail = f"; {same}{candidate.detail}" if candidate.detail else ""
    return Text.assemble(str(candidate.fact_id), "\n", (printable(measured + detail), "dim"))
