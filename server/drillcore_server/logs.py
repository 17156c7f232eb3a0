"""Structured logs, one line an event: ids, names, times and outcomes, never content."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import orjson
import structlog

from drillcore_server.config import LogFormat


def make_logger(log_format: LogFormat, stream: TextIO | None = None) -> structlog.stdlib.BoundLogger:
    """A logger that writes to `stream`, by default to standard error."""
    output = stream or sys.stderr
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(_json)
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=output.isatty())
    )
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(output),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            render,
        ],
        wrapper_class=structlog.BoundLogger,
    )
    return logger


def _json(event: dict[str, Any], **_options: Any) -> str:
    return orjson.dumps(event, default=repr).decode()
