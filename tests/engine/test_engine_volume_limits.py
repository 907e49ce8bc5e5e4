"""In-tree volumes on nodes where a CSI driver attaches them count against the driver's limit."""

from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.engine.objects import CSI_NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from muster.engine.plugins.node_volume_limits import NodeVolumeLimits
from muster.engine.state import ClusterState
from muster.engine.storage.migration import attachment_of_volume
from muster.testing import make_node, make_pod

EBS, GCE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"


def csi_node(name: str, driver: str, count: int, migrated: str) -> Object:
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    drivers = [{"name": driver, "allocatable": {"count": count}}]
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


def pod_with(name: str, **source: Object) -> Object:
    made = make_pod(name)
    made["spec"]["volumes"] = [{"name": "v", **source}]
    return made


def counts(state: ClusterState, pod: Object) -> list[bool]:
    return [bool(count) for count in NodeVolumeLimits().count(state.shape_of(pod), state.snapshot())]


def state_with(driver: str, plugins: str) -> ClusterState:
    """Two nodes that attach one volume each; on the second one these plugins are migrated."""
    state = ClusterState()
    for name, migrated in (("a", ""), ("b", plugins)):
        state.set_node(make_node(name))
        state.set_object(CSI_NODE, csi_node(name, driver, 1, migrated))
    return state


@pytest.mark.parametrize(
    ("field", "plugin", "driver", "identity"),
    [
        ("awsElasticBlockStore", EBS, "ebs.csi.aws.com", "volumeID"),
        ("gcePersistentDisk", GCE, "pd.csi.storage.gke.io", "pdName"),
        ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
        ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org", "volumeID"),
        ("portworxVolume", "kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID"),
    ],
)
def test_disks_of_pods_count_where_their_plugin_is_migrated(
    field: str, plugin: str, driver: str, identity: str
) -> None:
    state = state_with(driver, f"other,{plugin}")
    for node in "ab":
        state.add_pod(f"default/on-{node}", pod_with(f"on-{node}", **{field: {identity: "one"}}), node)
    assert counts(state, pod_with("same", **{field: {identity: "one"}})) == [True, True]
    assert counts(state, pod_with("other", **{field: {identity: "two"}})) == [True, False]


def test_files_and_vsphere_disks_are_not_counted() -> None:
    state = state_with("csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume,kubernetes.io/azure-file")
    state.add_pod("default/on-b", pod_with("on-b", vsphereVolume={"volumePath": "one"}), "b")
    assert counts(state, pod_with("other", vsphereVolume={"volumePath": "two"})) == [True, True]


def test_a_claim_without_a_volume_counts_by_its_class() -> None:
    state = state_with("ebs.csi.aws.com", EBS)
    state.set_object(STORAGE_CLASS, {"metadata": {"name": "ebs"}, "provisioner": EBS})
    for number in range(2):
        metadata = {"name": f"c{number}", "namespace": "default"}
        state.set_object(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": {"storageClassName": "ebs"}})
    pods = [pod_with(f"p{n}", persistentVolumeClaim={"claimName": f"c{n}"}) for n in range(2)]
    for node in "ab":
        state.add_pod(f"default/on-{node}", pods[0], node)
    assert counts(state, pods[1]) == [True, False]


def test_a_migrated_volume_and_the_drivers_own_are_the_same_if_their_handles_are() -> None:
    state = state_with("ebs.csi.aws.com", EBS)
    volumes = {
        "tree": {"awsElasticBlockStore": {"volumeID": "aws://zone-a/vol-1"}},
        "csi": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}},
    }
    for name, source in volumes.items():
        state.set_object(PERSISTENT_VOLUME, {"metadata": {"name": name}, "spec": source})
        metadata = {"name": name, "namespace": "default"}
        state.set_object(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": {"volumeName": name}})
    state.add_pod("default/on-b", pod_with("on-b", persistentVolumeClaim={"claimName": "tree"}), "b")
    assert counts(state, pod_with("p", persistentVolumeClaim={"claimName": "csi"})) == [True, True]


@pytest.mark.parametrize(
    ("zones", "want"),
    [
        ("", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        ("europe-west1-b", "projects/UNSPECIFIED/zones/europe-west1-b/disks/d"),
        ("europe-west1-b__europe-west1-c", "projects/UNSPECIFIED/regions/europe-west1/disks/d"),
    ],
)
def test_the_handle_of_a_gce_disk_names_its_place(zones: str, want: str) -> None:
    labels = {"topology.kubernetes.io/zone": zones} if zones else {}
    spec = {"gcePersistentDisk": {"pdName": "d"}}
    found = attachment_of_volume({"metadata": {"name": "v", "labels": labels}, "spec": spec})
    assert found is not None and found.handle == want
