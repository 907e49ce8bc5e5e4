"""Which other objects select a pod: services and its owner, whose selectors default spreading goes by."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.selectors import LabelSelector, Requirement, SelectorError, label_selector
from muster.engine.identity import Identity
from muster.engine.objects import REPLICATION_CONTROLLER, SERVICE, ObjectStore, equal_to


def default_selector(objects: ObjectStore, identity: Identity, owner: tuple[str, str] | None) -> LabelSelector | None:
    """The merged selector of the pod's services and of its owner (upstream `helper.DefaultSelector`); None if empty."""
    wanted: dict[str, str] = {}
    for service in objects.in_namespace(SERVICE, identity.namespace):
        selector = service["spec"].get("selector")
        if selector is not None and all(identity.label_map.get(name) == value for name, value in selector.items()):
            wanted.update(selector)
    requirements = equal_to(wanted).requirements
    if owner is not None:
        kind, name = owner
        found = objects.get(kind, f"{identity.namespace}/{name}")
        own = None if found is None else (found.get("spec") or {}).get("selector")
        if kind == REPLICATION_CONTROLLER:
            requirements = equal_to({**wanted, **(own or {})}).requirements
        elif found is not None:
            requirements = (*requirements, *_requirements(own))
    return LabelSelector(requirements) if requirements else None


def _requirements(selector: Object | None) -> tuple[Requirement, ...]:
    """The requirements of a LabelSelector object; one that is missing or malformed adds none."""
    try:
        return label_selector(selector).requirements
    except SelectorError:
        return ()
