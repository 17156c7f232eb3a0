"""The settings of PDF copies: a key, a certificate and fonts of the site's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from drillcore_formats.settings import SettingsError
from drillcore_server.app.config import load_settings
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.exports.pdf.pdf_signature import PdfSigner, open_pdf_options
from tests.support.stores.journals import STORE


def test_a_key_of_the_site_is_used_and_none_is_made(tmp_path: Path) -> None:
    own = PdfSigner.made_in(tmp_path / "own", STORE)
    own.check()
    settings = AuditSettings(pdf_key_file=own.key_file, pdf_certificate_file=own.certificate_file)
    options = open_pdf_options(settings, tmp_path / "data", STORE)
    assert options.signer.certificate_sha256 == own.certificate_sha256
    assert not (tmp_path / "data").exists()


def test_without_a_key_of_the_site_none_is_made_before_it_is_needed(tmp_path: Path) -> None:
    options = open_pdf_options(AuditSettings(), tmp_path, STORE)
    assert list(tmp_path.iterdir()) == []
    assert len(bytes.fromhex(options.signer.certificate_sha256)) == 32
    assert (tmp_path / "audit" / "pdf-signing.key").exists()


def test_a_key_without_its_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="go together"):
        AuditSettings(pdf_key_file=tmp_path / "key.pem")


def test_a_key_or_font_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    settings = AuditSettings(pdf_key_file=nothing, pdf_certificate_file=nothing)
    with pytest.raises(SettingsError, match=r"audit\.pdf_key_file"):
        open_pdf_options(settings, tmp_path, STORE)
    with pytest.raises(SettingsError, match=r"audit\.pdf_font_dir: .* has no files"):
        open_pdf_options(AuditSettings(pdf_font_dir=tmp_path), tmp_path, STORE)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    with pytest.raises(SettingsError, match=r"audit\.pdf_font_dir: .*broken\.ttf"):
        open_pdf_options(AuditSettings(pdf_font_dir=tmp_path), tmp_path, STORE)


def test_the_settings_of_pdf_copies_are_read_from_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "drillcore.toml"
    file.write_text('[audit]\npdf_key_file = "a.key"\npdf_certificate_file = "a.pem"\npdf_font_dir = "fonts"\n')
    audit = load_settings(file, {}).audit
    assert (audit.pdf_key_file, audit.pdf_certificate_file) == (tmp_path / "a.key", tmp_path / "a.pem")
    assert audit.pdf_font_dir == tmp_path / "fonts"
