"""The engine on a FoundationDB cluster. The client library is loaded when an engine is opened, not before."""

from drillcore_fdb.cluster.engine import ClusterEngine
from drillcore_fdb.cluster.settings import ClusterSettings

__all__ = ["ClusterEngine", "ClusterSettings"]
