"""Sets blocks on pages. A page lists the texts and rules to draw; it is drawn once its volume is complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reportlab.lib.pagesizes import A4
from reportlab.lib.units import mm

from drillcore_server.exports.blocks import Block, Facts, Heading, Manifestation, Prose, Quote, Table, Verbatim
from drillcore_server.exports.pdf.fonts import EM, Style
from drillcore_server.exports.pdf.line_breaks import Line, LineSetter

WIDTH, HEIGHT = A4
LEFT: Final = 22 * mm
RIGHT: Final = WIDTH - 22 * mm
TOP: Final = HEIGHT - 26 * mm
BOTTOM: Final = 24 * mm
"""The four edges of the text. Running titles are above and below."""
BLACK, GREY, ACCENT = (0.0, 0.0, 0.0), (0.35, 0.35, 0.35), (0.1, 0.25, 0.5)
_LEADING: Final = 1.36
_TEXT, _SMALL = 9.0, 7.5
_HEADINGS: Final = {1: 17.0, 2: 13.0, 3: 10.5, 4: 9.0}
_GAP: Final = 6.0
_LABELS: Final = 36 * mm
"""Width of the column with the names of facts."""
_INDENT: Final = 5 * mm
_CELL_GAP: Final = 6.0
_KEPT_TOGETHER: Final = 5
"""Lines that must follow a heading, or a row of a table, on its page."""

Colour = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Text:
    x: float
    y: float
    line: Line
    size: float
    colour: Colour = BLACK


@dataclass(frozen=True, slots=True)
class Rule:
    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    colour: Colour


@dataclass(slots=True)
class Page:
    texts: list[Text] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    headings: list[tuple[Heading, float]] = field(default_factory=list)
    """Headings that the contents list, with their height on the page."""


class Pages:
    """Sets blocks one after the other. Calls `full` with each complete page."""

    def __init__(self, setter: LineSetter, full: Callable[[Page], object]) -> None:
        self._setter = setter
        self._full = full
        self._page = Page()
        self._y = TOP

    def take(self, block: Block) -> None:
        if isinstance(block, Heading):
            self._heading(block)
        elif isinstance(block, Facts):
            self._facts(block.rows, LEFT)
        elif isinstance(block, Prose):
            self._prose(block)
        elif isinstance(block, Verbatim):
            self._beside_rule(block.text, Style.REGULAR, _TEXT, GREY)
        elif isinstance(block, Quote):
            self._beside_rule(block.text, Style.ITALIC, _TEXT, ACCENT)
            self.put(block.note, Style.REGULAR, _SMALL, x=LEFT + _INDENT, colour=GREY)
        elif isinstance(block, Table):
            self._table(block)
        else:
            self._manifestation(block)
        self.skip(0.0 if isinstance(block, Table) and block.continued else _GAP)

    def end(self) -> None:
        if self._page.texts:
            self.turn()

    def turn(self) -> None:
        """Begins a new page."""
        page, self._page, self._y = self._page, Page(), TOP
        self._full(page)

    def skip(self, height: float) -> None:
        if self._y < TOP:
            self._y -= height

    def put(
        self, text: str, style: Style, size: float, *, x: float = LEFT, colour: Colour = BLACK, right: float = RIGHT
    ) -> None:
        """Sets a text in lines, on as many pages as needed."""
        for line in self._setter.lines(text, style, size, right - x):
            self._need(size * _LEADING)
            self._y -= size * _LEADING
            self._page.texts.append(_placed(line, x, right, self._y, size, colour))

    def mark_last(self, line: Line, size: float) -> None:
        """Sets a text at the right end of the last line."""
        self._page.texts.append(_placed(line._replace(from_right=True), LEFT, RIGHT, self._y, size, BLACK))

    def _need(self, height: float) -> bool:
        """Turns the page if this one has no room of the given height. Returns whether it did."""
        if self._y - height >= BOTTOM or self._y == TOP:
            return False
        self.turn()
        return True

    def _heading(self, heading: Heading) -> None:
        size = _HEADINGS[heading.depth]
        if heading.depth == 1 and self._y < TOP:
            self.turn()
        self._need(size * _LEADING * 2 + _KEPT_TOGETHER * _TEXT * _LEADING)
        self.skip(size * 0.6)
        if heading.in_contents:
            self._page.headings.append((heading, self._y))
        colour = ACCENT if heading.depth <= 2 else BLACK
        self.put(" ".join(heading.text.split()), Style.BOLD, size, colour=colour)

    def _facts(self, rows: Sequence[tuple[str, str]], x: float) -> None:
        for name, value in rows:
            self._row([name, value], [x, x + _LABELS], [x + _LABELS - _CELL_GAP, RIGHT], [Style.BOLD, Style.REGULAR])

    def _prose(self, block: Prose) -> None:
        self._need(_KEPT_TOGETHER * _TEXT * _LEADING)
        self.put(block.label, Style.BOLD, _TEXT)
        self.put(block.text, Style.REGULAR, _TEXT)

    def _beside_rule(self, text: str, style: Style, size: float, colour: Colour) -> None:
        """Sets an indented text, with a rule at its left side on each page."""
        for line in self._setter.lines(text, style, size, RIGHT - LEFT - _INDENT):
            self._need(size * _LEADING)
            top = self._y
            self._y -= size * _LEADING
            self._page.texts.append(_placed(line, LEFT + _INDENT, RIGHT, self._y, size, BLACK))
            self._rule_on(LEFT + _INDENT / 2, top, self._y - size * 0.3, colour)

    def _rule_on(self, x: float, top: float, bottom: float, colour: Colour) -> None:
        """Draws a vertical rule. If the last rule ends where this one begins, the two are joined."""
        rules = self._page.rules
        if rules and rules[-1].x1 == x and abs(rules[-1].y2 - top) < _TEXT:
            top = rules.pop().y1
        rules.append(Rule(x, top, x, bottom, 1.2, colour))

    def _manifestation(self, block: Manifestation) -> None:
        self._need((3 + _KEPT_TOGETHER) * _TEXT * _LEADING)
        self._rule_across(ACCENT)
        self.put(f"Signed electronically by {block.name}", Style.BOLD, _TEXT, x=LEFT + _INDENT, colour=ACCENT)
        self.put(f"Date and time: {block.at}", Style.REGULAR, _TEXT, x=LEFT + _INDENT)
        self.put(f"Meaning: {block.meaning}", Style.REGULAR, _TEXT, x=LEFT + _INDENT)
        self._facts(block.rows, LEFT + _INDENT)
        self._y -= _SMALL / 2
        self._rule_across(ACCENT)

    def _rule_across(self, colour: Colour) -> None:
        self._page.rules.append(Rule(LEFT, self._y, RIGHT, self._y, 0.6, colour))

    def _table(self, table: Table) -> None:
        lefts, rights = _columns(table.shares)
        if not table.continued:
            self._need(_KEPT_TOGETHER * _TEXT * _LEADING)
            self.put(table.title, Style.BOLD, _TEXT)
            self._head(table, lefts, rights)
        for row in table.rows:
            self._row(row, lefts, rights, [Style.REGULAR] * len(row), lambda: self._head(table, lefts, rights))

    def _head(self, table: Table, lefts: Sequence[float], rights: Sequence[float]) -> None:
        self._row(table.columns, lefts, rights, [Style.BOLD] * len(lefts))
        self._y -= _SMALL * 0.3
        self._rule_across(GREY)

    def _row(
        self,
        cells: Sequence[str],
        lefts: Sequence[float],
        rights: Sequence[float],
        styles: Sequence[Style],
        head: Callable[[], object] = lambda: None,
    ) -> None:
        """Sets cells side by side. Text that does not fit continues on the next page, which begins with `head`."""
        columns = [
            list(self._setter.lines(cell, style, _SMALL, right - left))
            for cell, style, left, right in zip(cells, styles, lefts, rights, strict=True)
        ]
        height = _SMALL * _LEADING
        if self._need(min(max(map(len, columns)), _KEPT_TOGETHER) * height):
            head()
        while any(columns):
            fitting = max(int((self._y - BOTTOM) / height), 1)
            for column, left, right in zip(columns, lefts, rights, strict=True):
                for place, line in enumerate(column[:fitting], 1):
                    self._page.texts.append(_placed(line, left, right, self._y - place * height, _SMALL, BLACK))
            self._y -= min(max(map(len, columns)), fitting) * height
            columns = [column[fitting:] for column in columns]
            if any(columns):
                self.turn()


def _columns(shares: Sequence[int]) -> tuple[list[float], list[float]]:
    """The left and right edges of columns."""
    whole, edges = sum(shares), [LEFT]
    for share in shares:
        edges.append(edges[-1] + (RIGHT - LEFT) * share / whole)
    return edges[:-1], [edge - _CELL_GAP for edge in edges[1:-1]] + [RIGHT]


def _placed(line: Line, left: float, right: float, y: float, size: float, colour: Colour) -> Text:
    x = right - line.width * size / EM if line.from_right else left
    return Text(x, y, line, size, colour)


def gathered(setter: LineSetter, blocks: Callable[[Pages], object]) -> list[Page]:
    """The pages that a function fills."""
    done: list[Page] = []
    pages = Pages(setter, done.append)
    blocks(pages)
    pages.end()
    return done
