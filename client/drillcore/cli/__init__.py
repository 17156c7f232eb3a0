"""The command line `drillcore`.

Commands that other packages bring by entry points of the group "drillcore.commands" are click commands. They use
`common_options` and `pass_session` to have the same flags, and `Session.emit` to have the same output.
"""

from drillcore.cli.options import common_options, connection_options
from drillcore.cli.root import main
from drillcore.cli.session import CommandError, Session, pass_session

__all__ = ["CommandError", "Session", "common_options", "connection_options", "main", "pass_session"]
