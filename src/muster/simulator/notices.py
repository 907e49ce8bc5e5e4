"""What is to be said about manifests that the API server takes: what it drops, and marks that nobody here reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.dialects import DIALECTS, Mark
from muster.api.foreign import NAMES, UNDERSTOOD, owner_of_mark
from muster.api.grouping import GANG_KEY
from muster.api.groups import POD_GROUP_KEY, group_of
from muster.api.manifests import SNAPSHOT_KEY, Manifest, resource_of
from muster.api.meta import name_of, namespace_of
from muster.api.topology import TOPOLOGY_KEY
from muster.nodes.stages import load_stages, plan_of
from muster.scheduler.group_book import KEEP_TOGETHER_KEY
from muster.scheduler.provisioning.objects import ATTEMPT_KEY, ENTITY_KEY
from muster.simulator.field_hints import with_hint

_OURS = ".muster-k8s.dev/"
_OTHERS = (TOPOLOGY_KEY, KEEP_TOGETHER_KEY, POD_GROUP_KEY, GANG_KEY, SNAPSHOT_KEY, ENTITY_KEY, ATTEMPT_KEY)
_TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")
_MOST = 3
"""So many objects that say the same are named."""


class Notice(Struct, frozen=True):
    """Something to say about a manifest."""

    manifest: Manifest
    text: str


def notices(manifest: Manifest, warned: Iterable[str], release: str = "") -> list[Notice]:
    """All that is to be said. `warned`: by the API server, as a release (`1.36`) or all of them (``) know fields."""
    obj = manifest.object
    resource = manifest.resource or resource_of(obj)
    assert resource is not None, "manifests are of known kinds"
    found = [with_hint(text, resource, release) for text in warned]
    return [*repeated(manifest), *(Notice(manifest, text) for text in (*found, *_marks(obj)))]


def repeated(manifest: Manifest) -> list[Notice]:
    """What is written twice."""
    return [Notice(manifest, f'duplicate field "{path}": the last one counts') for path in manifest.repeated]


def lines(found: Sequence[Notice]) -> list[str]:
    """The texts with their places; objects of a kind about which the same is to be said share a line."""
    alike: dict[tuple[str, str], list[Manifest]] = {}
    for each in found:
        alike.setdefault((each.manifest.object["kind"], each.text), []).append(each.manifest)
    return [f"{_places(manifests)}: {text}" for (_, text), manifests in alike.items()]


def _places(manifests: Sequence[Manifest]) -> str:
    first = manifests[0]
    at = f"{first.file}:{first.line}" if first.line else first.file
    names = ", ".join(_name(each.object) for each in manifests[:_MOST])
    more = f" and {len(manifests) - _MOST} more" if len(manifests) > _MOST else ""
    return f"{at}: {first.object['kind']} {names}{more}"


def _name(obj: Object) -> str:
    namespace = namespace_of(obj)
    name = name_of(obj) or f"{obj['metadata'].get('generateName', '')}…"
    return f"{namespace}/{name}" if namespace and namespace != "default" else name


# -- annotations and labels ------------------------------------------------------------------------------------------


def _marks(obj: Object) -> Iterator[str]:
    """Annotations and labels of an object, and of the pods that it is the template of, that mean nothing here."""
    yield from _annotations(obj, "", is_pod=obj["kind"] == "Pod")
    if obj["kind"] == "Pod":
        yield from _of_pod(obj, obj, "")
    for at in _TEMPLATES:
        template = _at(obj, at)
        if template:
            yield from _annotations(template, f"{at}.", is_pod=True)
            yield from _of_pod(template, obj, f"{at}.")


def _annotations(obj: Object, at: str, *, is_pod: bool) -> Iterator[str]:
    """Annotations in the name of this project that there are not, or not on such objects."""
    of_pods = load_stages().annotations
    known = (*of_pods, *_OTHERS)
    for key in _mapping(obj, "annotations"):
        if key in of_pods and not is_pod:
            yield f"{at}metadata.annotations: {key} is read on pods and pod templates only"
        elif _OURS in key and key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            yield f"{at}metadata.annotations: unknown annotation {key}" + (f": did you mean {near[0]}?" if near else "")


def _of_pod(pod: Object, owner: Object, at: str) -> Iterator[str]:
    """Values that mean nothing, and where it names a group that only another scheduler would look for."""
    given = {place: _mapping(pod, place) for place in ("labels", "annotations")}
    metadata = {"namespace": namespace_of(owner) or "default", **given}
    whole = {"metadata": metadata, "spec": pod.get("spec") or {}}
    data = load_stages()
    said = any(key in data.annotations for key in given["annotations"])
    for key in plan_of(whole, data).invalid if said else ():
        yield f"{at}metadata.annotations[{key}]: {given['annotations'][key]!r} is no value for it, and is ignored"
    if group_of(whole) is not None:
        return
    for place in ("labels", "annotations"):
        for key in _mapping(pod, place):
            if reader := _reader(place, key):
                yield f"{at}metadata.{place}: {key} is read by {reader}, not here: see muster convert"


def _reader(place: str, key: str) -> str:
    """The other scheduler that reads a label or annotation of pods, "" for any other one."""
    if key in UNDERSTOOD:
        return ""
    for dialect in DIALECTS.values():
        if Mark(place, key) in dialect.marks:
            return NAMES[dialect.group]
    return owner_of_mark(key)


def _mapping(obj: Object, place: str) -> Object:
    found: Object = (obj.get("metadata") or {}).get(place) or {}
    return found


def _at(obj: JSON, path: str) -> JSON:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj
