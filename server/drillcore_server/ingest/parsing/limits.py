"""How much of a machine one document may take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from drillcore_server.ingest.parsing.outcome import Refusal, UnparsableReason

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParseLimits:
    input_bytes_max: int = 256 * MIB
    text_chars_max: int = 64 * MIB
    """Of one document, after extraction."""
    pages_max: int = 20_000
    zip_entries_max: int = 10_000
    zip_bytes_max: int = 512 * MIB
    """Of all entries, unpacked."""
    zip_ratio_max: int = 200
    """Unpacked over packed, of all entries that unpack to more than a MiB. Office XML reaches about 30."""
    xml_bytes_max: int = 32 * MIB
    """Of one XML part."""
    xml_tags_max: int = 1_000_000
    """Of one XML part: mammoth takes about 1 kB of memory and 60 us for each."""
    depth_max: int = 256
    """Of nested HTML elements and JSON values. HTML parsing time grows with its square."""
    seconds_max: float = 120.0
    """Checked between pages and while text is put together; a single call into a library is not interrupted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits, and when the time of this document is over."""

    limits: ParseLimits
    deadline_s: float

    @classmethod
    def of(cls, limits: ParseLimits) -> Budget:
        return cls(limits=limits, deadline_s=time.monotonic() + limits.seconds_max)

    def check_time(self) -> None:
        if time.monotonic() > self.deadline_s:
            raise Refusal(
                UnparsableReason.TOO_SLOW, f"took more than {self.limits.seconds_max:g} s to read; split the document"
            )

    def check_text(self, chars: int) -> None:
        check_size(chars, self.limits.text_chars_max, "characters of text")

    def check_input(self, size_bytes: int) -> None:
        check_size(size_bytes, self.limits.input_bytes_max, "bytes")


def check_size(size: int, size_max: int, unit: str) -> None:
    if size > size_max:
        raise Refusal(UnparsableReason.TOO_LARGE, f"has {size:,} {unit}, allowed are {size_max:,}; split the document")
