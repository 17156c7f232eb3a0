"""`drillcore pack` and `drillcore envelope`: their requests and their output."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from drillcore._api.envelope_messages import to_packed
from drillcore.cli import main
from drillcore.cli.commands.envelope_text import candidates_table, pack_report
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2, nodes_pb2
from tests.support.data import envelope_messages as messages
from tests.support.data.envelope_messages import ENVELOPE, ETAG, HEADERS, OTHER, TEXT, THIRD
from tests.support.data.fact_messages import CORPUS, FACT
from tests.support.paths import GOLDEN_FILES
from tests.support.servers.in_memory_server import Peer, because, explained, running

Run = Callable[..., Result]
REGENERATE = "DRILLCORE_REGENERATE=1 .venv/bin/pytest tests/client/cli/test_cli_envelopes.py"

GAP = {
    "accepted": ["S", "A"],
    "best_tier": "B",
    "quality_score": 0.71234,
    "upgraded": True,
    "caps": [
        {"tier": "B", "reason": "saturation", "detail": "0.884 is below 0.95"},
        {"tier": "C", "reason": "freshness", "detail": "the newest fact is 120 days old"},
    ],
    "would_help": ["a larger token budget, or a narrower query", "newer sources"],
}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        envelope = messages.envelope(facts=[messages.fact(), messages.plain_fact()])
        peer.answers["PackEnvelope"] = messages.packed(envelope=envelope, candidates=messages.candidates())
        peer.answers["ContinueEnvelope"] = messages.packed(continuation_id="", quality_history=[])
        peer.answers["PreviewEnvelope"] = messages.preview()
        peer.answers["GetEnvelope"] = messages.issued()
        yield peer


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command against the peer, in an empty directory, in Greenwich's time zone."""
    monkeypatch.chdir(tmp_path)
    environment = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path), "NO_COLOR": "1"}
    without = {"DRILLCORE_REGENERATE": None}  # not a setting of the client, which refuses unknown settings

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env={**environment, **without}).invoke(main, arguments, input=text)

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield run
    time.tzset()


def json_of(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def assert_golden(name: str, found: str) -> None:
    file = GOLDEN_FILES / name
    if os.environ.get("DRILLCORE_REGENERATE"):
        file.write_text(found)
    assert found == file.read_text(), f"{name} has changed; if that is intended: {REGENERATE}"


def in_terminal(*parts: Any, width: int, encoding: str = "utf-8") -> str:
    """The output of a terminal of this width, without the blanks at the ends of lines."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False, no_color=True)
    for part in parts:
        console.print(part)
    file.flush()
    file.buffer.seek(0)
    return "".join(f"{line.rstrip()}\n" for line in file.buffer.read().decode(encoding).splitlines())


def test_the_report_equals_the_golden_file(run: Run) -> None:
    result = run("pack", "who keeps it", "--explain", "--headers")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_golden("pack_report.txt", result.stdout)


def test_the_report_fits_a_narrow_terminal(run: Run, peer: Peer) -> None:
    found = to_packed(peer.answers["PackEnvelope"])
    shown = in_terminal(*pack_report(found), "", candidates_table(found.candidates), width=60)
    assert max(map(len, shown.splitlines())) <= 60
    assert_golden("pack_report_narrow.txt", shown)


@pytest.mark.parametrize("width", [40, 50, 79, 80, 120])
def test_nothing_is_wider_than_the_terminal(peer: Peer, width: int) -> None:
    found = to_packed(peer.answers["PackEnvelope"])
    shown = in_terminal(*pack_report(found), candidates_table(found.candidates), width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert str(FACT)[:12] in shown, "ids are wrapped, not cut"


def test_the_bar_is_ascii_if_the_terminal_has_nothing_else(peer: Peer) -> None:
    found = to_packed(peer.answers["PackEnvelope"])
    assert "#####################--- 0.884, well packed" in in_terminal(*pack_report(found), width=80, encoding="ascii")


@pytest.mark.parametrize(
    ("saturation", "shown"),
    [
        (1.0, "████████████████████████ 1.000, full"),
        (0.96, "███████████████████████░ 0.960, nearly full"),
        (0.7, "█████████████████░░░░░░░ 0.700, moderate"),
        (0.0, "░░░░░░░░░░░░░░░░░░░░░░░░ 0.000, sparse"),
    ],
)
def test_the_bar_shows_how_full_the_envelope_is(run: Run, peer: Peer, saturation: float, shown: str) -> None:
    peer.answers["PackEnvelope"].envelope.saturation = saturation
    assert f"saturation  {shown}\n" in run("pack", "x").stdout


def test_an_empty_envelope_says_so(run: Run, peer: Peer) -> None:
    empty = messages.envelope(
        facts=[],
        quality_tier=pb.QUALITY_TIER_D,
        total_facts_included=0,
        deferred_fact_ids=[],
        ckf_communities=[],
        budget=None,
        sub_queries=["x"],
        exact=False,
        time_sensitive=False,
        grounding_instruction="",
        grounding_mode=pb.GROUNDING_MODE_OPEN,
    )
    peer.answers["PackEnvelope"] = pb.PackEnvelopeResponse(envelope=empty)
    shown = run("pack", "x").stdout
    assert shown.startswith("tier        D, quality")
    assert "\n\nno facts: none of 87 candidates fits into 2,000 tokens\n\n" in shown
    assert shown.endswith("\nwindow     1\nenvelope   not kept\n")
    assert "search     widened, approximate, found in memory tier 3 (the store)\n" in shown
    assert "grounding  open\n" in shown
    assert not any(name in shown for name in ("budget", "communities", "asked as", "there is more"))


def test_quality_comes_first_then_the_facts_then_the_making(run: Run) -> None:
    shown = run("pack", "who keeps it").stdout
    names = ["tier", "capped", "saturation", "tokens", "facts", "warning", "1 ", "2 ", "budget", "search", "envelope"]
    places = [shown.index(name if name == "tier" else f"\n{name}") for name in names]
    assert places == sorted(places)


def test_the_source_of_a_fact_is_shown_once(run: Run, peer: Peer) -> None:
    facts = peer.answers["PackEnvelope"].envelope.facts
    facts[0].provenance.source_location = "Records and their trails > Page 3"
    facts[1].ClearField("provenance")
    facts[1].source_id = ""
    shown = run("pack", "who keeps it").stdout
    assert f"\n          sop-7, Records and their trails > Page 3, characters 120-168; fact {FACT}\n" in shown
    assert f"\n          fact {OTHER}\n" in shown


def test_a_candidate_that_was_not_tried_has_no_tokens(run: Run, peer: Peer) -> None:
    candidate = pb.Candidate(fact_id=str(THIRD), outcome="over-budget", found_by=["words"])
    del peer.answers["PackEnvelope"].candidates[:]
    peer.answers["PackEnvelope"].candidates.append(candidate)
    shown = run("pack", "who keeps it", "--explain").stdout
    assert shown.endswith(f"{THIRD}\n                       relevance 0.000, found by words\n")


def test_the_json_has_every_field(run: Run, peer: Peer) -> None:
    document = json_of(run("pack", "who keeps it", "--explain", "--json"))
    assert (document["envelope_id"], document["headers"]) == (str(ENVELOPE), HEADERS)
    assert (document["quality_history"], document["created_at"]) == (["A", "B"], "2026-01-02T03:04:05+00:00")
    envelope = document["envelope"]
    assert (envelope["quality_tier"], envelope["grounding_mode"], envelope["text"]) == ("B", "context-strict", TEXT)
    assert (envelope["revisions"], envelope["ranked_on"]) == ({str(CORPUS): 9}, "2026-01-31")
    assert envelope["facts"][0]["provenance"]["raws"][0]["span"] == {"start": 20, "end": 68}
    assert [candidate["outcome"] for candidate in document["candidates"]] == ["included", "duplicate", "over-budget"]
    assert peer.requests[0].explain


def test_the_text_goes_into_a_pipe_unchanged(run: Run, peer: Peer) -> None:
    peer.answers["PackEnvelope"].envelope.text = "[1] Keep\tit.\x07\r\nNo newline at the end"
    result = run("pack", "who keeps it", "--text", "--format", "xml")
    assert result.stdout_bytes == b"[1] Keep\tit.\x07\r\nNo newline at the end"
    assert result.stderr == "warning: strict grounding on a sparse envelope: the answer may be incomplete\n"
    assert peer.requests[0].question.format == pb.RENDER_FORMAT_XML


def test_the_content_of_facts_cannot_control_the_terminal(run: Run, peer: Peer) -> None:
    fact = peer.answers["PackEnvelope"].envelope.facts[0]
    fact.content, fact.provenance.document_title, fact.community = "\x1b[2J", "\x1b[3J", "\x1b[4J"
    peer.answers["PackEnvelope"].candidates[0].detail = "\x1b[5J"
    shown = run("pack", "who keeps it", "--explain").stdout
    assert "\x1b" not in shown
    assert all(f"\\x1b[{number}J" in shown for number in (2, 3, 4, 5))


def test_every_flag_of_the_question_is_sent(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Be brief, Zoë.", encoding="utf-8")
    budget = ["--model", "gpt-4o", "--budget", "2000", "--context-window", "8000", "--system-prompt-file", "prompt.txt"]
    rooms = ["--response-tokens", "0", "--margin-tokens", "10", "--corpus", str(CORPUS), "--as-of", "9", "--exact"]
    scoring = ["--scoring-policy", "cosine-1", "--weight", "relevance=0", "--weight", "freshness=0.5"]
    bounds = ["--horizon-days", "90", "--relevance-floor", "0.6", "--duplicate-similarity", "0.9", "--candidates", "20"]
    modes = ["--grounding", "strict", "--accept", "s, A", "--format", "json", "--memory-tier-max", "0"]
    rest = ["--session", "s", "--cache-control", "max-age=60", "--in-window", str(OTHER), "--where", "k=v"]
    asked = ["who keeps it", *budget, *rooms, *scoring, *bounds, *modes, *rest]
    run("pack", *asked, "--if-match", ETAG, "--salted-etag")
    run("pack", *asked, "--preview")
    packed, previewed = peer.requests
    assert packed == pb.PackEnvelopeRequest(question=packed.question, if_match=ETAG, salted_etag=True)
    assert packed.question == previewed.question
    assert packed.question == pb.EnvelopeQuestion(
        query="who keeps it",
        corpus_ids=[str(CORPUS)],
        filters=facts_pb2.FactFilters(metadata={"k": "v"}),
        budget=pb.TokenBudget(
            model="gpt-4o",
            tokens=2000,
            context_window=8000,
            system_prompt="Be brief, Zoë.",
            expected_response_tokens=0,
            safety_margin_tokens=10,
        ),
        grounding_mode=pb.GROUNDING_MODE_CONTEXT_STRICT,
        scoring=pb.ScoringOptions(
            policy="cosine-1",
            relevance_weight=0,
            freshness_weight=0.5,
            freshness_horizon_days=90,
            relevance_floor=0.6,
            duplicate_similarity=0.9,
            candidates_per_query=20,
        ),
        accept_tiers=[pb.QUALITY_TIER_S, pb.QUALITY_TIER_A],
        cache_control="max-age=60",
        session_id="s",
        exact=True,
        as_of=nodes_pb2.AsOf(revision=9),
        format=pb.RENDER_FORMAT_JSON,
        window_fact_ids=[str(OTHER)],
        memory_tier_max=0,
    )


def test_options_without_a_flag_are_left_to_the_server(run: Run, peer: Peer) -> None:
    run("pack", "who keeps it")
    assert peer.requests[0].question == pb.EnvelopeQuestion(
        query="who keeps it",
        budget=pb.TokenBudget(),
        grounding_mode=pb.GROUNDING_MODE_CONTEXT_PREFERRED,
        format=pb.RENDER_FORMAT_MARKDOWN,
    )


def test_a_preview_shows_the_envelope_that_would_be_packed(run: Run) -> None:
    shown = run("pack", "who keeps it", "--preview", "--headers").stdout.splitlines()
    assert shown[:4] == [
        "tier         B",
        "capped       at B by saturation: 0.884 is below 0.95",
        "saturation   █████████████████████░░░ 0.884, well packed",
        "tokens       1,768 of 2,000",
    ]
    assert "warning      few facts" in shown
    assert shown[-1] == "CRP-Context-Saturation: 0.884"
    assert json_of(run("pack", "who keeps it", "--preview", "--json"))["estimated_tokens"] == 1768


def test_a_chain_is_continued_with_the_answer_from_a_file_or_a_pipe(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "answer.txt").write_text("Five years.\n")
    shown = run("pack", "--continue", "c-1", "--answer-file", "answer.txt", "--explain")
    assert (shown.exit_code, "there is more" in shown.stdout) == (0, False)
    run("pack", "--continue", "c-1", "--answer-file", "-", text="Six years.\n")
    first, second = peer.requests
    assert first == pb.ContinueEnvelopeRequest(continuation_id="c-1", previous_answer="Five years.\n", explain=True)
    assert second.previous_answer == "Six years.\n"


def test_an_envelope_that_is_not_modified_is_not_shown(run: Run, peer: Peer) -> None:
    peer.answers["PackEnvelope"] = messages.not_modified()
    shown = run("pack", "who keeps it", "--if-match", ETAG)
    assert shown.stdout == f"not modified: your envelope {ENVELOPE} is still current\n"
    text = run("pack", "who keeps it", "--if-match", ETAG, "--text")
    assert (text.exit_code, text.stdout, text.stderr) == (0, "", f"not modified: {ENVELOPE}\n")
    document = json_of(run("pack", "who keeps it", "--if-match", ETAG, "--json"))
    assert (document["not_modified"], document["envelope"]) == (True, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "either a QUERY or --continue"),
        (["x", "--continue", "c-1"], "either a QUERY or --continue"),
        (["--continue", "c-1", "--budget", "9", "--corpus", "c"], "--continue excludes --budget, --corpus"),
        (["--continue", "c-1", "--preview"], "--continue excludes --preview"),
        (["x", "--answer-file", "-"], "--answer-file needs --continue"),
        (["x", "--preview", "--explain"], "--preview excludes --explain"),
        (["x", "--preview", "--if-match", "e"], "--preview excludes --if-match"),
        (["x", "--text", "--headers"], "--text excludes --headers"),
        (["x", "--text", "--json"], "--text and --json exclude each other"),
        (["x", "--budget", "0"], "0 is not in the range"),
        (["x", "--budget", "-5"], "-5 is not in the range"),
        (["x", "--grounding", "loose"], "'loose' is not one of"),
        (["x", "--accept", "S,X"], "'S,X' is not a list of tiers"),
        (["x", "--weight", "beauty=1"], "'beauty=1' is not of the form"),
        (["x", "--weight", "relevance=-1"], "'relevance=-1' is not of the form"),
        (["x", "--weight", "relevance=nan"], "'relevance=nan' is not of the form"),
        (["x", "--system-prompt-file", "nowhere"], "nowhere cannot be read"),
        (["--continue", "c-1", "--answer-file", "latin.txt"], "latin.txt is not valid UTF-8"),
    ],
)
def test_flags_that_exclude_each_other_are_misuse(
    run: Run, peer: Peer, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    result = run("pack", *arguments)
    assert (result.exit_code, peer.requests) == (2, [])
    assert said in result.output


def test_a_gap_in_quality_is_shown_line_by_line(run: Run, peer: Peer) -> None:
    reason = Reason.QUALITY_NOT_MET
    headers = {"CRP-Status": "503", "request_id": "r"}
    failure = explained(reason.code, reason.name, "the best tier is B", gap=json.dumps(GAP), **headers)
    peer.failures = [failure, failure]
    result = run("pack", "who keeps it", "--accept", "S,A")
    assert (result.exit_code, result.stdout) == (1, "")
    first, *rest = result.stderr.splitlines()
    assert first.startswith("QUALITY_NOT_MET: the best tier is B (request ")
    assert rest == [
        "  accepted       S, A",
        "  best tier      B",
        "  quality score  0.712",
        "  upgraded       yes",
        "  caps           tier B, reason saturation, detail 0.884 is below 0.95",
        "                 tier C, reason freshness, detail the newest fact is 120 days old",
        "  would help     a larger token budget, or a narrower query",
        "                 newer sources",
    ]
    error = json.loads(run("pack", "who keeps it", "--accept", "S,A", "--json").stdout)["error"]
    assert (error["reason"], error["details"]) == (reason.name, {"gap": GAP, "CRP-Status": "503"})


@pytest.mark.parametrize("gap", ["no JSON", '"\\u001b[2J"', "7", "null"])
def test_a_gap_that_is_no_object_is_shown_unchanged(run: Run, peer: Peer, gap: str) -> None:
    reason = Reason.QUALITY_NOT_MET
    peer.failures = [explained(reason.code, reason.name, "no", gap=gap)]
    result = run("pack", "x")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1].startswith("  gap  ")
    assert "\x1b" not in result.stderr


def test_other_refusals_stay_one_line(run: Run, peer: Peer) -> None:
    peer.failures = [because(Reason.UNKNOWN_MODEL, "no tokenizer for x: set it up under [tokenizers]")]
    result = run("pack", "who keeps it", "--model", "x")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("UNKNOWN_MODEL: no tokenizer for x: set it up")


def test_an_issued_envelope_is_shown_with_its_comparison(run: Run, peer: Peer) -> None:
    result = run("envelope", "show", str(ENVELOPE))
    assert (result.exit_code, result.stderr) == (0, "")
    assert_golden("envelope_show.txt", result.stdout)
    assert peer.requests == [pb.GetEnvelopeRequest(envelope_id=str(ENVELOPE))]
    document = json_of(run("envelope", "show", str(ENVELOPE), "--json"))
    assert (document["replay"], document["missing_fact_ids"]) == ("same", [str(OTHER)])


@pytest.mark.parametrize(
    ("replay", "code", "said"),
    [
        ("SAME", 0, "SAME: built again, it is what was issued, byte by byte"),
        ("FACTS_SAME", 0, "FACTS SAME: every fact is unchanged"),
        ("ERASED", 0, "ERASED: some of its facts were erased since"),
        ("SESSION_OVER", 0, "SESSION OVER: it used facts or an answer of a session that is over"),
        ("DIFFERENT", 1, "DIFFERENT: the store has other content than it had then"),
        ("TRIMMED", 0, "TRIMMED: its revisions are no longer kept"),
    ],
)
def test_only_different_content_of_the_store_is_a_failure(
    run: Run, peer: Peer, replay: str, code: int, said: str
) -> None:
    peer.answers["GetEnvelope"] = messages.issued(replay=pb.Replay.Value(f"REPLAY_{replay}"), envelope=None)
    result = run("envelope", "show", str(ENVELOPE))
    assert result.exit_code == code
    assert result.stdout.startswith(said)
    assert "as it is built now" not in result.stdout
    assert run("envelope", "show", str(ENVELOPE), "--json").exit_code == code


def test_an_envelope_that_was_never_issued_is_not_found(run: Run, peer: Peer) -> None:
    peer.failures = [because(Reason.ENVELOPE_NOT_FOUND, "no such envelope")]
    result = run("envelope", "show", str(THIRD))
    assert (result.exit_code, result.stderr.startswith("ENVELOPE_NOT_FOUND: no such envelope")) == (1, True)
