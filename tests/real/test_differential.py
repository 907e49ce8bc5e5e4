"""kube-apiserver and our server answer neighbours of an object of each kind alike.

The kinds here are those without known differences; `differential.py` prints the differences of all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_planes import Plane, real

sys.path.append(str(Path(__file__).parents[1] / "conformance"))

from differential import examples, run, signature
from two_servers import two_servers

pytestmark = pytest.mark.real

KINDS = (
    "CSIDriver",
    "CSINode",
    "Deployment",
    "DeviceClass",
    "Lease",
    "LimitRange",
    "Namespace",
    "PersistentVolumeClaim",
    "PriorityClass",
    "ReplicaSet",
    "ResourceClaim",
    "StatefulSet",
)

DIFFERING = {
    "1.35": {"CSINode", "DeviceClass", "ResourceClaim"},
    "1.37": {"CSIDriver", "DeviceClass", "Namespace", "PersistentVolumeClaim", "ResourceClaim", "StatefulSet"},
}
"""Kinds with known differences in other releases than 1.36."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A real server; skips where there are no binaries."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    assets = Path(folder)
    if not folder or not (assets / "kube-apiserver").exists():
        pytest.skip("KUBEBUILDER_ASSETS has no kube-apiserver (see hack/build-kube)")
    with real(tmp_path_factory.mktemp("real"), assets) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_of_an_object_are_answered_alike(plane: Plane, kind: str) -> None:
    async def main() -> list[str]:
        release = plane.release.minor
        if kind in DIFFERING.get(release, ()):
            pytest.skip(f"{kind} has known differences in {release}: differential.py --release {release} prints them")
        async with two_servers(plane.kubeconfig, release) as servers:
            bases = [base for base in examples() if base["kind"] == kind]
            how = ("create", "patch")
            return [signature(found) for base in bases for found in await run(servers, base, how, release)]

    assert asyncio.run(main()) == []
