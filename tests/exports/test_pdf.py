"""The PDF copy is signed, reproducible, split into volumes, has numbered pages and loses no text."""

from __future__ import annotations

import io
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pypdfium2
import pytest
from cryptography import x509
from pyhanko.keys import load_cert_from_pemder
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import validate_pdf_signature
from pyhanko.sign.validation.status import PdfSignatureStatus
from pyhanko_certvalidator import ValidationContext

from drillcore_server.exports.blocks import Facts, Heading, Prose, Table
from drillcore_server.exports.copies import copy_for_people
from drillcore_server.exports.pdf import fonts as scripts
from drillcore_server.exports.pdf.fonts import FontError, Fonts, Style
from drillcore_server.exports.pdf.line_breaks import LineSetter
from drillcore_server.exports.pdf.pdf_signature import PdfKeyError, PdfSigner
from drillcore_server.exports.pdf.volumes import Front, PdfCopy, PdfFiles
from tests.support.data.exported_corpora import ABOUT, Desk
from tests.support.stores.journals import STORE

FRONT = Front("Rules — Übersicht", "Signed export of revision 1", Facts([("Export", "x")]), "Rules, revision 1")


@pytest.fixture(scope="module")
def setter() -> LineSetter:
    return LineSetter(Fonts())


def made(setter: LineSetter, tell: Callable[[PdfCopy], object], pages_max: int = 400) -> list[bytes]:
    volumes: list[bytes] = []
    copy = PdfCopy(FRONT, setter, volumes.append, pages_max)
    tell(copy)
    copy.end()
    return volumes


def chapters(copy: PdfCopy, count: int = 30) -> None:
    copy.take(Heading("Knowledge", 1))
    for number in range(count):
        copy.take(Heading(f"Section {number}", 2))
        copy.take(Prose("Summary", f"Chapter {number} says so. " * 200))


def texts(pdf: bytes) -> Iterator[str]:
    for page in pypdfium2.PdfDocument(pdf):
        yield page.get_textpage().get_text_bounded()


def checked(pdf: bytes, signer: PdfSigner) -> PdfSignatureStatus:
    reader = PdfFileReader(io.BytesIO(pdf))
    (signature,) = reader.embedded_signatures
    trusted = ValidationContext(trust_roots=[load_cert_from_pemder(str(signer.certificate_file))])
    return validate_pdf_signature(signature, trusted)


def copy_of(desk: Desk, files: ExitStack) -> bytes:
    walk = desk.walk()
    (member,) = copy_for_people(walk, PdfFiles(desk.pdf, walk, ABOUT, files), (), lambda _: None).members
    assert member.name == "content.pdf"
    return b"".join(member.read())


def test_a_copy_has_a_valid_pades_signature(desk: Desk, files: ExitStack) -> None:
    pdf = copy_of(desk, files)
    status = checked(pdf, desk.pdf.signer)
    assert status.bottom_line
    assert status.intact
    assert status.trusted
    assert b"ETSI.CAdES.detached" in pdf


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6])
def test_a_copy_with_one_byte_changed_fails(desk: Desk, files: ExitStack, share: float) -> None:
    pdf = bytearray(copy_of(desk, files))
    pdf[int(pdf.rindex(b"/ByteRange") * share)] ^= 1
    try:
        status = checked(bytes(pdf), desk.pdf.signer)
    except Exception:
        return
    assert not status.bottom_line


def test_bytes_added_after_the_signature_fail(desk: Desk, files: ExitStack) -> None:
    from pyhanko.pdf_utils import generic
    from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter

    writer = IncrementalPdfFileWriter(io.BytesIO(copy_of(desk, files)))
    writer.root["/OpenAction"] = generic.DictionaryObject()
    page = writer.root["/Pages"]["/Kids"][0]
    page["/Rotate"] = generic.NumberObject(180)
    writer.update_container(page)
    added = io.BytesIO()
    writer.write(added)
    assert not checked(added.getvalue(), desk.pdf.signer).bottom_line


def test_another_servers_certificate_is_not_trusted(desk: Desk, files: ExitStack, tmp_path: Path) -> None:
    other_signer = PdfSigner.made_in(tmp_path, STORE)
    assert other_signer.certificate_sha256 != desk.pdf.signer.certificate_sha256
    assert not checked(copy_of(desk, files), other_signer).trusted


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = PdfSigner.made_in(tmp_path / "audit", STORE)
    again = PdfSigner.made_in(tmp_path / "audit", STORE)
    assert first.certificate_sha256 == again.certificate_sha256
    assert stat.S_IMODE(first.key_file.stat().st_mode) == 0o600
    name = x509.load_pem_x509_certificate(first.certificate_file.read_bytes()).subject.rfc4514_string()
    assert f"drillcore-{STORE}" in name


def test_an_invalid_key_file_is_named(tmp_path: Path) -> None:
    signer = PdfSigner.made_in(tmp_path, STORE)
    signer.check()
    signer.key_file.write_text("no key")
    with pytest.raises(PdfKeyError, match=re.escape(str(signer.key_file))):
        signer.signed(b"", reason="")
    signer.certificate_file.write_text("no certificate")
    with pytest.raises(PdfKeyError, match=re.escape(str(signer.certificate_file))):
        _ = signer.certificate_sha256


def test_a_copy_is_the_same_bytes_each_time_before_it_is_signed(setter: LineSetter) -> None:
    assert made(setter, chapters) == made(setter, chapters)


def test_contents_name_the_pages_and_pages_show_their_numbers(setter: LineSetter) -> None:
    (volume,) = made(setter, chapters)
    pages = list(texts(volume))
    for number, page in enumerate(pages, 1):
        assert f"Page {number} of {len(pages)}" in page
        assert "Rules, revision 1" in page
    entries = re.findall(r"Section (\d+) (\d+)\r?$", pages[1], re.MULTILINE)
    assert len(entries) == 30
    for section, page in entries:
        assert f"Section {section}\r\nSummary" in pages[int(page) - 1]
    assert "Übersicht" in pages[0]


def test_large_copies_come_in_volumes_that_are_each_complete(setter: LineSetter) -> None:
    volumes = made(setter, chapters, pages_max=10)
    assert len(volumes) > 2
    said = ""
    for number, volume in enumerate(volumes, 1):
        pages = list(texts(volume))
        last = ", the last" if number == len(volumes) else ""
        assert f"Volume {number}{last}\r\n" in pages[0]
        assert "Contents" in pages[1]
        assert f"Page {len(pages)} of {len(pages)}" in pages[-1]
        assert len(pages) <= 12
        said += "".join(pages)
    assert all(said.count(f"Chapter {number} says so.") > 150 for number in range(30))


def test_a_character_that_no_font_has_is_shown_as_its_number(setter: LineSetter) -> None:
    line = setter.line("a\x07b 日 \U0001f41f \u200b", Style.REGULAR)
    assert "".join(run.text for run in line.runs) == "aU+0007b U+65E5 U+1F41F U+200B"
    assert [run.text for run in line.runs if run.is_number] == ["U+0007", "U+65E5", "U+1F41F", "U+200B"]


@pytest.mark.parametrize(
    "text",
    [
        "Straße Łódź ¿qué? naïve œuvre",
        "Ελληνικά ώρα",
        "Українська мова",
        "עברית",
        "العربية",
        "हिन्दी",
        "ไทย",
        "ქართული",
        "≤ ≥ → € ™ “x”",
    ],
)
def test_the_scripts_of_most_regulators_are_covered(setter: LineSetter, text: str) -> None:
    assert not any(run.is_number for style in Style for run in setter.line(text, style).runs)


def font_with(character: str) -> bytes:
    """A TrueType font with a glyph for this character only."""
    import pymupdf_fonts

    font = bytearray(pymupdf_fonts.fontbuffers["ubuntu"]())
    group = struct.pack(">III", ord(character), ord(character), 36)
    table = struct.pack(">HH", 0, 1) + struct.pack(">HHI", 3, 10, 12)
    table += struct.pack(">HHIII", 12, 0, 16 + len(group), 0, 1) + group
    for place in range(12, 12 + 16 * struct.unpack_from(">H", font, 4)[0], 16):
        if font[place : place + 4] == b"cmap":
            struct.pack_into(">II", font, place + 8, len(font), len(table))
    return bytes(font) + table


def test_a_font_of_the_site_covers_characters_that_the_others_lack(tmp_path: Path) -> None:
    assert Fonts().glyph(Style.BOLD, "日").is_number
    file = tmp_path / "mine.ttf"
    file.write_bytes(font_with("日"))
    found = Fonts([file]).glyph(Style.BOLD, "日")
    assert (found.text, found.is_number, found.font) == ("日", False, f"drillcore-{file}")
    (volume,) = made(LineSetter(Fonts([file])), lambda copy: copy.take(Prose("Summary", "Made in 日本.")))
    assert "Made in 日U+672C." in " ".join(texts(volume))


def test_an_invalid_font_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    with pytest.raises(FontError, match=re.escape(str(broken))):
        Fonts([broken])


def test_words_longer_than_a_line_are_cut_and_lose_nothing(setter: LineSetter) -> None:
    word = "".join(chr(ord("a") + place % 26) for place in range(2_000))
    lines = list(setter.lines(word, Style.REGULAR, 9.0, 200.0))
    assert len(lines) > 10
    assert "".join(run.text for line in lines for run in line.runs) == word
    assert all(line.width * 9.0 / 1000 <= 200.0 for line in lines)


def test_a_long_cell_goes_on_on_the_next_page(setter: LineSetter) -> None:
    words = [f"w{number}" for number in range(6_000)]
    table = Table("Records", ("No.", "Record"), (10, 90), [["1", " ".join(words)], ["2", "short"]])
    (volume,) = made(setter, lambda copy: copy.take(table))
    said = " ".join(texts(volume))
    assert [word for word in words if not re.search(rf"\b{word}\b", said)] == []


def test_right_to_left_text_is_in_display_order(setter: LineSetter) -> None:
    (line,) = setter.lines("אבג (12) abc", Style.REGULAR, 9.0, 500.0)
    assert "".join(run.text for run in line.runs) == "abc (12) גבא"
    assert line.from_right


def test_letters_of_arabic_are_joined() -> None:
    assert scripts.joined("بيت") == "\ufe91\ufef4\ufe96"
    assert scripts.joined("دار") == "\u062f\u0627\u0631"
    assert scripts.joined("abc") == "abc"
