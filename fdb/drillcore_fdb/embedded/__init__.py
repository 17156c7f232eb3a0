"""The embedded engine."""

from drillcore_fdb.embedded.engine import Durability, EmbeddedEngine, EmbeddedSettings, compact, verify

__all__ = ["Durability", "EmbeddedEngine", "EmbeddedSettings", "compact", "verify"]
