"""`drillcore verify`: its output, in words and as JSON, and its exit code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_formats.audit.checkpoints import cosign
from drillcore_formats.audit.notes import COSIGNATURE_V1, Note
from tests.support.data.audit_bundles import Bundle, packed
from tests.support.data.audit_logs import Key, Log, make_log, store_key, written

LOG = make_log()
VKEY = LOG.keys[0].verifier.encode()
VERIFIED, WRONG, MISUSED = 0, 1, 2

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a directory with a valid file of each kind."""
    monkeypatch.chdir(tmp_path)
    Path("audit.ndjson").write_bytes(written(LOG.export()))
    Path("some.ndjson").write_bytes(written(LOG.selection([1, 3])))
    Path("rules.zip").write_bytes(packed(Bundle(LOG).make().members()).getvalue())
    Path("record.tlog-proof").write_text(LOG.proof(3))
    Path("pair.json").write_bytes(LOG.pair(5))
    Path("earlier").write_text(LOG.checkpoint(5))
    Path("server.vkey").write_text(f"# the server's key\n\n{VKEY}\n")

    def run(*arguments: str) -> Result:
        return CliRunner(env={"HOME": str(tmp_path), "NO_COLOR": "1"}).invoke(main, ["verify", *arguments])

    return run


def answer(result: Result) -> Any:
    assert result.stderr == ""
    return json.loads(result.stdout)


EVERY_KIND = ["audit.ndjson", "some.ndjson", "rules.zip", "record.tlog-proof", "pair.json"]


@pytest.mark.parametrize("key", [VKEY, "server.vkey"])
def test_every_kind_of_file_is_recognized_and_verified(run: Run, key: str) -> None:
    result = run(*EVERY_KIND, "--key", key)
    assert result.exit_code == VERIFIED
    for path, kind in [
        ("audit.ndjson", "audit export"),
        ("rules.zip", "export bundle"),
        ("record.tlog-proof", "proof of a record"),
        ("pair.json", "pair of checkpoints"),
    ]:
        assert f"{path}: {kind}, verified" in result.stdout
    assert "  records: 7 verified, 0 erased with proof, 0 tampered" in result.stdout
    assert "  note: a selection: it shows that these records are in the log" in result.stdout


def test_every_kind_of_file_is_verified_as_json(run: Run) -> None:
    result = run(*EVERY_KIND, "--key", VKEY, "--json")
    document = answer(result)
    assert (result.exit_code, document["ok"]) == (VERIFIED, True)
    assert [(file["path"], file["evidence"], file["verified"]) for file in document["files"]] == [
        ("audit.ndjson", "audit export", 7),
        ("some.ndjson", "audit export", 2),
        ("rules.zip", "export bundle", 7),
        ("record.tlog-proof", "proof of a record", 1),
        ("pair.json", "pair of checkpoints", 0),
    ]
    assert document["files"][0]["details"]["store"] == str(LOG.store)


def test_a_tampered_record_is_named_with_its_fault(run: Run) -> None:
    lines = LOG.export()
    lines[4]["body"]["operator"] = "mallory"
    Path("audit.ndjson").write_bytes(written(lines))
    result = run("audit.ndjson", "--key", VKEY)
    record = LOG.lines[3]["body"]["id"]
    assert result.exit_code == WRONG
    assert "audit.ndjson: audit export, NOT verified" in result.stdout
    assert f"  record 3 ({record}): its body is not the one that was signed" in result.stdout
    problems = answer(run("audit.ndjson", "--key", VKEY, "--json"))["files"][0]["problems"]
    assert problems == [{"problem": "its body is not the one that was signed", "index": 3, "record": record}]


def test_one_wrong_file_among_several_is_a_failure(run: Run) -> None:
    Path("record.tlog-proof").write_text(LOG.proof(3).replace("index 3", "index 2"))
    result = run(*EVERY_KIND, "--key", VKEY)
    assert result.exit_code == WRONG
    assert result.stdout.count(", NOT verified") == 1


def test_another_key_verifies_nothing(run: Run) -> None:
    foreign_key = store_key(seed="other").verifier.encode()
    result = run(*EVERY_KIND, "--key", foreign_key)
    assert result.exit_code == WRONG
    assert result.stdout.count(", NOT verified") == len(EVERY_KIND)


def test_a_log_must_continue_a_pinned_checkpoint(run: Run) -> None:
    assert run("audit.ndjson", "rules.zip", "--key", VKEY, "--checkpoint", "earlier").exit_code == VERIFIED
    Path("later").write_text(make_log(9).checkpoint())
    result = run("audit.ndjson", "--key", VKEY, "--checkpoint", "later")
    assert result.exit_code == WRONG
    assert "the log was rolled back: it had 9 records, and is shown with 7" in result.stdout


def test_a_consistency_proof_links_a_proof_to_a_pinned_checkpoint(run: Run) -> None:
    alone = run("record.tlog-proof", "some.ndjson", "--key", VKEY, "--checkpoint", "earlier")
    assert alone.exit_code == WRONG
    assert alone.stdout.count("give their consistency proof too") == 2
    pair = run("record.tlog-proof", "some.ndjson", "pair.json", "--key", VKEY, "--checkpoint", "earlier")
    assert pair.exit_code == VERIFIED


def test_a_wrong_consistency_proof_helps_no_other_file(run: Run) -> None:
    fork = Log(lines=list(LOG.lines[:4]))
    for _ in range(3):
        fork.append("DELETE")
    Path("earlier").write_text(fork.checkpoint(5))
    pair = json.loads(Path("pair.json").read_text())
    Path("pair.json").write_text(json.dumps(pair | {"first": fork.checkpoint(5)}))
    result = run("record.tlog-proof", "pair.json", "--key", VKEY, "--checkpoint", "earlier")
    assert result.exit_code == WRONG
    assert result.stdout.count(", NOT verified") == 2


def test_witnesses_must_have_cosigned(run: Run) -> None:
    witness, absent = Key("witness", COSIGNATURE_V1), Key("absent", COSIGNATURE_V1)
    lines = LOG.export()
    lines[0]["checkpoint"] = cosign(Note.parse(LOG.checkpoint()), witness.verifier, 5, witness.sign).encode()
    Path("audit.ndjson").write_bytes(written(lines))
    both = ["--witness", witness.verifier.encode(), "--witness", absent.verifier.encode()]
    assert run("audit.ndjson", "--key", VKEY, *both[:2]).exit_code == VERIFIED
    assert run("audit.ndjson", "--key", VKEY, *both, "--witnesses-required", "1").exit_code == VERIFIED
    result = run("audit.ndjson", "--key", VKEY, *both)
    assert result.exit_code == WRONG
    assert "cosigned by 1 of the witnesses, 2 are required" in result.stdout


def test_control_characters_of_a_file_do_not_reach_the_terminal(run: Run) -> None:
    lines = LOG.export()
    lines[4]["\x1b[2J"] = "x"
    Path("audit.ndjson").write_bytes(written(lines))
    result = run("audit.ndjson", "--key", VKEY)
    assert result.exit_code == WRONG
    assert "\x1b" not in result.stdout
    assert "vouches for: \\x1b[2J" in result.stdout


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b"[]", b"\xff\xfe", b'{"class_uid": 6003}\n', b"{\n"])
def test_a_file_of_another_kind_is_misuse(run: Run, content: bytes) -> None:
    Path("what").write_bytes(content)
    result = run("what", "--key", VKEY, "--json")
    assert result.exit_code == MISUSED
    assert answer(result)["error"]["reason"] == "UNKNOWN_FILE"


def test_a_pair_of_checkpoints_may_take_several_lines(run: Run) -> None:
    Path("pair.json").write_text(json.dumps(json.loads(LOG.pair(5)), indent=2))
    assert run("pair.json", "--key", VKEY).exit_code == VERIFIED


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit.ndjson"],
        ["--key", VKEY],
        ["missing", "--key", VKEY],
        ["audit.ndjson", "--key", "missing"],
        ["audit.ndjson", "--key", "audit.ndjson"],
        ["audit.ndjson", "--key", "rules.zip"],
        ["audit.ndjson", "--key", VKEY[:-1]],
        ["audit.ndjson", "--key", Key("witness", COSIGNATURE_V1).verifier.encode()],
        ["audit.ndjson", "--key", VKEY, "--witness", VKEY],
        ["audit.ndjson", "--key", VKEY, "--witnesses-required", "1"],
        ["audit.ndjson", "--key", VKEY, "--checkpoint", "missing"],
        ["audit.ndjson", "--key", VKEY, "--checkpoint", "audit.ndjson"],
    ],
)
def test_wrong_usage_is_distinguished_from_a_wrong_file(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == MISUSED
    assert "Error" in result.stderr


def test_a_key_file_without_keys_is_misuse(run: Run) -> None:
    Path("server.vkey").write_text("# none yet\n")
    assert run("audit.ndjson", "--key", "server.vkey").exit_code == MISUSED


@pytest.mark.parametrize("path", EVERY_KIND)
def test_any_changed_byte_changes_the_exit_code_without_a_crash(run: Run, path: str) -> None:
    data = Path(path).read_bytes()
    for place in range(0, len(data), max(1, len(data) // 60)):
        changed = data[:place] + bytes([data[place] ^ 0x01]) + data[place + 1 :]
        Path("changed").write_bytes(changed)
        result = run("changed", "--key", VKEY)
        assert result.exception is None or isinstance(result.exception, SystemExit), (place, result.exception)
        if result.exit_code == VERIFIED:
            assert harmless(path, data, changed, place), f"byte {place} of {path} was changed and nobody noticed"


def harmless(path: str, data: bytes, changed: bytes, place: int) -> bool:
    """Whether a byte proves nothing: the filter in the first line, or times and attributes of ZIP members."""
    if path.endswith(".zip"):
        return unpacked(data) == unpacked(changed)
    in_first_line = path.endswith(".ndjson") and place < data.index(b"\n")
    return in_first_line and b'"filter"' in data[place - 30 : place + 30]


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
