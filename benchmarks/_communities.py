"""Measures how long a server takes to find communities, for the benchmark of facts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import UUID

from benchmarks._server import Serving
from drillcore import Client, CommunityRun

_LOOK_AGAIN_S = 1.0


def recluster_figures(serving: Serving, tenant: str, corpus: str) -> dict[str, object]:
    """Measures a run through the server: facts are read, compared, grouped, labelled and written.

    `recluster_outside_share` is the share of the time outside the libraries: matrix products or HNSW, and Leiden.
    """
    with Client(serving.address, token=serving.token) as client:
        run = _run(client, UUID(tenant), UUID(corpus))
    figures = _computed(serving.data.parent / "server.log")
    return {
        "recluster_s": round(run.took_s, 1),
        "recluster_outside_share": round(1 - figures["native_s"] / run.took_s, 3),
        "communities": run.communities,
        "edges": figures["edges"],
        "modularity": round(figures["modularity"], 4),
        "graph_s": round(figures["graph_s"], 1),
        "leiden_s": round(figures["leiden_s"], 1),
    }


def _run(client: Client, tenant: UUID, corpus: UUID) -> CommunityRun:
    """Runs and waits: a large run takes longer than a call."""
    before = client.list_communities(corpus, tenant_id=tenant, page_size=1).last_run
    done = client.recompute_communities(corpus, tenant_id=tenant)
    run = None if done.running else done.run
    while run is None or run == before:
        time.sleep(_LOOK_AGAIN_S)
        run = client.list_communities(corpus, tenant_id=tenant, page_size=1).last_run
    return run


def _computed(log: Path) -> dict[str, float]:
    """Returns what the server logged about its last run."""
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines() if '"communities computed"' in line]
    found: dict[str, float] = lines[-1]
    return found
