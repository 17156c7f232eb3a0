"""Binds pages into volumes with title, contents, page numbers and running titles, and writes them as PDF.

The same blocks always give the same bytes before signing. A bundle has one volume or several numbered ones.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from reportlab import rl_config
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

from drillcore_server.exports.blocks import Block, Facts
from drillcore_server.exports.copies import About, Member, front_facts, title_of
from drillcore_server.exports.pdf.fonts import EM, NUMBER_SIZE, Fonts, Style
from drillcore_server.exports.pdf.line_breaks import LineSetter
from drillcore_server.exports.pdf.pdf_signature import PAGES_MAX, PdfOptions
from drillcore_server.exports.pdf.typeset import (
    BOTTOM,
    GREY,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Colour,
    Page,
    Pages,
    Rule,
    Text,
    gathered,
)
from drillcore_server.exports.walk import CorpusWalk
from drillcore_server.storage.sealed_file import SealedFile

_RUNNING: Final = 7.5
_CONTENTS: Final = 9.0
_TITLE: Final = 26.0


@dataclass(frozen=True, slots=True)
class Front:
    """The content of the title page, and the running title of every page."""

    title: str
    subtitle: str
    facts: Facts
    running: str


class PdfCopy:
    """Sets blocks on pages. Calls `complete` with each finished volume, a PDF file."""

    def __init__(
        self, front: Front, setter: LineSetter, complete: Callable[[bytes], object], pages_max: int = PAGES_MAX
    ) -> None:
        self._front = front
        self._setter = setter
        self._complete = complete
        self._pages_max = pages_max
        self._pages = Pages(setter, self._take_page)
        self._bound: list[Page] = []
        self._volumes = 0

    def take(self, block: Block) -> None:
        self._pages.take(block)

    def end(self) -> None:
        self._pages.end()
        self._bind(is_last=True)

    def _take_page(self, page: Page) -> None:
        if len(self._bound) >= self._pages_max:
            self._bind(is_last=False)
        self._bound.append(page)

    def _bind(self, *, is_last: bool) -> None:
        self._volumes += 1
        volume = "" if is_last and self._volumes == 1 else f"Volume {self._volumes}{', the last' if is_last else ''}"
        self._complete(_Volume(self._front, self._setter, volume, self._bound).written())
        self._bound = []


class _Volume:
    def __init__(self, front: Front, setter: LineSetter, volume: str, text: list[Page]) -> None:
        self._front = front
        self._setter = setter
        self._volume = volume
        self._text = text
        self._depth = -1
        self._first = len(self._opening(0))
        """Number of pages before the text. It does not depend on the page numbers in the contents."""

    def written(self) -> bytes:
        file = io.BytesIO()
        rl_config.useA85 = 0  # write streams as bytes; encoded as text they are a quarter larger and slower to write
        canvas = Canvas(file, pagesize=(WIDTH, HEIGHT), pageCompression=1, invariant=1, lang="en")
        canvas.setTitle(self._front.title)
        canvas.setSubject(self._front.subtitle)
        canvas.setCreator("Drillcore")
        pages = [*self._opening(self._first), *self._text]
        for number, page in enumerate(pages, 1):
            self._draw(canvas, page, number, len(pages))
        canvas.save()
        return file.getvalue()

    def _opening(self, first: int) -> list[Page]:
        return gathered(self._setter, self._title) + gathered(self._setter, lambda pages: self._contents(pages, first))

    def _title(self, pages: Pages) -> None:
        pages.put(" ", Style.REGULAR, 60 * mm)
        pages.put(" ".join(self._front.title.split()), Style.BOLD, _TITLE)
        pages.skip(_TITLE / 2)
        for line in filter(None, (self._front.subtitle, self._volume)):
            pages.put(line, Style.REGULAR, _TITLE / 2)
        pages.skip(_TITLE)
        pages.take(self._front.facts)

    def _contents(self, pages: Pages, first: int) -> None:
        pages.put("Contents", Style.BOLD, _TITLE / 2)
        pages.skip(_CONTENTS)
        for place, page in enumerate(self._text, 1):
            for heading, _ in page.headings:
                x = LEFT + (heading.depth - 1) * 5 * mm
                style = Style.BOLD if heading.depth == 1 else Style.REGULAR
                pages.put(" ".join(heading.text.split()), style, _CONTENTS, x=x, right=RIGHT - 15 * mm)
                pages.mark_last(self._setter.line(f" {first + place}", style), _CONTENTS)

    def _draw(self, canvas: Canvas, page: Page, number: int, count: int) -> None:
        running = next(self._setter.lines(self._front.running, Style.REGULAR, _RUNNING, RIGHT - LEFT))
        page_number = self._setter.line(f"Page {number} of {count}", Style.REGULAR)
        volume = self._setter.line(self._volume or "Signed export", Style.REGULAR)
        over, under = TOP + 10 * mm, BOTTOM - 10 * mm
        titles = [Text(LEFT, over, running, _RUNNING, GREY), Text(LEFT, under, volume, _RUNNING, GREY)]
        titles.append(Text(RIGHT - page_number.width * _RUNNING / EM, under, page_number, _RUNNING, GREY))
        for rule in [*page.rules, Rule(LEFT, over - 4, RIGHT, over - 4, 0.4, GREY)]:
            canvas.setStrokeColorRGB(*rule.colour)
            canvas.setLineWidth(rule.width)
            canvas.line(rule.x1, rule.y1, rule.x2, rule.y2)
        _draw_texts(canvas, [*titles, *page.texts])
        for place, (heading, y) in enumerate(page.headings):
            key = f"{number}-{place}"
            canvas.bookmarkHorizontal(key, 0, y)
            self._depth = min(heading.depth - 1, self._depth + 1)  # a volume may begin in the middle of a part
            canvas.addOutlineEntry(" ".join(heading.text.split()), key, self._depth, closed=self._depth == 0)
        canvas.showPage()


def _draw_texts(canvas: Canvas, texts: Sequence[Text]) -> None:
    """Draws all texts as one text object. A colour is only set when it changes."""
    drawn = canvas.beginText()
    colour: Colour | None = None
    for text in texts:
        drawn.setTextOrigin(text.x, text.y)
        for run in text.line.runs:
            wanted = GREY if run.is_number else text.colour
            if wanted != colour:
                drawn.setFillColorRGB(*wanted)
                colour = wanted
            drawn.setFont(run.font, text.size * NUMBER_SIZE if run.is_number else text.size)
            drawn.textOut(run.text)
    canvas.drawText(drawn)


class PdfFiles:
    """The PDF copy as signed files of a bundle."""

    def __init__(self, options: PdfOptions, walk: CorpusWalk, about: About, files: ExitStack) -> None:
        self._options = options
        self._about = about
        self._files = files
        self._volumes: list[SealedFile] = []
        subtitle = f"Signed export of revision {walk.revision}"
        running = f"{walk.corpus.name}, revision {walk.revision}, export {about.export_id}"
        front = Front(title_of(walk), subtitle, front_facts(walk, about), running)
        self._copy = PdfCopy(front, LineSetter(Fonts(options.font_files)), self._complete, options.pages_max)

    def take(self, block: Block) -> None:
        self._copy.take(block)

    def end(self) -> list[Member]:
        self._copy.end()
        if len(self._volumes) == 1:
            return [Member("content.pdf", (self._volumes[0],))]
        return [Member(f"content-{number:03}.pdf", (volume,)) for number, volume in enumerate(self._volumes, 1)]

    def _complete(self, volume: bytes) -> None:
        file = self._files.enter_context(SealedFile())
        reason = f"Signed export {self._about.export_id}"
        file.write(self._options.signer.signed(volume, reason=reason))
        self._volumes.append(file)
