"""What the sub-resources do: status, binding, eviction, finalize, scale.

A handler gets a `Call` and returns the answer; it raises StatusError. Sources: upstream's `pkg/registry/*/storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import JSON, Object, Objects, copy_object
from muster.apiserver import bodies, errors, scaling
from muster.apiserver.context import Context
from muster.apiserver.node_restriction import restrict, restrict_token
from muster.apiserver.patching import patched
from muster.apiserver.registry import binding, budgets, processes, reviews
from muster.apiserver.registry import resize as resizing
from muster.apiserver.registry.poddefaults import default_container
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Served
from muster.apiserver.verbs import Verbs, kind_name, resource_name, shown_as
from muster.client.transport import APPLY_PATCH, JSON_PATCH


class Call(Struct, frozen=True):
    """One request to a sub-resource of an object."""

    ctx: Context
    verbs: Verbs
    served: Served
    namespace: str
    name: str
    request: ApiRequest

    def stored(self) -> Object:
        """The object in stored form. Raises StatusError (404)."""
        return self.verbs.stored(self.served, self.namespace, self.name)


Handler: TypeAlias = Callable[[Call], JSON]


def status(call: Call) -> Object:
    """The object; writes change its status only."""
    stored = call.stored()
    if call.request.method in ("GET", "HEAD"):
        return shown_as(call.served, stored)
    old = shown_as(call.served, stored)
    if call.request.method == "PATCH":
        old = _without_what_stays(old, bodies.media_type(call.request))
    new = _written(call, old)
    patches = call.request.method == "PATCH"
    return call.verbs.write_status(call.ctx, call.served, stored, new, patches=patches)


def _without_what_stays(old: Object, type_: str) -> Object:
    """The object as a patch of its status sees it: nothing but metadata and status can change, so that the rest need
    not be decoded anew, nor who owns which field, which is worked out from what changes."""
    if type_ == JSON_PATCH:
        return old
    kept = {key: value for key, value in old.items() if key != "spec"}
    if type_ != APPLY_PATCH:
        kept["metadata"] = {key: value for key, value in old["metadata"].items() if key != "managedFields"}
    return kept


def _written(call: Call, old: Object) -> Object:
    """The next state that a PUT or PATCH of a sub-resource asks for."""
    if call.request.method == "PUT":
        bodies.read_write_options(call.ctx, call.request, "UpdateOptions")
        return bodies.read_object(call.ctx, call.request, call.served)
    if call.request.method != "PATCH":
        raise errors.method_not_allowed()
    bodies.read_write_options(call.ctx, call.request, "PatchOptions")
    patch = bodies.read_patch(call.request, call.served.patch_types)
    return call.verbs.after_patch(call.ctx, call.served, old, patch, call.name)


def _entries(call: Call, stored: Object, asked: Object) -> Objects:
    """The managedFields after a write through a sub-resource, whatever of it takes effect."""
    return call.verbs.entries_after(call.ctx, call.served, stored, asked, None)


def bind(call: Call) -> Object:
    """POST of a Binding: the pod goes to a node."""
    if call.request.method != "POST":
        raise errors.method_not_allowed()
    body = bodies.read_any(call.request, "Binding")
    stored = call.stored()
    new = binding.bound(stored, body, call.ctx, call.served)
    call.verbs.commit(call.ctx, call.served, stored, new)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(call: Call) -> Object:
    """POST of an Eviction: the pod is deleted if no disruption budget forbids it."""
    if call.request.method != "POST":
        raise errors.method_not_allowed()
    body = bodies.read_any(call.request, "Eviction")
    stored = call.stored()
    restrict(call.ctx, call.served, "create", call.name, None, stored)
    options = budgets.eviction_options(body, call.ctx)
    budget = budgets.spend(stored, call.ctx)
    if budget is not None and not call.ctx.dry_run:
        meta = budget["metadata"]
        call.verbs.store.put(f"/poddisruptionbudgets/{meta['namespace']}/{meta['name']}", budget)
    if not call.ctx.dry_run and (noted := budgets.noted(stored, call.ctx)) is not None:
        call.verbs.commit(call.ctx, call.served, stored, noted)
    call.verbs.delete(call.ctx, call.served, call.namespace, call.name, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def finalize(call: Call) -> Object:
    """PUT of a namespace with fewer spec.finalizers; the last one ends its deletion."""
    if call.request.method != "PUT":
        raise errors.method_not_allowed()
    body = bodies.read_object(call.ctx, call.request, call.served)
    stored = call.stored()
    call.verbs.check_preconditions(call.served, body["metadata"], stored)
    new = {**stored, "metadata": {**stored["metadata"]}, "spec": {**(stored.get("spec") or {})}}
    finalizers = (body.get("spec") or {}).get("finalizers")
    if finalizers:
        new["spec"]["finalizers"] = finalizers
    else:
        new["spec"].pop("finalizers", None)
    return call.verbs.commit(call.ctx, call.served, stored, new)


def ephemeral_containers(call: Call) -> Object:
    """GET, PUT and PATCH of a pod of which only the ephemeral containers may change."""
    stored = call.stored()
    if call.request.method in ("GET", "HEAD"):
        return stored
    asked = _written(call, stored)
    call.verbs.check_preconditions(call.served, asked["metadata"], stored)
    containers = (asked.get("spec") or {}).get("ephemeralContainers") or []
    for container in containers:
        default_container(container, on_host=False)
    entries = _entries(call, stored, asked)
    if containers == (stored["spec"].get("ephemeralContainers") or []):
        return stored
    meta = {**stored["metadata"], "generation": stored["metadata"].get("generation", 0) + 1}
    if entries:
        meta["managedFields"] = entries
    new = {**stored, "metadata": meta, "spec": {**stored["spec"], "ephemeralContainers": containers}}
    return call.verbs.commit(call.ctx, call.served, stored, new)


def resize(call: Call) -> Object:
    """GET, PUT and PATCH of a pod of which only the cpu and memory of containers change."""
    stored = call.stored()
    if call.request.method in ("GET", "HEAD"):
        return stored
    asked = _written(call, stored)
    call.served.strategy.default(asked, call.ctx)
    call.verbs.check_preconditions(call.served, asked["metadata"], stored)
    entries = _entries(call, stored, asked)
    new = resizing.resized(asked, stored)
    if entries:
        new["metadata"]["managedFields"] = entries
    problems = resizing.validate_resize(new, stored)
    if problems:
        raise errors.invalid(kind_name(call.served), call.name, problems)
    if new["spec"] != stored["spec"]:
        new["metadata"]["generation"] = stored["metadata"].get("generation", 0) + 1
    return call.verbs.commit(call.ctx, call.served, stored, new)


def scale(call: Call) -> Object:
    """GET, PUT and PATCH of a Scale: the number of replicas of the object."""
    stored = call.stored()
    sub = call.served.subresource("scale")
    paths = sub.scale if sub is not None else None
    current = scaling.scale_of(shown_as(call.served, stored), paths)
    if call.request.method in ("GET", "HEAD"):
        return current
    if call.request.method == "PUT":
        bodies.read_write_options(call.ctx, call.request, "UpdateOptions")
        asked = bodies.read_any(call.request, "Scale")
    elif call.request.method == "PATCH":
        bodies.read_write_options(call.ctx, call.request, "PatchOptions")
        value = patched(current, bodies.read_patch(call.request), None)
        asked = value if isinstance(value, dict) else {}
    else:
        raise errors.method_not_allowed()
    scaling.check_scale(asked, call.name)
    version = (asked.get("metadata") or {}).get("resourceVersion")
    if version and version != stored["metadata"]["resourceVersion"]:
        raise errors.stale(resource_name(call.served), call.name)
    new = copy_object(shown_as(call.served, stored))
    scaling.set_replicas(new, paths, (asked.get("spec") or {}).get("replicas") or 0)
    return scaling.scale_of(call.verbs.write(call.ctx, call.served, stored, new), paths)


def token(call: Call) -> Object:
    """POST of a TokenRequest: a token for a service account."""
    if call.request.method != "POST":
        raise errors.method_not_allowed()
    account, request = call.stored(), bodies.read_any(call.request, "TokenRequest")
    restrict_token(call.ctx, call.namespace, call.name, request)
    return reviews.issued(account, request, call.ctx, call.namespace)


def log(call: Call) -> JSON:
    """GET of a pod's log, as text."""
    if call.request.method != "GET":
        raise errors.method_not_allowed()
    return processes.log(call.stored(), call.request.parameter("container"))


def process(call: Call) -> Object:
    """What needs a process of the pod."""
    raise processes.no_process(call.stored(), call.request.path.split("/")[7])


_HANDLERS: dict[str, Handler] = {
    "attach": process,
    "exec": process,
    "log": log,
    "portforward": process,
    "proxy": process,
    "status": status,
    "token": token,
    "binding": bind,
    "eviction": evict,
    "ephemeralcontainers": ephemeral_containers,
    "finalize": finalize,
    "resize": resize,
    "scale": scale,
}


def handler_of(served: Served, name: str) -> Handler | None:
    """The handler of a sub-resource that the table lists for this kind."""
    return _HANDLERS.get(name) if served.subresource(name) else None
