"""The manifests of the article on the Workload and PodGroup API are accepted unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real_clients import Kubectl

pytestmark = pytest.mark.integration

ARTICLE = Path(__file__).parents[2] / "examples" / "article"
MANIFESTS = sorted(ARTICLE.glob("*.yaml"))


@pytest.fixture
def prepared(kubectl: Kubectl) -> Kubectl:
    """kubectl, after the namespace and the priority class that the manifests name are there."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "some-ns"}}
    kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    kubectl("apply", "-f", str(ARTICLE / "priority-class.yaml"))
    return kubectl


def test_there_are_manifests() -> None:
    assert len(MANIFESTS) >= 8


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_is_accepted(prepared: Kubectl, manifest: Path) -> None:
    for _ in range(2):
        prepared("apply", "-f", str(manifest))


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"])
def test_workload_is_served_in_every_version(prepared: Kubectl, version: str) -> None:
    prepared("apply", "-f", str(ARTICLE / "workload-v1alpha1.yaml"))
    found = prepared.json("get", f"workloads.{version}.scheduling.k8s.io", "-n", "some-ns")["items"]
    assert [item["apiVersion"] for item in found] == [f"scheduling.k8s.io/{version}"]
    templates = found[0]["spec"]["podGroups" if version == "v1alpha1" else "podGroupTemplates"]
    assert templates[0]["name"] == "workers"
