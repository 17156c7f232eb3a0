"""Servers of knowledge cores that lose connections where a test says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from tests.support.data.fact_messages import RECORD
from tests.support.servers.in_memory_server import Failure, because

NOTE = "drillcore core 1\nsigned\n\n— key c2lnbmF0dXJl\n"
COUNTS = pb.CoreCounts(records=3, quads=2, facts=1)
PIECE = 1000
STOPS = because(Reason.SHUTTING_DOWN)


@dataclass
class CoreExporter:
    """Sends `content`. Each call sends at most as many bytes as the next of `losses` says, and then fails."""

    content: bytes
    losses: list[int] = field(default_factory=list)
    loss: Failure | None = STOPS
    """How a lost call ends; None: the stream just ends."""
    requests: list[pb.ExportCoreRequest] = field(default_factory=list)
    said_sha256: bytes = b""
    """Sent instead of the true hash."""

    def __call__(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        (request,) = requests
        self.requests.append(request)
        begin = request.resume_at_bytes
        if begin and hashlib.sha256(self.content[:begin]).digest() != request.resume_sha256:
            because(Reason.CORE_CHANGED)(context)
        yield pb.ExportCoreResponse(progress=pb.CoreProgress(stage="writing", bytes=len(self.content), records=3))
        yield pb.ExportCoreResponse(progress=pb.CoreProgress(stage="sending", bytes=len(self.content), records=3))
        end = begin + self.losses.pop(0) if self.losses else len(self.content)
        for at in range(begin, end, PIECE):
            yield pb.ExportCoreResponse(data=self.content[at : min(at + PIECE, end)])
        if end < len(self.content):
            if self.loss is not None:
                self.loss(context)
            return
        yield pb.ExportCoreResponse(done=self._done())

    def _done(self) -> pb.CoreDone:
        return pb.CoreDone(
            revision=7,
            sha256=self.said_sha256 or hashlib.sha256(self.content).digest(),
            size_bytes=len(self.content),
            record_id=str(RECORD),
            signature=NOTE,
            counts=COUNTS,
            core_id="urn:core",
        )


@dataclass
class CoreImporter:
    """Keeps the bytes of each upload id. Each call takes at most as many bytes as the next of `losses`, then fails."""

    losses: list[int] = field(default_factory=list)
    targets: list[pb.ImportCoreTarget] = field(default_factory=list)
    kept: dict[str, bytearray] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    refusal: Failure | None = None
    """Sent instead of the message that the server is ready."""
    unsaid: int = 0
    """How many calls end without an outcome for the core."""

    def __call__(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        target = next(requests).target
        self.targets.append(target)
        if self.refusal is not None:
            self.refusal(context)
        content = self.kept.setdefault(target.upload_id, bytearray())
        self.offsets.append(len(content))
        yield pb.ImportCoreResponse(ready=pb.ImportCoreReady(offset_bytes=len(content)))
        left = self.losses.pop(0) if self.losses else None
        for part in requests:
            if part.WhichOneof("part") == "end":
                break
            content.extend(part.data if left is None else part.data[:left])
            yield pb.ImportCoreResponse(progress=pb.CoreProgress(stage="reading", bytes=len(content)))
            if left is not None and left <= len(part.data):
                STOPS(context)
            left = None if left is None else left - len(part.data)
        assert (part.end.size_bytes, part.end.sha256) == (len(content), hashlib.sha256(content).digest())
        if self.unsaid:
            self.unsaid -= 1
            return
        skipped = pb.SkippedRecord(record=2, offset_bytes=30, tag="zz", id="i", reason="UNKNOWN_TAG", message="no")
        derived = pb.SkippedRecord(record=3, offset_bytes=40, tag="t", reason="DERIVED", message="made anew")
        done = pb.ImportCoreDone(
            revision=4,
            kind=pb.CORE_KIND_FULL,
            counts=COUNTS,
            skipped=[skipped, derived],
            skipped_count=9,
            signed_by="key",
        )
        yield pb.ImportCoreResponse(done=done)
