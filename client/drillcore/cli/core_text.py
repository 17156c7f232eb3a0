"""What is told of knowledge cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType
from rich.text import Text

from drillcore._core_results import CoreCounts, CoreExport, CoreImport
from drillcore.cli.text import counted, listing, one_line, pairs, printable

if TYPE_CHECKING:  # they need msgpack, which other commands do not
    from drillcore.cores import CoreSummary, VerifiedCore

_DERIVED: Final = "DERIVED"
"""Nothing is lost with these: they are made anew from the records of the core."""
_TOLD_MAX: Final = 1_000


def export_report(done: CoreExport) -> Iterator[RenderableType]:
    yield f"exported revision {done.revision} to {done.path}: {done.size_bytes:,} bytes{_counts(done.counts)}"
    yield f"SHA-256 {done.sha256}, signed in {done.signature_path}"


def import_report(done: CoreImport) -> Iterator[RenderableType]:
    kind = f"a {done.kind.value} core" if done.kind else "a core"
    signed = f", signed by {printable(done.signed_by)}" if done.signed_by else ""
    yield f"stored {kind}{signed}: revision {done.revision}{_counts(done.counts)}"
    rows = [
        (one.record, one.offset_bytes, one.tag, one.id, one.reason, one.message)
        for one in done.skipped
        if one.reason != _DERIVED
    ]
    if rows:
        yield Text("skipped:", "yellow")
        yield listing(["record", "at byte", "tag", "what", "reason", "message"], rows)
    if len(done.skipped) >= _TOLD_MAX:
        yield "more may be skipped than the server tells of one by one"


def _counts(counts: CoreCounts) -> str:
    """What there is any of, after something else."""
    found = {one.name.removeprefix("entity_"): getattr(counts, one.name) for one in dataclasses.fields(counts)}
    return "".join(f", {_counted(number, name.replace('_', ' '))}" for name, number in found.items() if number)


def _counted(number: int, nouns: str) -> str:
    noun = nouns.removesuffix("ies") + "y" if nouns.endswith("ies") else nouns.removesuffix("s")
    return f"{number:,} {noun if number == 1 else nouns}"


def summary_report(found: CoreSummary) -> RenderableType:
    rows = {
        "core": found.core_id or "-",
        "kind": _kind(found),
        "size": f"{found.size_bytes:,} bytes",
        "SHA-256": found.sha256,
        "records": _numbers(found.records),
        "quads": _numbers(found.quads),
        "entity vectors": _numbers({f"of {size} dimensions": number for size, number in found.entities.items()}),
        "chunk vectors": _numbers({f"of {size} dimensions": number for size, number in found.chunks.items()}),
        "library": f"{counted(found.library_documents, 'document')}, {found.library_bytes:,} bytes",
        "parts": _numbers(found.parts),
        "invalid terms": f"{found.invalid_terms:,}" if found.invalid_terms else "",
    }
    return pairs((name, one_line(told)) for name, told in rows.items() if told)


def _kind(found: CoreSummary) -> str:
    if found.root is None:
        return "document embeddings" if found.chunks else "plain"
    model = found.root.model
    parts = [
        "full",
        "with sources" if found.root.sources else "without sources",
        f"vectors by {model.name} ({model.dimensions})" if model else "without vectors",
        "" if found.whole else "NOT WHOLE: its end is missing",
    ]
    return ", ".join(filter(None, parts))


def _numbers(found: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in found.items())


def verified_report(file: str, found: VerifiedCore) -> Iterator[RenderableType]:
    said = found.statement
    yield Text.assemble((printable(file), "bold"), ": core, ", ("verified", "green"))
    yield pairs(
        (name, one_line(value))
        for name, value in {
            "signed by": ", ".join(found.signed_by),
            "corpus": said.corpus,
            "revision": said.revision,
            "made at": said.made_at,
            "record": said.record,
            "size": f"{said.size_bytes:,} bytes",
            "SHA-256": said.sha256,
        }.items()
    )
