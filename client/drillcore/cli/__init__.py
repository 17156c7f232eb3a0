"""The command line `drillcore`.

Other packages add commands: see `drillcore_formats.plugins`.
"""

from drillcore.cli.options import common_options, connection_options
from drillcore.cli.root import main
from drillcore.cli.session import Session, pass_session
from drillcore_formats.plugins import CommandError

__all__ = ["CommandError", "Session", "common_options", "connection_options", "main", "pass_session"]
