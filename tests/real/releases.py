"""What differs between the releases of Kubernetes that the tests may meet: gates, served versions, objects."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from muster.api.codec import Object
from muster.api.groups import initially_scheduled_in
from muster.api.resource import POD_GROUPS, WORKLOADS, Resource
from muster.apiserver.options import Release

GROUP = "scheduling.k8s.io"
TEMPLATE = "workers"
"""The name of the one template that a Workload of 1.35 has here."""


@dataclass(frozen=True)
class KubernetesRelease:
    """One minor release with its group API.

    `gates`: those of the feature; `job_gate`: the one that gives Jobs groups of their own, "" where there is none.
    `versions`: what the group API is served in, the one that a scheduler takes first. `pod_gates`: those without which
    a server drops the pod's link.
    """

    minor: Release
    gates: tuple[str, ...]
    versions: tuple[str, ...]
    job_gate: str = field(default="")

    @property
    def feature_gates(self) -> str:
        """The option of kube-apiserver and kube-scheduler that turns the feature on."""
        return _gates(self.gates)

    @property
    def job_feature_gates(self) -> str:
        """The same, with groups for Jobs where the release has them."""
        return _gates((*self.gates, self.job_gate) if self.job_gate else self.gates)

    @property
    def runtime_config(self) -> str:
        """The option of kube-apiserver that serves the group API."""
        return serving(self.versions)

    @property
    def has_pod_groups(self) -> bool:
        """Whether groups are objects (1.36 on), not templates of a Workload alone."""
        return self.minor != "1.35"

    @property
    def groups(self) -> Resource:
        """What a group is made as: a PodGroup, or a Workload that has its template."""
        kind = POD_GROUPS if self.has_pod_groups else WORKLOADS
        return Resource(GROUP, self.versions[0], kind.plural, kind.kind)

    @property
    def condition(self) -> str:
        """The condition of a group that says whether it is scheduled; "" where groups have none."""
        return initially_scheduled_in(self.versions[0]) if self.has_pod_groups else ""

    def group(self, name: str, namespace: str, least: int) -> Object:
        """A gang."""
        policy = {"gang": {"minCount": least}}
        spec: Object = {"schedulingPolicy": policy}
        if not self.has_pod_groups:
            spec = {"podGroups": [{"name": TEMPLATE, "policy": policy}]}
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": self.groups.api_version, "kind": self.groups.kind, "metadata": metadata, "spec": spec}

    def link(self, group: str) -> Object:
        """The field of a pod's spec that makes it a member."""
        if self.has_pod_groups:
            return {"schedulingGroup": {"podGroupName": group}}
        return {"workloadRef": {"name": group, "podGroup": TEMPLATE}}


def serving(versions: tuple[str, ...]) -> str:
    """The option of kube-apiserver that serves these versions of the group API."""
    return "--runtime-config=" + ",".join(f"{GROUP}/{version}=true" for version in versions)


def _gates(names: tuple[str, ...]) -> str:
    return "--feature-gates=" + ",".join(f"{name}=true" for name in names)


_ALL_1_36 = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "DRAWorkloadResourceClaims",
)
_ALL_1_37 = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "PodGroupPreemptionPolicy",
    "DRAWorkloadResourceClaims",
)
RELEASES = {
    str(release.minor): release
    for release in (
        KubernetesRelease("1.35", ("GenericWorkload", "GangScheduling"), ("v1alpha1",)),
        KubernetesRelease("1.36", _ALL_1_36, ("v1alpha2",), "WorkloadWithJob"),
        KubernetesRelease("1.37", _ALL_1_37, ("v1alpha3", "v1beta1"), "WorkloadWithJob"),
    )
}


def folders() -> list[Path]:
    """Where binaries of any release may be: `KUBEBUILDER_ASSETS`, those of `MUSTER_KUBERNETES` (folders with colons
    between them), and what `make test-real` built."""
    named = [os.environ.get("KUBEBUILDER_ASSETS", ""), *os.environ.get("MUSTER_KUBERNETES", "").split(":")]
    built = sorted((Path.home() / ".cache" / "muster").glob("kubernetes-v*"))
    return [
        folder for folder in (*(Path(name) for name in named if name), *built) if (folder / "kube-apiserver").exists()
    ]


@cache
def release_of(assets: Path) -> KubernetesRelease:
    """The release of the kube-apiserver in a folder. Fails for one that is not known here."""
    said = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"v(1\.\d+)\.", said)
    found = RELEASES.get(match[1]) if match else None
    assert found is not None, f"{assets}: {said.strip()} is none of {', '.join(RELEASES)}"
    return found
