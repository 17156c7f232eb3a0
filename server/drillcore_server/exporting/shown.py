"""Characters that nobody would see, or that would change how others are seen, put down by their number.

Control characters, and those that turn the direction of text around: a copy that hides them could be read otherwise
than the original.
"""

from __future__ import annotations

import re
from typing import Final

_LINE_ENDS: Final = re.compile("\r\n|\u2028|\u2029")
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
)


def number_of(character: str) -> str:
    return f"U+{ord(character):04X}"


def with_numbers(text: str) -> str:
    """The text with lines that end in a line feed, and with numbers for what cannot be seen."""
    return _UNSEEN.sub(lambda found: number_of(found[0]), _LINE_ENDS.sub("\n", text))
