"""What PDF copies are made with. Nothing of it is opened before the first one: that takes a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drillcore_server.exporting.pdf.signing import PdfSigner

PAGES_MAX: Final = 400
"""Of text in a volume. A volume is in memory while it is made: about 60 KB a page."""


@dataclass(frozen=True, slots=True)
class Press:
    signer: PdfSigner
    font_files: tuple[Path, ...] = ()
    """TrueType fonts of the site, for scripts that the others do not have."""
    pages_max: int = PAGES_MAX
