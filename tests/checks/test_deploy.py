"""The deployment files name settings and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

from drillcore_server.app.config import load_settings
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"


def test_every_variable_in_the_deployment_files_is_a_setting() -> None:
    checked = 0
    for file in ("Dockerfile", "compose.yaml", "drillcore.service"):
        text = (DEPLOY / file).read_text(encoding="utf-8")
        pairs = re.findall(r"(DRILLCORE_\w+)\s*[=:]\s*\"?([^\"\s\\]+)", text)
        assert pairs, file
        load_settings(environment=dict(pairs))
        checked += len(pairs)
    assert checked == 7


def test_the_servers_in_kubernetes_share_a_cluster_and_its_keys() -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
    settings = load_settings(environment=dict(re.findall(r"name: (DRILLCORE_\w+), value: \"?([^\"}]+)", text)))
    assert settings.engine.kind.value == "cluster"
    mounted = f"{{name: keys, mountPath: {settings.engine.secret_dir}, readOnly: true}}"
    assert mounted in text
    assert settings.engine.master_key_path == Path("/run/secrets/drillcore/master.key")
    assert settings.audit_key_dir == settings.engine.secret_dir
    assert settings.server.tls is not None


def test_compose_serves_on_a_cluster() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    settings = load_settings(environment=dict(re.findall(r"(DRILLCORE_\w+): \"?([^\"\s]+)", text)))
    assert settings.engine.kind.value == "cluster"
    assert settings.engine.cluster.cluster_file == Path("/var/fdb/fdb.cluster")
