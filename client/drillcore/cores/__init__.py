"""Knowledge cores as files: reading, looking into and verifying them, without a server.

`read_core` finds the records of a file; what is in them is told by `read_listing`, `read_library` and `part_arrays`.
"""

from drillcore.cores.blobs import Blob
from drillcore.cores.failures import InvalidCore, InvalidTerm, WrongShape
from drillcore.cores.framing import Record, naming, read_core
from drillcore.cores.inspecting import CoreSummary, content_of, inspect
from drillcore.cores.parts import CoreModel, CoreRoot, part_arrays
from drillcore.cores.records import (
    EmbeddedChunk,
    Entity,
    LibraryDocument,
    Listing,
    Meta,
    read_chunk,
    read_entity,
    read_library,
    read_listing,
)
from drillcore.cores.signed import CoreStatement, VerifiedCore, verify
from drillcore.cores.terms import PlainTerm, Triple, read_term, read_triple, write_term, write_triple

__all__ = [
    "Blob",
    "CoreModel",
    "CoreRoot",
    "CoreStatement",
    "CoreSummary",
    "EmbeddedChunk",
    "Entity",
    "InvalidCore",
    "InvalidTerm",
    "LibraryDocument",
    "Listing",
    "Meta",
    "PlainTerm",
    "Record",
    "Triple",
    "VerifiedCore",
    "WrongShape",
    "content_of",
    "inspect",
    "naming",
    "part_arrays",
    "read_chunk",
    "read_core",
    "read_entity",
    "read_library",
    "read_listing",
    "read_term",
    "read_triple",
    "verify",
    "write_term",
    "write_triple",
]
