"""Scale objects: how many replicas an object wants and has.

Source: autoscaling/v1 Scale, upstream's `pkg/registry/apps/*/storage` and apiextensions-apiserver
`pkg/registry/customresource/etcd.go`.
"""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.apiserver.errors import Qualified, bad_request, internal, invalid
from muster.apiserver.fields import invalid_value
from muster.apiserver.resources import ScalePaths

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object, paths: ScalePaths | None) -> Object:
    """The Scale of an object; `paths` say where a custom one keeps it. Raises StatusError (500)."""
    meta = obj["metadata"]
    replicas, status = _built_in(obj) if paths is None else _custom(obj, paths)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _KEPT if key in meta},
        "spec": {"replicas": replicas},
        "status": status,
    }


def _built_in(obj: Object) -> tuple[int, Object]:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    status: Object = {"replicas": state.get("replicas") or 0}
    selector = spec.get("selector")
    if isinstance(selector, dict):
        # ReplicationControllers select by a plain map.
        plain = selector if selector and "matchLabels" not in selector and "matchExpressions" not in selector else None
        labels = plain if plain is not None else selector.get("matchLabels")
        if labels:
            status["selector"] = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
    return spec.get("replicas") or 0, status


def _custom(obj: Object, paths: ScalePaths) -> tuple[int, Object]:
    found = paths.spec.find(obj)
    if not found:
        raise internal(f'the spec replicas field "{paths.spec.text}" does not exist')
    status: Object = {"replicas": _whole(paths.status.first(obj))}
    selector = paths.selector.first(obj) if paths.selector is not None else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    return _whole(found[0]), status


def _whole(value: JSON) -> int:
    return value if isinstance(value, int) else 0


def check_scale(scale: Object, name: str) -> None:
    """A Scale that a client sends must make sense. Raises StatusError (400, 422)."""
    spec = scale.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    if replicas is not None and (not isinstance(replicas, int) or isinstance(replicas, bool)):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas must be a number')
    if replicas is not None and replicas < 0:
        problem = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(Qualified("autoscaling", "Scale"), name, [problem])


def set_replicas(obj: Object, paths: ScalePaths | None, replicas: int) -> None:
    """Make an object, which is ours to change, want that many replicas."""
    names = paths.spec.names if paths is not None else ("spec", "replicas")
    assert names, "the path of a definition's replicas has plain fields only"
    for name in names[:-1]:
        if not isinstance(obj.get(name), dict):
            obj[name] = {}
        obj = obj[name]
    obj[names[-1]] = replicas
