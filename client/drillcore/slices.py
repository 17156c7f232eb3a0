"""Reads and checks slice files without a server."""

from drillcore_formats.slices import InvalidSlice, SliceEdge, SliceFile, SliceNode, SliceTurn, fingerprint, read

__all__ = [
    "InvalidSlice",
    "SliceEdge",
    "SliceFile",
    "SliceNode",
    "SliceTurn",
    "fingerprint",
    "read",
]
