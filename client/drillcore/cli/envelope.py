"""`drillcore envelope ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._envelope_results import Replay
from drillcore.cli.busy import busy
from drillcore.cli.envelope_text import issued_report
from drillcore.cli.options import connection_options
from drillcore.cli.session import Session, pass_session


@click.group()
def envelope() -> None:
    """Look at context envelopes that were issued. See drillcore pack for making one."""


@envelope.command()
@click.argument("envelope_id", type=click.UUID, metavar="ENVELOPE")
@connection_options
@pass_session
@click.pass_context
def show(context: click.Context, session: Session, envelope_id: UUID) -> None:
    """Build an envelope again as of its revisions, compare it with what was issued then, and show it.

    Exit codes: 0 if it is the same, or it is known why it cannot be; 1 if the store says something else.
    """
    with session.client() as client, busy(session, "the server builds the envelope again"):
        found = client.get_envelope(envelope_id, timeout_s=session.long_timeout_s)
    session.emit(found, *issued_report(found))
    context.exit(1 if found.replay is Replay.DIFFERENT else 0)
