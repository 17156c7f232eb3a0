"""Streams whose caller sends one request: what follows are answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from google.protobuf.message import Message

from drillcore_proto.reasons import Reason
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import BadInput

M = TypeVar("M", bound=Message)


def one_request(requests: Iterator[M], call: Call) -> tuple[M, Call]:
    """The request, and the call with a fingerprint of it: the stages before knew only that there is a stream."""
    request = next(requests, None)
    if request is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="corpus_id")
    content = request.SerializeToString(deterministic=True)
    return request, replace(call, fingerprint=hashlib.sha256(call.fingerprint + content).digest())
