"""The key and the fonts for PDF copies. They are loaded with the first copy, because that takes a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore_formats.settings import SettingsError
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.exports.pdf.pdf_signature import PdfKeyError, PdfSigner

PAGES_MAX: Final = 400
"""Pages of text in a volume. A volume is held in memory while it is made: about 250 KB a page."""


@dataclass(frozen=True, slots=True)
class Press:
    signer: PdfSigner
    font_files: tuple[Path, ...] = ()
    """The operator's own TrueType fonts, for scripts that the built-in fonts lack."""
    pages_max: int = PAGES_MAX


def open_press(settings: AuditSettings, data_dir: Path, store: UUID) -> Press:
    """Reads the settings. Raises `SettingsError` if a key, certificate or font cannot be used."""
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
    from drillcore_server.exports.pdf.fonts import FontError, Fonts

    files = tuple(sorted(directory.glob("*.ttf")))
    if not files:
        raise SettingsError(f"audit.pdf_font_dir: {directory} has no files *.ttf")
    try:
        Fonts(files)
    except FontError as error:
        raise SettingsError(f"audit.pdf_font_dir: {error}") from error
    return files
