"""A lying server is found out: every change of an export, a proof or a checkpoint is refused and named.

The server here has the honest log, its current key and all files. It cannot replace the pinned key.
"""

from __future__ import annotations

import base64
import io
import json
import uuid
import zlib
from collections.abc import Callable

import pytest

from drillcore_formats.audit.checkpoints import Checkpoint, log_origin, make_checkpoint
from drillcore_formats.audit.exported import verify_export
from drillcore_formats.audit.findings import Outcome, RecordOutcome, Report
from drillcore_formats.audit.keys import KeyChain
from drillcore_formats.audit.leaves import SERVER_LOG, Leaf
from drillcore_formats.audit.notes import Note
from drillcore_formats.audit.pairs import make_pair, verify_checkpoints
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.proofs import Proof, verify_proof
from tests.support.data import audit_trees
from tests.support.data.audit_logs import STORE, Line, Log, base64_text, make_log, store_key, written


def verified(lines: list[Line], pins: Pins) -> Report:
    return verify_export(io.BytesIO(written(lines)), pins)


def told(report: Report) -> dict[int | None, str]:
    """Problems by the index of their record. Problems of the whole file are under None."""
    assert report.problems_count == len(report.problems)
    assert len({problem.index for problem in report.problems}) == report.problems_count, (
        "each record has one problem at most"
    )
    return {problem.index: problem.problem for problem in report.problems}


def changed(line: Line, **fields: object) -> None:
    """Changes fields of a leaf and keeps the rest as it was signed."""
    leaf = Leaf.decode(base64.b64decode(line["leaf"]))
    values = {name: getattr(leaf, name) for name in Leaf.__slots__} | fields
    line["leaf"] = base64_text(Leaf(**values).encode())


def renumbered(lines: list[Line]) -> list[Line]:
    """The lines with their records renumbered as in an honest log."""
    first, *records, _ = lines
    return [first, *({**line, "index": index} for index, line in enumerate(records)), {"end": len(records)}]


OTHER_TREE = "the records are not those that the checkpoint was signed for"


def test_an_honest_log_is_verified() -> None:
    log = make_log(9)
    report = verified(log.export(), log.pins)
    assert report.ok
    assert (report.verified, report.erased, report.tampered, report.problems) == (9, 0, 0, ())
    assert report.details["tree size"] == 9


@pytest.mark.parametrize("name", ["incarnation", "versionstamp"])
def test_a_record_moved_in_time_is_found(name: str) -> None:
    log = make_log()
    lines = log.export()
    changed(lines[4], **{name: {"incarnation": 0, "versionstamp": bytes(10)}[name]})
    problems = told(verified(lines, log.pins))
    assert problems[3].startswith("it is out of order")
    assert problems[None].startswith(OTHER_TREE)


def test_a_record_moved_in_time_without_leaving_its_place_is_found_by_the_tree() -> None:
    log = make_log()
    lines = log.export()
    changed(lines[-2], versionstamp=b"\xff" * 10)
    assert told(verified(lines, log.pins))[None].startswith(OTHER_TREE)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("store", uuid.uuid4(), "it belongs to another store"),
        ("log", uuid.uuid4(), "it belongs to another log"),
        ("record", uuid.uuid4(), "the signature of the record is not right"),
        ("commitment", bytes(32), "the signature of the record is not right"),
        ("key_hash", bytes(4), "it is signed by a key that is not trusted (00000000)"),
        ("signature", bytes(64), "the signature of the record is not right"),
    ],
)
def test_a_changed_field_of_a_leaf_is_found(name: str, value: object, problem: str) -> None:
    log = make_log()
    lines = log.export()
    changed(lines[4], **{name: value})
    problems = told(verified(lines, log.pins))
    assert problems[3].startswith(problem)
    assert problems.keys() == {3, None}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda line: line["body"].update(operator="mallory"), "its body is not the one that was signed"),
        (lambda line: line["body"].update(new=1), "its body is not the one that was signed"),
        (lambda line: line["body"].pop("nodes"), "its body is not the one that was signed"),
        (lambda line: line.update(salt=base64_text(bytes(16))), "its body is not the one that was signed"),
        (lambda line: line.update(salt=line["salt"][:-4]), "its salt"),
        (lambda line: line["private"].update(query="other"), "its private part is not the one that was signed"),
        (lambda line: line.update(private_salt=base64_text(bytes(16))), "its private part is not the one"),
        (lambda line: line.update(private={}), "its private part is not the one that was signed"),
        (lambda line: line.pop("body"), "it is shown without its body"),
        (lambda line: line.pop("leaf"), "its leaf is missing"),
        (lambda line: line.pop("index"), "its index is not a whole number"),
        (lambda line: line.update(index=True), "its index is not a whole number"),
        (lambda line: line.update(approved="yes"), "it is shown with something that nothing vouches for: approved"),
    ],
)
def test_a_changed_line_is_found(change: Callable[[Line], object], problem: str) -> None:
    log = make_log()
    lines = log.export()
    change(lines[4])
    report = verified(lines, log.pins)
    assert told(report)[3].startswith(problem)
    assert (report.verified, report.tampered) == (6, 1)


def test_a_record_given_a_private_part_it_never_had_is_found() -> None:
    log = make_log()
    lines = log.export()
    lines[3] |= {"private": {"query": "x"}, "private_salt": base64_text(bytes(16))}
    assert told(verified(lines, log.pins)) == {2: "it is shown with a private part, but was made without one"}


@pytest.mark.parametrize("index", [0, 3, 6])
def test_a_dropped_record_is_found(index: int) -> None:
    log = make_log()
    lines = log.export()
    del lines[1 + index]
    problems = told(verified(lines, log.pins))
    assert problems[index] == f"record {index} is missing"
    assert problems[None] == "the last line says 7 records, there are 6"


@pytest.mark.parametrize("index", [0, 3, 6])
def test_a_dropped_record_is_found_though_the_others_are_renumbered(index: int) -> None:
    log = make_log()
    lines = log.export()
    del lines[1 + index]
    assert told(verified(renumbered(lines), log.pins)) == {6: "record 6 is missing"}


def test_a_dropped_record_is_found_though_a_stranger_signs_a_smaller_checkpoint() -> None:
    log, thief = make_log(), store_key(seed="thief")
    shorter = make_log(6)
    lines = shorter.export()
    lines[0]["checkpoint"] = shorter.checkpoint(key=thief)
    assert told(verified(lines, log.pins)) == {None: "the checkpoint is not signed by a trusted key"}


def test_an_inserted_record_is_found() -> None:
    log = make_log()
    lines = log.export()
    lines.insert(4, make_log(9).lines[8])
    problems = told(verified(renumbered(lines), log.pins))
    assert problems[4].startswith("it is out of order")
    assert problems[7] == "it is said to be at 7, but the log has only 7 records"
    assert problems[None].startswith(OTHER_TREE)


def test_an_inserted_record_of_a_strangers_key_is_found() -> None:
    log = make_log(3)
    lines = log.export()
    forged = log.fork()
    forged.append(key=store_key(seed="stranger"))
    lines[4:] = [forged.lines[3], {"end": 4}]
    assert told(verified(lines, log.pins))[3].startswith("it is said to be at 3, but the log has only 3")
    lines[0] |= {"size": 4, "checkpoint": forged.checkpoint()}
    assert told(verified(lines, log.pins))[3].startswith("it is signed by a key that is not trusted")


def test_swapped_records_are_found() -> None:
    log = make_log()
    lines = log.export()
    lines[2], lines[5] = lines[5], lines[2]
    problems = told(verified(renumbered(lines), log.pins))
    assert {2, 3, 4} & problems.keys()
    assert all(problem.startswith(("it is out of order", OTHER_TREE)) for problem in problems.values())


def test_reordered_lines_are_found() -> None:
    log = make_log()
    lines = log.export()
    lines[2], lines[3] = lines[3], lines[2]
    problems = {problem.problem for problem in verified(lines, log.pins).problems}
    assert "record 1 is missing" in problems
    assert "it is said to be at 1, where another record is already" in problems


def test_a_duplicate_record_is_found() -> None:
    log = make_log()
    lines = log.export()
    lines[4] = {**lines[2], "index": 3}
    assert told(verified(lines, log.pins))[3] == "it is there twice"


def test_a_duplicate_record_in_a_selection_is_found() -> None:
    log = make_log()
    lines = log.selection([1, 3])
    lines.insert(2, dict(lines[1]))
    assert told(verified(lines, log.pins))[1] == "it is said to be at 1, where another record is already"


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_a_truncated_export_is_found(kept: int) -> None:
    log = make_log()
    problems = {problem.problem for problem in verified(log.export()[: 1 + kept], log.pins).problems}
    assert f"the export is cut short: it has {kept} records and no last line" in problems


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_a_truncated_export_is_found_though_its_last_line_counts_what_is_left(kept: int) -> None:
    log = make_log()
    lines = [*log.export()[: 1 + kept], {"end": kept}]
    assert told(verified(lines, log.pins)) == {kept: f"records {kept} to 6 are missing"}


def test_an_export_cut_within_a_line_is_found() -> None:
    log = make_log()
    data = written(log.export())
    report = verify_export(io.BytesIO(data[: len(data) // 2]), log.pins)
    assert any("is not JSON" in problem.problem for problem in report.problems)
    assert any("cut short" in problem.problem for problem in report.problems)


def test_bytes_after_the_last_line_are_refused() -> None:
    log = make_log()
    lines = [*log.export(), log.lines[0]]
    assert told(verified(lines, log.pins)) == {None: "there is something after the last line of the export"}


def test_swapped_signatures_are_found() -> None:
    log = make_log()
    lines = log.export()
    first, second = (Leaf.decode(leaf).signature for leaf in log.leaves[2:4])
    changed(lines[3], signature=second)
    changed(lines[4], signature=first)
    problems = told(verified(lines, log.pins))
    assert problems[2] == problems[3] == "the signature of the record is not right"


def test_swapped_bodies_are_found() -> None:
    log = make_log()
    lines = log.export()
    for name in ("salt", "body"):
        lines[1][name], lines[3][name] = lines[3][name], lines[1][name]
    problems = told(verified(lines, log.pins))
    assert problems == dict.fromkeys([0, 2], "its body is not the one that was signed")


def test_a_log_rolled_back_behind_a_pinned_checkpoint_is_found() -> None:
    log, shorter = make_log(7), make_log(5)
    pins = Pins(log.pins.keys, (Note.parse(log.checkpoint()),))
    problem = {None: "the log was rolled back: it had 7 records, and is shown with 5"}
    assert told(verified(shorter.export(), pins)) == problem
    assert told(verify_proof(shorter.proof(2), pins)) == {2: problem[None]}


def forked(records: int = 7, at: int = 3) -> tuple[Log, Log]:
    """An honest log, and a fork of it that the same server signed."""
    log = make_log(records)
    fork = make_log(at)
    while len(fork.lines) < records:
        fork.append("DELETE")
    return log, fork


def test_a_forked_log_is_found_by_a_pinned_checkpoint_of_the_same_size() -> None:
    log, fork = forked()
    assert verified(fork.export(), fork.pins).ok
    pins = Pins(log.pins.keys, (Note.parse(log.checkpoint()),))
    problem = {None: "the log was forked: there are two different logs of 7 records"}
    assert told(verified(fork.export(), pins)) == problem
    assert told(verify_proof(fork.proof(2), pins)) == {2: problem[None]}


def test_a_forked_log_is_found_by_a_pinned_checkpoint_of_an_earlier_size() -> None:
    log, fork = forked()
    pins = Pins(log.pins.keys, (Note.parse(log.checkpoint(5)),))
    assert verified(log.export(), pins).ok
    assert told(verified(fork.export(), pins)) == {
        None: "the log was forked: its first 5 records are not those of the pinned checkpoint"
    }


def test_a_proof_or_selection_must_prove_that_it_continues_a_pinned_checkpoint() -> None:
    log = make_log()
    pins = Pins(log.pins.keys, (Note.parse(log.checkpoint(5)),))
    for report in (verify_proof(log.proof(2), pins), verified(log.selection([1]), pins)):
        assert told(report)[None].startswith("it is not shown that the log of 7 records continues the pinned")


def test_a_pinned_checkpoint_of_another_log_is_refused() -> None:
    log, server_log = make_log(), make_log(log=SERVER_LOG)
    pins = Pins(log.pins.keys, (Note.parse(server_log.checkpoint()),))
    assert told(verified(log.export(), pins))[None] == f"no pinned checkpoint is of {log_origin(STORE, log.log)}"


def test_a_forged_pinned_checkpoint_is_refused() -> None:
    log = make_log()
    pins = Pins(log.pins.keys, (Note.parse(log.checkpoint(key=store_key(seed="stranger"))),))
    assert told(verified(log.export(), pins)) == {None: "the pinned checkpoint is not signed by a trusted key"}


def test_checkpoints_of_a_fork_or_of_a_rolled_back_log_are_no_pair() -> None:
    log, fork = forked()
    proof = audit_trees.consistency(5, fork.leaves)
    for data, problem in [
        (make_pair(log.checkpoint(5), fork.checkpoint(), proof), "it is not shown that the log of 7 records"),
        (make_pair(log.checkpoint(), fork.checkpoint(), []), "the log was forked"),
        (make_pair(log.checkpoint(7), log.checkpoint(5), proof), "the log was rolled back: it had 7 records"),
        (make_pair(log.checkpoint(5), log.checkpoint(), proof[:-1]), "it is not shown that the log of 7 records"),
    ]:
        assert told(verify_checkpoints(data, log.pins))[None].startswith(problem)
    assert verify_checkpoints(log.pair(5), log.pins).ok


def test_a_pair_whose_first_checkpoint_a_stranger_signed_is_refused() -> None:
    log = make_log()
    proof = audit_trees.consistency(5, log.leaves)
    data = make_pair(log.checkpoint(5, key=store_key(seed="stranger")), log.checkpoint(), proof)
    assert told(verify_checkpoints(data, log.pins)) == {None: "the first checkpoint is not signed by a trusted key"}


def test_a_replaced_key_is_found() -> None:
    log, other_log = make_log(), make_log(keys=[store_key(seed="other")])
    assert told(verified(other_log.export(), log.pins)) == {None: "the pinned key is not in the chain of keys"}
    assert told(verify_proof(other_log.proof(2), log.pins)) == {2: "the checkpoint is not signed by a trusted key"}


def test_a_replaced_key_is_found_though_it_is_in_the_chain() -> None:
    log, other_log = make_log(), make_log(keys=[store_key(), store_key(seed="other")])
    lines = other_log.export()
    genuine = log.chain.document()["keys"]
    stranger = lines[0]["keys"]["keys"][1]
    for signature in (None, base64_text(bytes(64)), base64_text(store_key(seed="other").sign(b"me"))):
        lines[0]["keys"]["keys"] = [*genuine, {**stranger, "signature": signature}]
        assert told(verified(lines, log.pins))[None].startswith(
            "key 2 of the chain has no signature" if signature is None else "the signature of key 2 by key 1"
        )


def test_a_key_vouched_for_at_another_time_or_number_is_refused() -> None:
    log = make_log(keys=[store_key(), store_key(seed="2"), store_key(seed="3")])
    assert verified(log.export(), log.pins).ok
    for change in ({"introduced_at": "2020-01-01T00:00:00.000000Z"}, {"number": 3}, {"public_key": "AAAA"}):
        lines = log.export()
        lines[0]["keys"]["keys"][1] |= change
        assert "key 2" in told(verified(lines, log.pins))[None]


def test_keys_before_the_pinned_one_are_not_trusted() -> None:
    log = make_log(3)
    log.rotate("2")
    log.append()
    pins = Pins((log.keys[1].verifier,))
    problems = told(verified(log.export(), pins))
    assert problems.keys() == {0, 1, 2}
    assert all(problem.startswith("it is signed by a key that is not trusted") for problem in problems.values())


def test_records_of_a_rotated_key_are_verified() -> None:
    log = make_log(3)
    log.rotate("2")
    log.append()
    assert verified(log.export(), log.pins).ok
    assert verify_proof(log.proof(1), log.pins).ok
    assert verify_checkpoints(log.pair(2), log.pins).ok


def test_a_record_of_an_old_key_after_a_record_of_a_new_key_is_found() -> None:
    log = make_log(3)
    log.rotate("2")
    log.append()
    log.append(key=log.keys[0])
    assert told(verified(log.export(), log.pins)) == {4: "it is signed by key 1, after key 2 had taken over"}


def test_a_record_of_the_old_key_after_the_rotations_record_is_found() -> None:
    log = make_log(3, log=SERVER_LOG)
    log.append("ROTATE", detail={"key_number": 2, "public_key": "x"})
    log.rotate("2")
    log.append(key=log.keys[0])
    assert told(verified(log.export(), log.pins)) == {4: "it is signed by key 1, after key 2 had taken over"}


def test_a_checkpoint_of_an_old_key_over_records_of_a_new_one_is_found() -> None:
    log = make_log(3)
    log.rotate("2")
    log.append()
    lines = log.export()
    lines[0]["checkpoint"] = log.checkpoint(key=log.keys[0])
    assert told(verified(lines, log.pins)) == {3: "it is signed by key 2, the checkpoint by the older key 1"}


def test_records_of_another_store_or_log_cannot_be_replayed() -> None:
    log = make_log()
    for other_log, problem in [
        (make_log(store=uuid.uuid4()), "it belongs to another store"),
        (make_log(log=SERVER_LOG), "it belongs to another log"),
    ]:
        lines = [log.header(), *other_log.lines, {"end": 7}]
        problems = told(verified(lines, log.pins))
        assert problems.keys() == {None, *range(7)}
        assert problems[3].startswith(problem)


def test_an_export_of_another_store_or_log_cannot_be_passed_off() -> None:
    log = make_log()
    other_log = make_log(store=uuid.uuid4())
    assert told(verified(other_log.export(), log.pins)) == {
        None: f"no key of store {other_log.store} is pinned; give a verifier key of this store"
    }
    lines = make_log(log=SERVER_LOG).export()
    lines[0]["log"] = str(log.log)
    assert told(verified(lines, log.pins))[None].startswith("the checkpoint is of")


def erased_log(*, erasure: bool) -> Log:
    log = make_log(2)
    log.append(private={"query": "of a person"}, private_key=77, erased=True)
    log.append(private={"query": "of another"}, private_key=78)
    if erasure:
        log.append("ERASE", detail={"erased_keys": [5, 77]})
    return log


def test_an_erased_record_with_its_erasure_has_an_outcome_of_its_own() -> None:
    log = erased_log(erasure=True)
    outcomes: list[RecordOutcome] = []
    report = verify_export(io.BytesIO(written(log.export())), log.pins, on_record=outcomes.append)
    assert (report.ok, report.verified, report.erased) == (True, 4, 1)
    assert {result.index: result.outcome for result in outcomes} == {
        index: Outcome.ERASED if index == 2 else Outcome.VERIFIED for index in range(5)
    }


def test_an_erased_record_without_an_erasure_is_found() -> None:
    log = erased_log(erasure=False)
    report = verified(log.export(), log.pins)
    assert told(report) == {2: "its private part is missing without an erasure"}
    assert (report.verified, report.erased, report.tampered) == (3, 0, 1)


@pytest.mark.parametrize(
    "said",
    [
        {"action": "ERASE", "detail": {"erased_keys": [76]}},
        {"action": "UPDATE", "detail": {"erased_keys": [77]}},
        {"action": "ERASE", "detail": {"erased_keys": [77]}, "outcome": "PERMISSION_DENIED"},
        {"action": "ERASE", "detail": {"erased_keys": 77}},
        {"action": "ERASE"},
    ],
)
def test_an_erasure_of_another_source_does_not_explain_it(said: Line) -> None:
    log = erased_log(erasure=False)
    log.append(**said)
    assert told(verified(log.export(), log.pins)) == {2: "its private part is missing without an erasure"}


def test_a_private_part_that_is_left_out_is_found() -> None:
    log = erased_log(erasure=True)
    lines = log.export()
    del lines[4]["private"], lines[4]["private_salt"]
    assert told(verified(lines, log.pins)) == {3: "its private part is missing without an erasure"}
    lines[4]["erased"] = True
    assert told(verified(lines, log.pins)) == {3: "its private part is missing without an erasure"}


def test_a_record_that_still_exists_cannot_be_called_erased() -> None:
    log = make_log()
    lines = log.export()
    lines[3]["erased"] = True
    assert told(verified(lines, log.pins)) == {2: "it is said to be erased, but nothing of it is"}


def test_a_selection_includes_the_erasure_that_explains_it() -> None:
    log = erased_log(erasure=True)
    report = verified(log.selection([1, 2], explaining=[4]), log.pins)
    assert (report.ok, report.verified, report.erased) == (True, 1, 1)
    assert told(verified(log.selection([1, 2]), log.pins))[2] == "its private part is missing without an erasure"


def test_an_explaining_erasure_that_is_not_in_the_log_is_refused() -> None:
    log = erased_log(erasure=False)
    liar = log.fork()
    liar.append("ERASE", detail={"erased_keys": [77]})
    explaining = liar.proven(4) | {"of": "erasure"}
    lines = log.selection([2])
    lines.insert(2, explaining)
    problems = told(verified(lines, log.pins))
    assert problems[4] == "a tree of 4 leaves has no leaf at index 4"
    assert problems[2] == "its private part is missing without an erasure"


def test_a_record_that_is_no_erasure_does_not_explain() -> None:
    log = erased_log(erasure=True)
    assert told(verified(log.selection([1], explaining=[0]), log.pins)) == {
        0: "it is said to be about an erasure, but is not"
    }


def test_a_record_of_a_selection_needs_its_own_proof() -> None:
    log = make_log()
    lines = log.selection([1, 3])
    lines[1]["proof"], lines[2]["proof"] = lines[2]["proof"], lines[1]["proof"]
    assert told(verified(lines, log.pins)) == dict.fromkeys([1, 3], "the inclusion proof does not lead to the root")
    del lines[1]["proof"], lines[2]["proof"]
    assert told(verified(lines, log.pins)) == dict.fromkeys([1, 3], "it is shown without a proof that it is in the log")


def test_an_export_from_the_middle_has_all_records_with_their_proofs() -> None:
    log = make_log()
    whole = [log.header(first=4), *map(log.proven, range(4, 7)), {"end": 3}]
    assert verified(whole, log.pins).ok
    assert told(verified([*whole[:2], *whole[3:]], log.pins))[5] == "record 5 is missing"
    assert told(verified([*whole[:3], {"end": 2}], log.pins)) == {6: "record 6 is missing"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"drillcore_audit": 2}, "it is not an audit export of format 1"),
        ({"store": "x"}, "the id of the store of the export is not a UUID"),
        ({"log": str(uuid.uuid4()).upper()}, "the id of the log of the export is not a UUID"),
        ({"size": 6}, "the export is said to be of 6 records, its checkpoint of 7"),
        ({"size": "7"}, "the size of the export's tree is not a whole number"),
        ({"first": 8}, "the export begins at 8, the log ends at 7"),
        ({"first": -1}, "the first index of the export is not a whole number"),
        ({"complete": "yes"}, "the first line of the export lacks"),
        ({"checkpoint": None}, "the first line of the export lacks"),
        ({"checkpoint": "hello"}, "the note is not a text"),
        ({"keys": None}, "the chain of keys is missing"),
        ({"keys": {"store": str(STORE), "keys": []}}, "a chain has 1 to"),
    ],
)
def test_a_wrong_first_line_is_refused(change: Line, problem: str) -> None:
    log = make_log()
    lines = log.export()
    lines[0] |= change
    report = verified(lines, log.pins)
    assert told(report)[None].startswith(problem)
    assert report.verified == 0


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\n", b'{"index": 1e0}\n', b"[" * 100_000])
def test_an_invalid_line_is_refused(line: bytes) -> None:
    log = make_log(2)
    first, *records, end = written(log.export()).splitlines(keepends=True)
    report = verify_export(io.BytesIO(b"".join([first, records[0], line, records[1], end])), log.pins)
    assert not report.ok
    assert report.problems[0].index == 1


def test_a_line_with_a_duplicate_field_is_refused() -> None:
    log = make_log(2)
    data = written(log.export()).replace(b'"body": {', b'"body": {"operator": "mallory", ', 1)
    assert told(verify_export(io.BytesIO(data), log.pins))[0] == "its line names something twice"


def test_a_line_without_end_is_not_read_into_memory() -> None:
    log = make_log(2)
    first = written(log.export()[:1])
    report = verify_export(io.BytesIO(first + b"x" * (9 << 20)), log.pins)
    assert "a line has more than 8,388,608 bytes" in {problem.problem for problem in report.problems}


def test_an_empty_log_is_verified() -> None:
    log = Log()
    assert verified(log.export(), log.pins).ok
    assert not verified([], log.pins).ok


@pytest.mark.parametrize("index", [0, 3, 6])
def test_a_proof_shows_its_record_with_and_without_content(index: int) -> None:
    log = make_log()
    assert verify_proof(log.proof(index), log.pins).verified == 1
    bare = verify_proof(log.proof(index, without=["salt", "body", "private", "private_salt"]), log.pins)
    assert bare.ok
    assert bare.remarks == ("the proof shows that the record is in the log, not what it says",)


def test_a_proof_of_a_record_whose_private_part_is_not_shown_says_so() -> None:
    log = make_log()
    report = verify_proof(log.proof(3, without=["private", "private_salt"]), log.pins)
    assert (report.ok, report.remarks) == (
        True,
        ("the record's private part is not shown: it was left out, or erased",),
    )


def proof_with(log: Log, index: int, **changed: object) -> str:
    proof = Proof.parse(log.proof(3))
    values = {name: getattr(proof, name) for name in Proof.__slots__} | {"index": index} | changed
    return Proof(**values).encode()


def test_a_proof_of_another_place_record_or_checkpoint_is_refused() -> None:
    log, fork = forked()
    record = Proof.parse(log.proof(3)).record
    lies = {
        proof_with(log, 2): "the inclusion proof does not lead to the root",
        proof_with(log, 7): "a tree of 7 leaves has no leaf at index 7",
        proof_with(log, 3, hashes=()): "the inclusion proof is too short",
        proof_with(log, 3, checkpoint=fork.checkpoint()): "the inclusion proof does not lead to the root",
        proof_with(log, 3, checkpoint=log.checkpoint(key=store_key(seed="x"))): "the checkpoint is not signed by",
        proof_with(log, 3, checkpoint=make_log(log=SERVER_LOG).checkpoint()): "the checkpoint is of",
        proof_with(log, 3, record={**record, "body": {}}): "its body is not the one that was signed",
        proof_with(log, 3, record={**record, "private": {}}): "its private part is not the one that was signed",
        proof_with(log, 3, record={**record, "leaf": log.lines[2]["leaf"]}): "the inclusion proof does not lead",
    }
    for text, problem in lies.items():
        (found,) = verify_proof(text, log.pins).problems
        assert found.problem.startswith(problem)
        assert found.record is not None


def test_a_proof_of_a_record_that_the_server_did_not_sign_is_refused_though_it_is_in_the_tree() -> None:
    log = make_log(3)
    log.append(key=store_key(seed="stranger"))
    log.append()
    assert told(verify_proof(log.proof(3), log.pins))[3].startswith("it is signed by a key that is not trusted")
    changed(log.lines[4], signature=bytes(64))
    assert told(verify_proof(log.proof(4), log.pins)) == {4: "the signature of the record is not right"}


def test_a_proof_of_a_new_keys_record_under_a_checkpoint_of_the_old_key_is_refused() -> None:
    log = make_log(3)
    log.rotate("2")
    log.append()
    record = Proof.parse(log.proof(3)).record
    text = proof_with(log, 3, record=record, hashes=tuple(log.inclusion(3)), checkpoint=log.checkpoint(key=log.keys[0]))
    assert told(verify_proof(text, log.pins)) == {3: "it is signed by key 2, its checkpoint by the older key 1"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.replace(b":", b": ", 1), "the record of the proof is not in canonical JSON"),
        (lambda data: data[:-1] + b',"z":1}', "the record of the proof has something that nothing vouches for: z"),
        (lambda _: b"[]", "the record of the proof is not a JSON object"),
    ],
)
def test_a_proof_with_another_form_of_its_record_is_refused(change: Callable[[bytes], bytes], problem: str) -> None:
    log = make_log()
    header, extra, *rest = log.proof(3).split("\n")
    data = change(zlib.decompress(base64.b64decode(extra.removeprefix("extra "))))
    text = "\n".join([header, "extra " + base64_text(zlib.compress(data)), *rest])
    assert told(verify_proof(text, log.pins)) == {None: problem}


def test_a_record_that_names_another_in_its_own_body_is_refused() -> None:
    log = make_log(2)
    log.append(id=str(uuid.uuid4()))
    log.append(store=str(uuid.uuid4()))
    log.append(log=str(SERVER_LOG))
    problems = told(verified(log.export(), log.pins))
    assert problems[2].startswith("its body names another record")
    assert problems[3].startswith("its body names another store")
    assert problems[4].startswith("its body names another log")


@pytest.mark.parametrize(
    "text",
    ["", "c2sp.org/tlog-proof@v1\n", "c2sp.org/tlog-proof@v2\nindex 0\n\n", "c2sp.org/tlog-proof@v1\nindex 0\n\nx\n"],
)
def test_a_text_that_is_no_proof_is_refused(text: str) -> None:
    assert not verify_proof(text, make_log().pins).ok


def test_a_proof_whose_record_unpacks_to_too_much_is_refused() -> None:
    log = make_log()
    swelling = {**Proof.parse(log.proof(3)).record, "body": {"x": " " * (17 << 20)}}
    assert told(verify_proof(proof_with(log, 3, record=swelling), log.pins))[None].startswith(
        "the record of the proof is too large"
    )


def test_a_chain_of_another_store_is_refused() -> None:
    log = make_log()
    lines = log.export()
    lines[0]["keys"] = KeyChain(uuid.uuid4(), log.chain.keys).document()
    assert told(verified(lines, log.pins))[None].startswith("the chain of keys is of store")


def test_a_checkpoint_of_a_foreign_log_is_refused() -> None:
    log = make_log()
    key = log.keys[0]
    note = make_checkpoint(Checkpoint("elsewhere", 7, bytes(32)), key.verifier, key.sign).encode()
    assert told(verify_checkpoints(make_pair(note, note, []), log.pins)) == {
        None: "the checkpoint is not of a log of Drillcore"
    }


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"first": 1, "second": 2, "proof": []}', b"x" * (5 << 20)])
def test_bytes_that_are_no_pair_of_checkpoints_are_refused(data: bytes) -> None:
    assert not verify_checkpoints(data, make_log().pins).ok


def test_the_report_keeps_the_first_problems_and_counts_the_rest() -> None:
    log = make_log(2)
    lines = [log.header(), *json.loads(json.dumps(log.lines)) * 100, {"end": 200}]
    report = verified(lines, log.pins)
    assert (len(report.problems), report.problems_count > 150) == (100, True)
