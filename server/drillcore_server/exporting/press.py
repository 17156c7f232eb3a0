"""What PDF copies are made with. Nothing of it is opened before the first one: that takes a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore.settings import SettingsError
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.exporting.pdf.signing import PdfKeyError, PdfSigner

PAGES_MAX: Final = 400
"""Of text in a volume. A volume is in memory while it is made: about 250 KB a page."""


@dataclass(frozen=True, slots=True)
class Press:
    signer: PdfSigner
    font_files: tuple[Path, ...] = ()
    """TrueType fonts of the site, for scripts that the others do not have."""
    pages_max: int = PAGES_MAX


def open_press(settings: AuditSettings, data_dir: Path, store: UUID) -> Press:
    """By the settings. Raises `SettingsError` if what they name cannot be used."""
    if settings.pdf_key_file is None or settings.pdf_certificate_file is None:
        signer = PdfSigner.made_in(data_dir / "audit", store)
    else:
        signer = PdfSigner(settings.pdf_key_file, settings.pdf_certificate_file)
        _check(signer)
    return Press(signer, () if settings.pdf_font_dir is None else _fonts_in(settings.pdf_font_dir))


def _check(signer: PdfSigner) -> None:
    try:
        signer.check()
    except PdfKeyError as error:
        raise SettingsError(f"audit.pdf_key_file: {error}") from error


def _fonts_in(directory: Path) -> tuple[Path, ...]:
    from drillcore_server.exporting.pdf.fonts import FontError, Fonts

    files = tuple(sorted(directory.glob("*.ttf")))
    if not files:
        raise SettingsError(f"audit.pdf_font_dir: {directory} has no files *.ttf")
    try:
        Fonts(files)
    except FontError as error:
        raise SettingsError(f"audit.pdf_font_dir: {error}") from error
    return files
