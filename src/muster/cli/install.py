"""`muster install`: the scheduler on a cluster as a Deployment, and groups where the server has none.

What is applied are the files in `muster/cli/manifests`, the same that `deploy/` names for `kubectl apply -k`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from muster.api.codec import Object, Objects, copy_object
from muster.api.manifests import parse
from muster.api.resource import POD_GROUPS, Resource
from muster.api.versions import GROUP
from muster.cli.errors import BadInput, CommandError
from muster.cli.first_answer import check_first_answer
from muster.cli.live import find_connection
from muster.cli.output import render
from muster.client.client import Client
from muster.client.connection import Connection, KubeconfigError
from muster.client.credentials import CredentialsError
from muster.client.http import HttpTransport
from muster.client.transport import APPLY_PATCH, ApiError, ClientError, Transport
from muster.clock import Clock, RealClock
from muster.scheduler.provisioning.objects import parse_class
from muster.scheduler.served import MUSTER_GROUP, served

FIELD_MANAGER = "muster-install"
NAMESPACE = "muster-system"
FIRST_ANSWER_S = 15.0
DEFINED_S = 30.0
"""How long the server may take to serve what was just defined."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
KINDS = {
    (resource.api_version, resource.kind): resource
    for resource in (
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        Resource("apps", "v1", "deployments", "Deployment"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
        ),
    )
}
"""The resources of the kinds that the manifests have."""


class NotInstalled(CommandError):
    """The server did not answer, or refused something; what was applied before stays."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that the scheduler does on demand only: the folder of its rights, and the options that ask for it."""

    folder: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What to install. `image` "": the one that the manifests name."""

    namespace: str = NAMESPACE
    image: str = ""
    crds_only: bool = False
    dry_run: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """What was done. `native`: the server has PodGroups of its own, in this version ("" if not).

    `objects`: what was applied, or would be; `outcomes`: of each, created, changed or unchanged (empty if dry).
    """

    native: str
    objects: Objects
    outcomes: tuple[str, ...]


def install(
    *,
    kubeconfig: Path | None = None,
    context: Annotated[str, Parameter(show_default=False)] = "",
    namespace: str = NAMESPACE,
    image: Annotated[str, Parameter(show_default=False)] = "",
    crds_only: Annotated[bool, Parameter(negative="")] = False,
    create_workloads: Annotated[bool, Parameter(negative="")] = False,
    provisioning_requests: Annotated[str, Parameter(show_default=False)] = "",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Literal["table", "json", "yaml"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Install the scheduler on a cluster: a Deployment, its rights, and groups where the server has none.

    Workload, PodGroup and CompositePodGroup become custom resources (scheduling.muster-k8s.dev/v1beta1) only if the
    server does not have PodGroups of its own. Everything is applied on the server's side; doing it again brings a newer
    version. Needs the rights of a cluster's administrator.

    Parameters
    ----------
    kubeconfig
        How to reach the cluster. Default: as in a pod of the cluster, else what kubectl would use.
    context
        The context of the kubeconfig. Default: its current one.
    namespace
        Where the scheduler lives. It is created.
    image
        The image with muster in it (deploy/Containerfile). Default: muster:VERSION.
    crds_only
        Apply the custom resources alone, for a scheduler that runs elsewhere.
    create_workloads
        Start the scheduler with this option of `muster scheduler`, and the rights for it.
    provisioning_requests
        Start the scheduler with this option of `muster scheduler`, and the rights for it.
    dry_run
        Print the manifests that would be applied, and write nothing.
    output
        table for people, json for programs; yaml: with --dry-run, the manifests alone.
    """
    if not _LABEL.fullmatch(namespace):
        raise BadInput(f"--namespace {namespace}: must be a lowercase RFC 1123 label, such as {NAMESPACE}")
    if image and (image != image.strip() or any(character.isspace() for character in image)):
        raise BadInput(f"--image {image!r}: must be the name of an image, such as registry.example/muster:0.1.0")
    if output == "yaml" and not dry_run:
        raise BadInput("--output yaml: only with --dry-run; what was applied is a table or json")
    parts = _parts(provisioning_requests, create_workloads=create_workloads)
    if parts and crds_only:
        raise BadInput("--crds-only: not with options of the scheduler, which it does not install")
    connection = find_connection(kubeconfig, context)
    plan = InstallPlan(namespace, image, crds_only, dry_run, parts)
    try:
        done = asyncio.run(_connected(connection, plan))
    except (KubeconfigError, CredentialsError) as error:
        raise BadInput(f"{connection.server}: {error}") from error
    sys.stdout.write(_json(done, plan) if output == "json" else _text(done, plan, is_bare=output == "yaml"))
    return 0


def _parts(provisioning_requests: str, *, create_workloads: bool) -> tuple[Part, ...]:
    """The parts that options ask for. Raises `BadInput`."""
    parts = []
    if create_workloads:
        parts.append(Part("create-workloads", ("--create-workloads",)))
    if provisioning_requests:
        try:
            name = parse_class(provisioning_requests)
        except ValueError as error:
            raise BadInput(f"--provisioning-requests: {error}") from error
        parts.append(Part("provisioning-requests", (f"--provisioning-requests={name}",)))
    return tuple(parts)


# -- what is applied -------------------------------------------------------------------------------------------------


def definitions() -> Objects:
    """The custom resources: Workload, PodGroup, CompositePodGroup."""
    return list(_read("crds", "workloads.yaml", "podgroups.yaml", "compositepodgroups.yaml"))


def deployment(namespace: str = NAMESPACE, image: str = "", parts: Sequence[Part] = ()) -> Objects:
    """The scheduler and what it needs, for a namespace; those that others refer to come first."""
    found = [*_read("scheduler", "namespace.yaml", "rbac.yaml")]
    for part in parts:
        found += _read(part.folder, "rbac.yaml")
    found += _read("scheduler", "deployment.yaml")
    arguments = [argument for part in parts for argument in part.arguments]
    return [_placed(obj, namespace, image, arguments) for obj in found]


def _read(folder: str, *names: str) -> Iterator[Object]:
    for name in names:
        file = resources.files("muster.cli").joinpath("manifests", folder, name)
        for manifest in parse(file.read_text(encoding="utf-8"), name, any_kind=True):
            yield manifest.object


def _placed(obj: Object, namespace: str, image: str, arguments: Sequence[str]) -> Object:
    """The object in another namespace, with another image and more options."""
    placed = copy_object(obj)
    if "namespace" in placed["metadata"]:
        placed["metadata"]["namespace"] = namespace
    if placed["kind"] == "Namespace":
        placed["metadata"]["name"] = namespace
    for subject in placed.get("subjects") or ():
        subject["namespace"] = namespace
    if placed["kind"] == "Deployment":
        container = placed["spec"]["template"]["spec"]["containers"][0]
        container["image"] = image or container["image"]
        container["args"] += arguments
    return placed


# -- applying it -----------------------------------------------------------------------------------------------------


async def _connected(connection: Connection, plan: InstallPlan) -> Installed:
    clock = RealClock()
    http = HttpTransport(connection, clock=clock, user_agent="muster-install")
    try:
        await _check(http, connection)
        return await apply_plan(Client(http, user_agent="muster-install"), clock, plan)
    except ClientError as error:
        raise NotInstalled(f"{connection.server}: {error}") from error
    finally:
        await http.aclose()


async def _check(transport: Transport, connection: Connection) -> None:
    """Ask who it is before anything else, so that what is wrong is said at once."""
    try:
        answer = await asyncio.wait_for(transport.request("GET", "/version"), FIRST_ANSWER_S)
    except TimeoutError as error:
        raise NotInstalled(f"{connection.server}: no answer within {FIRST_ANSWER_S:g} s") from error
    check_first_answer(answer, connection, NotInstalled)


async def apply_plan(client: Client, clock: Clock, plan: InstallPlan) -> Installed:
    """Apply what the server lacks. The definitions are served when it returns.

    Raises `NotInstalled` for what the server refuses, and `TransportError`.
    """
    found = await served(client, clock, POD_GROUPS)
    native = found.api_version if found is not None and found.group == GROUP else ""
    defined = [] if native else definitions()
    rest = [] if plan.crds_only else deployment(plan.namespace, plan.image, plan.parts)
    if plan.dry_run:
        return Installed(native, [*defined, *rest], ())
    outcomes = [await _apply(client, obj) for obj in defined]
    if defined:
        await _until_served(client, clock, [obj["spec"]["names"]["plural"] for obj in defined])
    outcomes += [await _apply(client, obj) for obj in rest]
    return Installed(native, [*defined, *rest], tuple(outcomes))


async def _apply(client: Client, obj: Object) -> str:
    """Server-side apply; says whether the object was created, changed, or is as it was."""
    resource = KINDS[obj["apiVersion"], obj["kind"]]
    namespace, name = obj["metadata"].get("namespace"), obj["metadata"]["name"]
    try:
        before = await _version(client, resource, namespace, name)
        query = (("fieldManager", FIELD_MANAGER), ("force", "true"))
        applied = await client.patch(resource, namespace, name, obj, type_=APPLY_PATCH, query=query)
    except ApiError as error:
        raise NotInstalled(f"{_label(obj)} was not applied: {error}") from error
    if not before:
        return "created"
    return "unchanged" if applied["metadata"].get("resourceVersion") == before else "changed"


async def _version(client: Client, resource: Resource, namespace: str | None, name: str) -> str:
    try:
        return str((await client.get(resource, namespace, name))["metadata"].get("resourceVersion") or "")
    except ApiError as error:
        if error.code == 404:
            return ""
        raise


async def _until_served(client: Client, clock: Clock, plurals: list[str]) -> None:
    """What was defined must be there when the scheduler starts, so that it decides about no group without it."""
    end_s = clock.now() + DEFINED_S
    while True:
        answer = await client.transport.request("GET", f"/apis/{MUSTER_GROUP}/v1beta1")
        listed = answer.body.get("resources") or [] if isinstance(answer.body, dict) else []
        if set(plurals) <= {entry.get("name") for entry in listed}:
            return
        if clock.now() >= end_s:
            raise NotInstalled(f"{MUSTER_GROUP}/v1beta1 was defined but is not served after {DEFINED_S:g} s")
        await clock.sleep(0.2)


# -- saying it -------------------------------------------------------------------------------------------------------


def _label(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{obj['kind']} {namespace + '/' if namespace else ''}{obj['metadata']['name']}"


def _text(done: Installed, plan: InstallPlan, *, is_bare: bool = False) -> str:
    said = f"groups: {MUSTER_GROUP}/v1beta1, as custom resources"
    if done.native:
        said = f"groups: {done.native}, which the server has; no custom resources are needed"
    if plan.dry_run:
        return ("" if is_bare else f"# {said}\n") + "---\n".join(render(obj, "yaml", _no_table) for obj in done.objects)
    lines = [f"{_label(obj)}: {outcome}" for obj, outcome in zip(done.objects, done.outcomes, strict=True)]
    return "\n".join([*lines, said, ""])


def _json(done: Installed, plan: InstallPlan) -> str:
    value: Object = {"groups": done.native or f"{MUSTER_GROUP}/v1beta1", "native": bool(done.native)}
    if plan.dry_run:
        return render({**value, "objects": done.objects}, "json", _no_table)
    pairs = zip(done.objects, done.outcomes, strict=True)
    applied: Objects = [{"object": _label(obj), "outcome": outcome} for obj, outcome in pairs]
    return render({**value, "applied": applied}, "json", _no_table)


def _no_table(console: Console) -> None:
    raise AssertionError("manifests are no table")
