"""The PDF copy as files of a bundle: one, or numbered volumes."""

from __future__ import annotations

from contextlib import ExitStack

from drillcore_server.exporting.blocks import Block
from drillcore_server.exporting.copies import About, Member, front_facts, title_of
from drillcore_server.exporting.pdf.fonts import Fonts
from drillcore_server.exporting.pdf.setting import Setter
from drillcore_server.exporting.pdf.volumes import Front, PdfCopy
from drillcore_server.exporting.press import Press
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.exporting.walk import CorpusWalk


class PdfFiles:
    def __init__(self, press: Press, walk: CorpusWalk, about: About, files: ExitStack) -> None:
        self._press = press
        self._about = about
        self._files = files
        self._volumes: list[SealedFile] = []
        subtitle = f"Signed export of revision {walk.revision}"
        running = f"{walk.corpus.name}, revision {walk.revision}, export {about.export_id}"
        front = Front(title_of(walk), subtitle, front_facts(walk, about), running)
        self._copy = PdfCopy(front, Setter(Fonts(press.font_files)), self._complete, press.pages_max)

    def take(self, block: Block) -> None:
        self._copy.take(block)

    def end(self) -> list[Member]:
        self._copy.end()
        if len(self._volumes) == 1:
            return [Member("content.pdf", (self._volumes[0],))]
        return [Member(f"content-{number:03}.pdf", (one,)) for number, one in enumerate(self._volumes, 1)]

    def _complete(self, volume: bytes) -> None:
        file = self._files.enter_context(SealedFile())
        reason = f"Signed export {self._about.export_id}"
        file.write(self._press.signer.signed(volume, reason=reason))
        self._volumes.append(file)
