"""Reads HTML: the text that a reader sees, in order, with headings, lists, tables and preformatted text."""

from __future__ import annotations

import re
from importlib.metadata import version

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from drillcore_server.documents.model import BlockKind, Budget, ParsedDocument, Refusal, UnparsableReason
from drillcore_server.documents.parsers.detect import Format
from drillcore_server.documents.parsers.text_blocks import TextBuilder, refuse_blank, title

_DROPPED = frozenset(("script", "style", "noscript", "template", "head", "svg", "iframe", "object", "canvas", "math"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend", "main",
    "menu", "nav", "ol", "option", "p", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
    "ul",
))  # fmt: skip
_LAYOUT = "td h1, td h2, td h3, td h4, td ul, td ol, td pre"
"""A table that contains one of these elements, or another table, only lays out a page. Its rows are not data."""

# These elements have no end tag, or may leave it out. They do not nest, however many follow each other.
_NOT_NESTING = frozenset((
    "p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "option", "optgroup", "html",
    "head", "body", "rp", "rt", "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param",
    "source", "track", "wbr",
))  # fmt: skip
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)|<!--")
_CLOSED_BY = {"script": "</script", "style": "</style"}
_NODES_BETWEEN_TIME_CHECKS = 4096


def parse_html(
    text: str, *, name: str, notes: tuple[str, ...], budget: Budget, format_: Format = Format.HTML
) -> ParsedDocument:
    check_depth(text, budget.limits.depth_max)
    tree = _tree(text)
    walk = _Walk(TextBuilder(budget), budget)
    if tree.root is not None:
        walk.run(tree.root)
    extracted, blocks = walk.builder.text(), walk.builder.blocks()
    refuse_blank(blocks, "holds no text that a reader would see")
    heading = tree.css_first("head > title")
    return ParsedDocument(
        text=extracted,
        media_type=format_.value,
        title=title(extracted, blocks, name=name, stated=heading.text() if heading else None),
        blocks=blocks,
        preprocessing=(*notes, f"html to text with selectolax {version('selectolax')}"),
    )


def _tree(text: str) -> LexborHTMLParser:
    try:
        return LexborHTMLParser(text)
    except SelectolaxError as error:  # the parser accepts every text: it fails only if memory runs out
        raise MemoryError from error


def check_depth(text: str, depth_max: int) -> None:
    """Refuses deep nesting before the tree is built: the time to build it grows with the square of the depth."""
    depth, at = 0, 0
    while (tag := _TAG.search(text, at)) is not None:
        at = tag.end()
        end_tag, element = tag.group(1), (tag.group(2) or "").lower()
        closed_by = _CLOSED_BY.get(element) if not end_tag else None
        if tag.group(2) is None or closed_by:
            at = text.find(closed_by or "-->", at)
            if at < 0:
                return
        elif element not in _NOT_NESTING:
            depth = max(depth - 1, 0) if end_tag else depth + 1
            if depth > depth_max:
                raise Refusal(UnparsableReason.TOO_DEEP, f"nests elements over {depth_max} deep; flatten it")


class _Walk:
    """Walks the tree without recursion. A block of text ends wherever a block element begins or ends."""

    def __init__(self, builder: TextBuilder, budget: Budget) -> None:
        self.builder = builder
        self._budget = budget
        self._words: list[str] = []
        self._kind = BlockKind.PARAGRAPH
        self._level = 0
        self._seen = 0

    def run(self, root: LexborNode) -> None:
        node: LexborNode | None = root
        depth = 0
        while node is not None:
            child = node.first_child if self._enter(node) else None
            if child is not None:
                node, depth = child, depth + 1
                continue
            self._leave(node)
            while node is not None and node.next is None:
                node, depth = (node.parent, depth - 1) if depth > 0 else (None, depth)
                if node is not None:
                    self._leave(node)
            node = node.next if node is not None and depth > 0 else None
        self._flush()

    def _enter(self, node: LexborNode) -> bool:
        """Takes the text of the node itself. Returns whether its children are to be walked."""
        self._check_time()
        tag = node.tag or ""
        if node.is_text_node:
            self._words.append(node.text_content or "")
            return False
        if tag in _DROPPED or node.is_comment_node:
            return False
        if tag == "br":
            self._words.append("\0")
            return False
        if tag == "pre":
            self._take(BlockKind.CODE, node.text())
            return False
        if tag == "table" and node.first_child is not None and not _is_layout(node):
            self._take(BlockKind.TABLE, _rows(node))
            return False
        self._open(tag)
        return True

    def _open(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._flush()
            self._kind, self._level = BlockKind.HEADING, _HEADINGS[tag]
        elif tag == "li":
            self._flush()
            self._kind = BlockKind.LIST_ITEM
        elif tag in _BLOCKS:
            self._end_block()

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in _HEADINGS or tag == "li":
            self._flush()
        elif tag in _BLOCKS:
            self._end_block()

    def _end_block(self) -> None:
        # In `<li><p>` and `<h1><div>` the outer element decides the kind of the block, unless text came before.
        if any(word.strip() for word in self._words):
            self._flush()
        else:
            self._words.clear()

    def _flush(self) -> None:
        content = "".join(self._words)
        if content.strip():
            self.builder.add(self._kind, _collapsed(content), level=self._level)
        self._words.clear()
        self._kind, self._level = BlockKind.PARAGRAPH, 0

    def _take(self, kind: BlockKind, content: str) -> None:
        self._flush()
        self.builder.add(kind, content)

    def _check_time(self) -> None:
        self._seen += 1
        if self._seen % _NODES_BETWEEN_TIME_CHECKS == 0:
            self._budget.check_time()


def _collapsed(content: str) -> str:
    """Collapses white space as a browser does: a run becomes one space, and only `<br>` breaks a line."""
    return "\n".join(" ".join(line.split()) for line in content.split("\0"))


def _is_layout(table: LexborNode) -> bool:
    inner = any(found.mem_id != table.mem_id for found in table.css("table"))
    return inner or table.css_first(_LAYOUT) is not None


def _rows(table: LexborNode) -> str:
    """Writes each row as a line with bars between its cells, which suits search, readers and models."""
    rows = [table.css_first("caption"), *table.css("tr")]
    return "\n".join(filter(None, (_cells(row) for row in rows if row is not None)))


def _cells(row: LexborNode) -> str:
    if row.tag == "caption":
        return " ".join(row.text(separator=" ").split())
    cells = [" ".join(cell.text(separator=" ").split()) for cell in row.iter() if cell.tag in ("td", "th")]
    return " | ".join(cells) if any(cells) else ""
