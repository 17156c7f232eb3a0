"""Knowledge cores as files, summarised and verified without a server.

found = drillcore.cores.inspect("rules.core")
drillcore.cores.verify("rules.core", Path("rules.core.sig").read_text(), [key])

format          tags, limits, errors
msgpack_stream  msgpack, read in pieces
framing         the records and blobs of a file
records, terms  what is in a record
parts           the root and the parts of a full core
summary         `inspect`
signed          `verify`
"""

from drillcore_formats.cores.format import InvalidCore
from drillcore_formats.cores.parts import CoreModel, CoreRoot
from drillcore_formats.cores.signed import CoreStatement, VerifiedCore, verify
from drillcore_formats.cores.summary import CoreSummary, inspect

__all__ = [
    "CoreModel",
    "CoreRoot",
    "CoreStatement",
    "CoreSummary",
    "InvalidCore",
    "VerifiedCore",
    "inspect",
    "verify",
]
