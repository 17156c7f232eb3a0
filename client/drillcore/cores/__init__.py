"""Knowledge cores as files: looked into and verified, without a server.

    found = drillcore.cores.inspect("rules.core")
    drillcore.cores.verify("rules.core", Path("rules.core.sig").read_text(), [key])

`framing` finds the records of a file; `records`, `blobs`, `parts` and `terms` tell what is in them.
"""

from drillcore.cores.failures import InvalidCore
from drillcore.cores.inspecting import CoreSummary, inspect
from drillcore.cores.parts import CoreModel, CoreRoot
from drillcore.cores.signed import CoreStatement, VerifiedCore, verify

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
