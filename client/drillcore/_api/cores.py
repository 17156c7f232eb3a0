"""Knowledge cores: a corpus as a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from drillcore._api.core_data import CoreExport, CoreImport, CoreKind, OnCoreProgress
from drillcore._api.core_download import CoreDownload, part_path
from drillcore._api.core_upload import CoreUpload
from drillcore._api.messages import AsOf, as_of_message, enum_number
from drillcore._transport.call import Id, id_text
from drillcore._transport.resume import Resumable
from drillcore._transport.upload import Listener
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

    Without `include_sources` the core has no texts of documents and chunks, and no hierarchy can be rebuilt from it.
    `include_retrieval` adds what the caller's envelopes were made of. `core_id` is the core's id in TrustGraph.

    The file replaces an existing one once it is complete. After a failure, the part that arrived stays beside it in
    `.NAME.part`. The client reconnects and continues from there, and so does a repeated call. If the corpus has changed
    in between, the core starts again; with a revision as `as_of` only an erasure can change it. Each call after the
    first has a request id that consists of `request_id` and its number.
    """
    request = pb.ExportCoreRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=as_of_message(as_of),
        kind=enum_number(pb.CoreKind, kind),
        include_sources=include_sources,
        include_retrieval=include_retrieval,
        core_id=core_id,
    )
    revision = as_of if isinstance(as_of, int) else None

    def opened(renew: Callable[[], object], listener: Listener) -> CoreDownload:
        return CoreDownload(Path(path), part_path(Path(path), revision), request, request_id, renew, listener)

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
    """Store a knowledge core as one revision: all of it or nothing. A full core needs an empty corpus.

    The server skips and reports records that it cannot use; with `strict` it refuses the core. `source_id` is the
    source of what another system's core brings, by default `core:` and the core's id. `signature` is a signed note
    about the file. With `verification_keys` (C2SP verifier keys) the server refuses a core that none of them signed.

    The client reconnects after a lost connection, and does not send again what the server has. The same holds for a
    repeated call with the same file, as long as the server keeps it. Raises InvalidArgument, whose message says where
    the file is wrong; FailedPrecondition if the corpus has content or a signature is missing.
    """
    target = pb.ImportCoreTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        strict=strict,
        source_id=source_id,
        signature=signature,
        verification_keys=verification_keys,
    )
    name = request_id or str(uuid.uuid4())  # the same for every call, so that the import takes effect once

    def opened(renew: Callable[[], object], listener: Listener) -> CoreUpload:
        return CoreUpload(Path(path), target, name, renew, listener)

    return Resumable(opened, on_event, timeout_s)
