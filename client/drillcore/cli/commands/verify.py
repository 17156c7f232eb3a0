"""`drillcore verify`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
from rich.progress import TextColumn
from rich.text import Text

from drillcore.cli.files import INPUT_PATH, MISUSED
from drillcore.cli.options import common_options
from drillcore.cli.progress import FILE_COLUMNS, Bar, is_shown
from drillcore.cli.session import Session, pass_session
from drillcore.cli.text import printable
from drillcore_formats.audit import (
    Evidence,
    Pins,
    Problem,
    Report,
    VerifierKey,
    verify_bundle,
    verify_export,
    verify_proof,
)
from drillcore_formats.audit.encoding import parse_object
from drillcore_formats.audit.exported import LINE_BYTES_MAX
from drillcore_formats.audit.findings import Malformed, VerificationFailed
from drillcore_formats.audit.notes import COSIGNATURE_V1, ED25519, NOTE_CHARACTERS_MAX, Note
from drillcore_formats.audit.pairs import PAIR_BYTES_MAX, check_pair, verify_checkpoints
from drillcore_formats.audit.pins import Continuation
from drillcore_formats.audit.proofs import HEADER, PROOF_CHARACTERS_MAX
from drillcore_formats.plugins import CommandError

KEY_FILE_BYTES_MAX: Final = 1 << 20

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")


class Keys(click.ParamType[tuple[VerifierKey, ...]]):
    """A verifier key of this kind, or a file with one key on each line."""

    name = "vkey|file"

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[VerifierKey, ...]:
        try:
            found = value if isinstance(value, tuple) else _parse_keys(value)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not found or any(key.kind != self._kind for key in found):
            wanted = "witnesses (type 4)" if self._kind == COSIGNATURE_V1 else "servers (type 1)"
            self.fail(f"{value} must hold only keys of {wanted}", param, ctx)
        return found


def _parse_keys(value: str) -> tuple[VerifierKey, ...]:
    path = Path(value)
    if "+" in value and not path.is_file():
        return (VerifierKey.parse(value),)
    try:
        lines = [line.strip() for line in _read(path, KEY_FILE_BYTES_MAX).decode().splitlines()]
    except OSError as error:
        raise ValueError(f"it is neither a verifier key nor a file that can be read: {error.strerror}") from error
    return tuple(VerifierKey.parse(line) for line in lines if line and not line.startswith("#"))


class Checkpoint(click.ParamType[Note]):
    """A file with a checkpoint."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Note:
        if isinstance(value, Note):
            return value
        try:
            return Note.parse(_read(Path(value), NOTE_CHARACTERS_MAX).decode())
        except (OSError, ValueError) as error:
            self.fail(f"{value} is not a checkpoint: {error}", param, ctx)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=INPUT_PATH)
@click.option(
    "--key",
    "keys",
    type=Keys(ED25519),
    multiple=True,
    required=True,
    help="The server's key, or a file with keys. Repeatable.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    type=Checkpoint(),
    multiple=True,
    help="Checkpoint seen earlier, which the log must continue. Repeatable.",
)
@click.option(
    "--witness",
    "witnesses",
    type=Keys(COSIGNATURE_V1),
    multiple=True,
    help="Key of a witness, or a file with keys. Repeatable.",
)
@click.option(
    "--witnesses-required", type=click.IntRange(0), help="How many witnesses must have cosigned.  [default: all]"
)
@common_options
@pass_session
@click.pass_context
def verify(
    context: click.Context,
    session: Session,
    paths: Sequence[Path],
    keys: Sequence[tuple[VerifierKey, ...]],
    checkpoints: Sequence[Note],
    witnesses: Sequence[tuple[VerifierKey, ...]],
    witnesses_required: int | None,
) -> None:
    """Verify exports, bundles, proofs and pairs of checkpoints. This needs a key, but no server.

    PATHS are files that a server made: an audit export (NDJSON), the signed copy of a corpus (ZIP), the proof of a
    record, or two checkpoints with their consistency proof. Each record is verified, erased with proof, or tampered.

    --key is the server's public key. Get it in a way that the server cannot influence. Keys that replaced it are
    trusted if each old key vouches for the new one. --checkpoint is a checkpoint that was seen before, for example by
    a witness or in the server's sink: it reveals a log that was rolled back or forked since. For a proof or for
    selected records this needs the consistency proof too: give it as one of the PATHS.

    Exit codes: 0 verified, 1 something is wrong, 2 wrong usage.

    \b
    Examples:
      drillcore verify rules.zip --key server.vkey
      drillcore verify audit.ndjson --key drillcore-...+a1b2c3d4+AW... --checkpoint sink/latest
      drillcore verify record.tlog-proof pair.json --key server.vkey --checkpoint sink/latest
    """
    cosigners = tuple(key for given in witnesses for key in given)
    pins = Pins(
        tuple(key for given in keys for key in given),
        tuple(checkpoints),
        cosigners,
        len(cosigners) if witnesses_required is None else witnesses_required,
    )
    if pins.witnesses_required > len(cosigners):
        raise click.UsageError(
            f"--witnesses-required is {pins.witnesses_required}, but there are only {len(cosigners)} --witness keys"
        )
    found = _verify_all(paths, pins, shown=is_shown(session))
    whole = all(report.ok for report in found.values())
    document = {"ok": whole, "files": [_document(path, report) for path, report in found.items()]}
    session.emit(document, *(_lines(path, report) for path, report in found.items()))
    context.exit(0 if whole else 1)


def _verify_all(paths: Sequence[Path], pins: Pins, *, shown: bool) -> dict[Path, Report]:
    """The reports, in the order of the paths. Pairs of checkpoints are checked first: other files may need them."""
    try:
        kinds = {path: _recognized(path) for path in paths}
        continuations = [
            pair for path, kind in kinds.items() if kind is Evidence.CHECKPOINTS for pair in _continuation(path, pins)
        ]
        pins = Pins(pins.keys, pins.checkpoints, pins.witnesses, pins.witnesses_required, tuple(continuations))
        return {path: _verified(path, kind, pins, shown=shown) for path, kind in kinds.items()}
    except OSError as error:
        raise CommandError("UNREADABLE_FILE", f"{error.filename}: {error.strerror}", exit_code=MISUSED) from error


def _recognized(path: Path) -> Evidence:
    with path.open("rb") as file:
        first = file.readline(LINE_BYTES_MAX)
    if first.startswith(_ZIP):
        return Evidence.BUNDLE
    if first.startswith(HEADER.encode()):
        return Evidence.PROOF
    names = _names(first) | (_names(_read(path, PAIR_BYTES_MAX)) if first.strip() == b"{" else set())
    if "drillcore_audit" in names:
        return Evidence.EXPORT
    if {"first", "second"} <= names:
        return Evidence.CHECKPOINTS
    raise CommandError("UNKNOWN_FILE", f"{path} cannot be verified: {_VERIFIABLE}", exit_code=MISUSED)


_VERIFIABLE: Final = (
    "give an audit export (NDJSON), a bundle (ZIP), a proof of a record or a pair of checkpoints (JSON)"
)


def _names(data: bytes) -> set[str]:
    try:
        return set(parse_object(data, "it"))
    except Malformed:
        return set()


def _continuation(path: Path, pins: Pins) -> Iterator[Continuation]:
    with contextlib.suppress(VerificationFailed):  # its own report says what is wrong with it
        yield check_pair(_read(path, PAIR_BYTES_MAX), pins)[0]


def _verified(path: Path, kind: Evidence, pins: Pins, *, shown: bool) -> Report:
    if kind is Evidence.PROOF:
        return verify_proof(_read(path, PROOF_CHARACTERS_MAX).decode(errors="replace"), pins)
    if kind is Evidence.CHECKPOINTS:
        return verify_checkpoints(_read(path, PAIR_BYTES_MAX), pins)
    examine: Callable[[BinaryIO, Pins], Report] = verify_bundle if kind is Evidence.BUNDLE else verify_export
    columns = TextColumn("{task.description}"), *(column() for column in FILE_COLUMNS)
    bar = Bar(*columns, shown=shown, description=printable(path.name), total=path.stat().st_size)
    with path.open("rb") as file, bar:
        return examine(bar.watched(file), pins)


def _read(path: Path, size_bytes_max: int) -> bytes:
    """Reads one byte more than allowed, so that the caller notices a file that is too large."""
    with path.open("rb") as file:
        return file.read(size_bytes_max + 1)


def _document(path: Path, report: Report) -> dict[str, object]:
    return {
        "path": path,
        "ok": report.ok,
        "evidence": report.evidence,
        "verified": report.verified,
        "erased": report.erased,
        "tampered": report.tampered,
        "problems": report.problems,
        "problems_count": report.problems_count,
        "remarks": report.remarks,
        "details": report.details,
    }


def _lines(path: Path, report: Report) -> Text:
    verdict = ("verified", "green") if report.ok else ("NOT verified", "bold red")
    text = Text.assemble((printable(str(path)), "bold"), f": {report.evidence.value}, ", verdict)
    if report.evidence is not Evidence.CHECKPOINTS:
        text.append(
            f"\n  records: {report.verified:,} verified, {report.erased:,} erased with proof, "
            f"{report.tampered:,} tampered"
        )
    for name, value in report.details.items():
        text.append(f"\n  {name}: {printable(str(value))}", "dim")
    for problem in report.problems:
        text.append(f"\n  {_problem_text(problem)}", "red")
    if report.problems_count > len(report.problems):
        text.append(f"\n  and {report.problems_count - len(report.problems):,} more", "red")
    for remark in report.remarks:
        text.append(f"\n  note: {printable(remark)}", "yellow")
    return text


def _problem_text(problem: Problem) -> str:
    if problem.index is None:
        return printable(problem.problem)
    named = f" ({problem.record})" if problem.record else ""
    return printable(f"record {problem.index}{named}: {problem.problem}")
