"""The embedded engine."""

from drillcore_fdb.embedded.engine import Durability, EmbeddedEngine, EmbeddedSettings, compact, verify
from drillcore_fdb.embedded.rewritable import RewritableEngine

__all__ = ["Durability", "EmbeddedEngine", "EmbeddedSettings", "RewritableEngine", "compact", "verify"]
