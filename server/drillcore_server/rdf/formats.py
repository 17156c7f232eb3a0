"""The formats of files of quads."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from pyoxigraph import RdfFormat


class QuadFormat(enum.Enum):
    N_QUADS = "N-Quads"
    TURTLE = "Turtle"
    """Has no graphs."""


RDF_FORMATS: Final[Mapping[QuadFormat, RdfFormat]] = {
    QuadFormat.N_QUADS: RdfFormat.N_QUADS,
    QuadFormat.TURTLE: RdfFormat.TURTLE,
}
