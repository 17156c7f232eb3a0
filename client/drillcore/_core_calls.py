"""Calls about knowledge cores: a corpus as a file. See `_calls`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from drillcore import _convert_cores as convert
from drillcore import _convert_nodes
from drillcore._call import Id, id_text
from drillcore._convert_nodes import AsOf
from drillcore._core_receiving import Receiving, part_path
from drillcore._core_results import CoreExport, CoreImport, CoreKind, OnCoreProgress
from drillcore._core_sending import Sending
from drillcore._resume import Resumable
from drillcore._upload import Listener
from drillcore_proto.v1 import cores_pb2 as pb


def export_core(
    corpus_id: Id,
    path: Path | str,
    *,
    kind: CoreKind = CoreKind.FULL,
    as_of: AsOf | None = None,
    include_sources: bool = True,
    include_retrieval: bool = False,
    core_id: str = "",
    on_event: OnCoreProgress | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Resumable[CoreExport]:
    """Write a knowledge core of a corpus to `path`, and the signed note about it to the same name with `.sig`.

    Without `include_sources` there are no texts of documents and chunks in it, and no hierarchy is rebuilt from it.
    `include_retrieval` tells of the caller's envelopes too. `core_id` is the name that TrustGraph knows it by.

    The file takes its place, and replaces what is there, when it is whole. What came before a failure is kept beside
    it, in `.NAME.part`: a lost connection is made again and goes on from there, and so does the same call when it is
    repeated. If the corpus has changed meanwhile the core is begun anew; with a revision as `as_of` it cannot change,
    but for what is erased. Each call after the first has a request id of its own, of `request_id` and its number.
    """
    request = pb.ExportCoreRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=_convert_nodes.as_of_message(as_of),
        kind=convert.KINDS[kind],
        include_sources=include_sources,
        include_retrieval=include_retrieval,
        core_id=core_id,
    )
    revision = as_of if isinstance(as_of, int) else None

    def opened(renew: Callable[[], object], listener: Listener) -> Receiving:
        return Receiving(Path(path), part_path(Path(path), revision), request, request_id, renew, listener)

    return Resumable(opened, on_event, timeout_s)


def import_core(
    corpus_id: Id,
    path: Path | str,
    *,
    strict: bool = False,
    source_id: str = "",
    signature: str = "",
    verification_keys: Collection[str] = (),
    on_event: OnCoreProgress | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Resumable[CoreImport]:
    """Store what is in a knowledge core, as one revision: all or none. A full core needs a corpus without content.

    Records that cannot be used are skipped and told of, or with `strict` refused. `source_id` is of what a core of
    another system brings; by default `core:` and the core's id. `signature` is a signed note about the file; with
    `verification_keys`, verifier keys (C2SP), a core that none of them signed is refused.

    A lost connection is made again, and so much as the server has is not sent again; neither is it when the call is
    repeated with the same file, for as long as the server keeps it. Raises InvalidArgument, whose message says where
    the file is wrong; FailedPrecondition for a corpus that has content, or a missing signature.
    """
    target = pb.ImportCoreTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        strict=strict,
        source_id=source_id,
        signature=signature,
        verification_keys=verification_keys,
    )
    name = request_id or str(uuid.uuid4())  # the same for every call: what is done already is not done twice

    def opened(renew: Callable[[], object], listener: Listener) -> Sending:
        return Sending(Path(path), target, name, renew, listener)

    return Resumable(opened, on_event, timeout_s)
