"""ProvisioningRequests on a real server, with the rights that `muster install` gives for them and no more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import yaml
from real_servers import (
    CUSTOM_GROUPS,
    SCHEDULER_TOKEN,
    Cluster,
    RealServer,
    cluster,
    find_assets,
    install,
    muster_scheduler,
)

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS
from muster.client.transport import ApiError
from muster.clock import RealClock, rfc3339
from muster.scheduler.provisioning.objects import CONSUMES_KEY, POD_TEMPLATES, PROVISIONING_REQUESTS

pytestmark = pytest.mark.real

NAME = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
FIXED = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
POD_SET = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 1},
        "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": NAME}},
    },
}
SCHEMA: Object = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["podSets", "provisioningClassName"],
            "properties": {
                "podSets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 32,
                    "items": POD_SET,
                    "x-kubernetes-validations": FIXED,
                },
                "provisioningClassName": {**NAME, "x-kubernetes-validations": FIXED},
                "parameters": {
                    "type": "object",
                    "maxProperties": 100,
                    "additionalProperties": {"type": "string", "maxLength": 255},
                    "x-kubernetes-validations": FIXED,
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition() -> Object:
    """The kind with the rules of cluster-autoscaler's; a file of the autoscaler's own, where one is named."""
    if path := os.environ.get("PROVISIONING_REQUEST_CRD"):
        found: Object = yaml.safe_load(Path(path).read_text())
        return found
    resource = PROVISIONING_REQUESTS
    names = {"plural": resource.plural, "kind": resource.kind}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def until_served(part: Cluster) -> None:
    while True:
        try:
            await part.client.list(PROVISIONING_REQUESTS)
        except ApiError:  # not found, then 429 while its storage comes up
            await asyncio.sleep(0.2)
        else:
            return


def test_a_gang_that_lacks_room_gets_its_nodes_by_one_request(tmp_path: Path) -> None:
    async def requests(part: Cluster) -> list[Object]:
        return (await part.client.list(PROVISIONING_REQUESTS, part.name)).items

    async def until(part: Cluster, count: int) -> list[Object]:
        while len(found := await requests(part)) != count:
            await asyncio.sleep(0.2)
        return found

    async def story(part: Cluster, kubeconfig: Path) -> None:
        options = (
            "--leader-elect",
            "--leader-elect-resource-namespace=muster-system",
            "--provisioning-requests=best-effort-atomic-scale-up",
            "--provisioning-parameter=ValidUntilSeconds=60",
        )
        with muster_scheduler(tmp_path, kubeconfig, *options) as muster:
            await part.create(part.custom_group("g", 3))
            for number in range(3):
                pod = part.pod(f"g-{number}", cpu="3", tolerations=[{"operator": "Exists"}])
                pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
                pod["metadata"]["labels"] = {"scheduling.muster-k8s.dev/pod-group": "g"}
                await part.create(pod)
            (request,) = await until(part, 1)
            assert [each["count"] for each in request["spec"]["podSets"]] == [3]
            assert request["metadata"]["ownerReferences"][0]["apiVersion"] == CUSTOM_GROUPS.api_version
            pods = (await part.client.list(PODS, part.name)).items
            assert {pod["metadata"]["annotations"][CONSUMES_KEY] for pod in pods} == {name_of(request)}
            entry = {"type": "Provisioned", "status": "True", "reason": "Done", "message": "there"}
            entry["lastTransitionTime"] = rfc3339(RealClock().now())
            patch = {"status": {"conditions": [entry]}}
            await part.client.patch(PROVISIONING_REQUESTS, part.name, name_of(request), patch, subresource="status")
            await part.add_nodes(3, cpu=4)
            await part.until_bound(3, "g")
            await until(part, 0)
            while (await part.client.list(POD_TEMPLATES, part.name)).items:
                await asyncio.sleep(0.2)
            assert "forbidden" not in muster.said.lower()
            assert muster.end() == 0

    async def main() -> None:
        server = RealServer(tmp_path, find_assets(), authorization="RBAC")
        with server.running():
            install(server, "--provisioning-requests", "best-effort-atomic-scale-up")
            kubeconfig = server.write_kubeconfig("scheduler", f"https://127.0.0.1:{server.port}", SCHEDULER_TOKEN)
            async with asyncio.timeout(90), cluster(server, "provision") as part:
                await part.client.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition())
                await until_served(part)
                await story(part, kubeconfig)

    asyncio.run(main())
