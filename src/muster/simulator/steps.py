"""What people do to a simulated cluster as time goes on: apply manifests, delete objects, nodes that come and go.

A step is a value that `read_step` makes of a text such as `delete pod/train-0`; `Performer` carries steps out. Applying
follows `kubectl apply` (client-side): an object that is there already gets the fields of the manifest, loses those that
the manifest applied before had and this one has not, and keeps all others; lists are replaced as a whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.manifests import Manifest, ManifestError, creation_order, resource_of
from muster.api.meta import name_of, namespace_of
from muster.api.resource import NODES, Resource
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry.table import resource_table
from muster.apiserver.resources import ResourceTable
from muster.client.transport import ApiError
from muster.simulator.forms import refusal
from muster.simulator.world import World

NODE_VERBS = ("cordon", "uncordon", "fail", "recover")
COMPONENTS = ("controllers", "nodes", "scheduler")
FORMS = (
    "FILE",
    "'delete KIND/NAME'",
    "'delete KIND/NAME -n NAMESPACE'",
    *(f"'{verb} NODE'" for verb in NODE_VERBS),
    "'restart scheduler'",
)


class StepError(ValueError):
    """A step that means nothing, or that could not be taken; the message says why. Not retryable."""


class Deletion(Struct, frozen=True):
    """An object is deleted, as by `kubectl delete`. `kind`: what kubectl would take, such as `pod`, `pods` or `po`."""

    kind: str
    namespace: str
    name: str


class NodeStep(Struct, frozen=True):
    """Something is done to a node: it is cordoned or uncordoned, its machine fails (no kubelet) or recovers."""

    verb: str
    node: str


class Restart(Struct, frozen=True):
    """A component is killed and started anew."""

    component: str


Step = Deletion | NodeStep | Restart


def text_of(step: Step) -> str:
    """The step as `read_step` reads it."""
    if isinstance(step, Deletion):
        return f"delete {step.kind}/{step.name}" + (f" -n {step.namespace}" if step.namespace != "default" else "")
    return f"restart {step.component}" if isinstance(step, Restart) else f"{step.verb} {step.node}"


def is_step(text: str) -> bool:
    """Whether a text is meant as a step and not as the name of a file."""
    return text.split(maxsplit=1)[:1] in [[verb] for verb in ("delete", "restart", *NODE_VERBS)]


def read_step(text: str) -> Step:
    """The step that a text describes (`FORMS`). Raises `StepError`."""
    try:
        verb, *rest = shlex.split(text)
    except ValueError as error:
        raise StepError(f"{text!r}: {error}") from error
    if verb == "delete":
        return _deletion(rest, text)
    if len(rest) != 1:
        what = "a component" if verb == "restart" else "a node"
        raise StepError(f"{text!r}: {verb} takes the name of {what}")
    if verb == "restart":
        if rest[0] not in COMPONENTS:
            raise StepError(f"{text!r}: what can be restarted is {', '.join(COMPONENTS)}")
        return Restart(rest[0])
    return NodeStep(verb, re.sub(r"^nodes?/", "", rest[0]))


def _deletion(words: Sequence[str], text: str) -> Deletion:
    namespace = "default"
    if len(words) == 3 and words[1] in ("-n", "--namespace"):
        namespace = words[2]
    elif len(words) != 1:
        raise StepError(f"{text!r}: must be delete KIND/NAME, or delete KIND/NAME -n NAMESPACE")
    kind, slash, name = words[0].partition("/")
    if not slash or not name:
        raise StepError(f"{text!r}: must be delete KIND/NAME, as in delete pod/train-0")
    try:
        _served(kind, resource_table(ServerOptions()))
    except StepError as error:
        raise StepError(f"{text!r}: {error}") from error
    return Deletion(kind, namespace, name)


def _served(kind: str, table: ResourceTable) -> Resource:
    """The resource that a word such as `pod`, `pods`, `po` or `podgroups.scheduling.k8s.io` means."""
    word, _, group = kind.lower().partition(".")
    for entry in table.entries:
        words = (entry.resource.plural, entry.singular, *entry.short_names)
        if word in words and "delete" in entry.verbs and group in ("", entry.resource.group):
            return entry.resource
    raise StepError(f"there is no kind {kind!r} that can be deleted")


_IN_BACKGROUND: Object = {"propagationPolicy": "Background"}
"""How kubectl deletes where nothing else is said."""


class Performer:
    """Carries out steps in a world, and applies manifests to it; it takes no time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._applied: dict[tuple[str, str, str], Object] = {}

    async def create(self, manifests: Sequence[Manifest]) -> None:
        """Create the objects; one that exists already is an error. Raises `ManifestError`."""
        await self._world.apply(manifests)
        for manifest in manifests:
            self._remember(manifest)

    async def apply(self, manifests: Sequence[Manifest]) -> None:
        """Create the objects, or change those that are there already. Raises `ManifestError`."""
        for manifest in creation_order(manifests):
            try:
                await self._world.apply([manifest])
            except ManifestError as error:
                cause = error.__cause__
                if not (isinstance(cause, ApiError) and cause.is_already_exists):
                    raise
                await self._change(manifest)
            self._remember(manifest)

    async def perform(self, step: Step) -> None:
        """Take a step. Raises `StepError`."""
        cluster = self._world.cluster
        try:
            if isinstance(step, Deletion):
                resource = _served(step.kind, cluster.server.resources)
                namespace = step.namespace if resource.namespaced else None
                await cluster.client.delete(resource, namespace, step.name, _IN_BACKGROUND)
            elif isinstance(step, Restart):
                cluster.restart(step.component)
            elif step.verb in ("cordon", "uncordon"):
                patch = {"spec": {"unschedulable": True if step.verb == "cordon" else None}}
                await cluster.client.patch(NODES, None, step.node, patch)
            else:
                await cluster.client.get(NODES, None, step.node)
                if cluster.agent is not None:
                    act = cluster.agent.stop_node if step.verb == "fail" else cluster.agent.start_node
                    await act(step.node)
        except ApiError as error:
            raise StepError(f"{text_of(step)}: {error}") from error

    def _remember(self, manifest: Manifest) -> None:
        self._applied[_key(manifest)] = manifest.object

    async def _change(self, manifest: Manifest) -> None:
        obj = manifest.object
        resource = manifest.resource or resource_of(obj)
        assert resource is not None, "manifests are of known kinds"
        namespace = (namespace_of(obj) or "default") if resource.namespaced else None
        patch = merge_patch(self._applied.get(_key(manifest), {}), obj)
        client = self._world.cluster.client
        try:
            await self._world.change(manifest, resource.path(namespace, name_of(obj)), patch)
            if resource.kind == NODES.kind and patch.get("status"):
                await client.patch(resource, None, name_of(obj), {"status": patch["status"]}, subresource="status")
        except ApiError as error:
            raise manifest.refused(refusal(manifest, error)) from error


def merge_patch(before: Object, after: Object) -> Object:
    """The JSON merge patch (RFC 7386) that sets all fields of `after`, and removes those that only `before` has."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old: JSON = before.get(key)
        if isinstance(value, dict):
            value = merge_patch(old if isinstance(old, dict) else {}, value)
        patch[key] = value
    return patch


def _key(manifest: Manifest) -> tuple[str, str, str]:
    obj = manifest.object
    resource = manifest.resource or resource_of(obj)
    kind = obj["kind"] if resource is None else f"{resource.group}/{resource.kind}"
    return (kind, namespace_of(obj) or "default", name_of(obj))
