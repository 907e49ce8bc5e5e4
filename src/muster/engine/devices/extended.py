"""Extended resources that stand for devices: what a pod's containers ask for becomes the requests of one claim.

Source: kube-scheduler `dynamicresources/extendeddynamicresources.go` (createRequestsAndMappings, 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects, canonical
from muster.api.quantity import resource_units
from muster.engine.devices.classes import ClassBook
from muster.engine.devices.requests import ClaimSpec, parse_spec

IN_MEMORY = "<extended-resources>"
"""The name of the claim for extended resources until it is written."""

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class Container(Struct, frozen=True):
    """What a container asks for. `ends`: it is an init container that does not keep running.

    `requests`: resource → amount of those that stand for devices; `places`: the place of each among all that the
    container requests, sorted by name.
    """

    name: str
    ends: bool
    requests: tuple[tuple[str, int], ...]
    places: tuple[tuple[str, int], ...]


class Mapped(Struct, frozen=True):
    """Which request of the claim a container's resource comes from."""

    container: str
    resource: str
    request: str


class Extended(Struct, frozen=True):
    """The extended resources of a pod that stand for devices: `classes` resource → class, and who asks for them."""

    classes: tuple[tuple[str, str], ...]
    containers: tuple[Container, ...]

    def claim(self, resources: Iterable[str]) -> tuple[ClaimSpec, tuple[Mapped, ...]]:
        """The claim for those resources that a node does not offer itself, and what each container gets of it."""
        classes = dict(self.classes)
        requests: dict[str, tuple[str, int]] = {}
        mappings: list[Mapped] = []
        for resource in sorted(set(resources) & classes.keys()):
            wanted, mapped = self._requests(resource)
            requests |= {name: (classes[resource], count) for name, count in wanted.items()}
            mappings += mapped
        written = [_request(name, *requests[name]) for name in sorted(requests)]
        return parse_spec(canonical({"requests": written} if written else {})), tuple(mappings)

    def _requests(self, resource: str) -> tuple[dict[str, int], list[Mapped]]:
        """(request → count, mappings) of one resource.

        Containers that keep running have requests of their own. Init containers that end use those of later containers
        first; what then is missing is one request for the largest rest.
        """
        lasting: dict[int, tuple[str, int]] = {}
        mappings: list[Mapped] = []
        for at, container in enumerate(self.containers):
            amount = dict(container.requests).get(resource, 0)
            if amount and not container.ends:
                lasting[at] = (_name(at, container, resource), amount)
                mappings.append(Mapped(container.name, resource, lasting[at][0]))
        rest: tuple[str, int] | None = None
        names: set[str] = set()
        ending: list[Mapped] = []
        for at, container in enumerate(self.containers):
            amount = dict(container.requests).get(resource, 0)
            if not amount or not container.ends:
                continue
            reused, missing = _reused([lasting[each] for each in sorted(lasting) if each >= at], amount)
            ending += [Mapped(container.name, resource, name) for name in reused]
            if missing > 0:
                own = _name(at, container, resource)
                names.add(own)
                ending.append(Mapped(container.name, resource, own))
                if rest is None or rest[1] < missing:
                    rest = (own, missing)
        if rest is not None:
            shared = rest[0]
            ending = [
                Mapped(each.container, each.resource, shared if each.request in names else each.request)
                for each in ending
            ]
        found = dict(lasting.values())
        return (found if rest is None else {rest[0]: rest[1], **found}), mappings + ending


def _reused(requests: Sequence[tuple[str, int]], amount: int) -> tuple[list[str], int]:
    """The requests that an init container can use, and how much is missing then."""
    used: list[str] = []
    for name, count in requests:
        if amount <= 0:
            break
        used.append(name)
        amount -= count
    return used, amount


def _name(at: int, container: Container, resource: str) -> str:
    return f"container-{at}-request-{dict(container.places)[resource]}"


def _request(name: str, device_class: str, count: int) -> Object:
    exactly = {"allocationMode": "ExactCount", "count": count, "deviceClassName": device_class}
    return {"name": name, "exactly": exactly}


def extended_of(spec: Object, classes: ClassBook) -> Extended | None:
    """The extended resources of a pod that stand for devices; None without any."""
    if not classes.by_name:
        return None
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    number_of_init = len(spec.get("initContainers") or ())
    named: dict[str, str] = {}
    asked = []
    for at, container in enumerate(containers):
        requests = _container_requests(container)
        own: dict[str, int] = {}
        for name, value in requests.items():
            device_class = classes.class_of(name) if _is_extended(name) else None
            amount = resource_units(name, value) if device_class is not None else 0
            if device_class is not None and amount > 0:
                named[name] = device_class
                own[name] = amount
        ends = at < number_of_init and container.get("restartPolicy") != "Always"
        places = {name: place for place, name in enumerate(sorted(requests)) if name in own}
        entry = Container(container.get("name") or "", ends, tuple(sorted(own.items())), tuple(sorted(places.items())))
        asked.append(entry)
    return Extended(tuple(sorted(named.items())), tuple(asked)) if named else None


def _container_requests(container: Object) -> Mapping[str, object]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _is_extended(name: str) -> bool:
    """Whether a resource can stand for devices: it has a domain, and not one of Kubernetes' own resources."""
    if name.startswith("deviceclass.resource.kubernetes.io/"):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def mappings_of(mappings: Sequence[Mapped]) -> Objects:
    """The mappings as `status.extendedResourceClaimStatus` has them."""
    return [
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
        for each in mappings
    ]
