"""endpointslice-controller: keeps the endpoints of Services in slices, from the pods that they select.

Source of the rules: kube-controller-manager `pkg/controller/endpointslice`, `k8s.io/endpointslice/reconciler.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition, is_deleting, key_of, namespace_of
from muster.api.resource import ENDPOINT_SLICES, NODES, PODS, SERVICES, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Emit, Result
from muster.controllers.network.endpoint_pods import (
    ZONE,
    TriggerTimes,
    last_change_s,
    pods_of,
    selects,
    services_to_update,
    trigger_times,
)
from muster.controllers.network.endpointslice_changes import failure_text, writes
from muster.controllers.network.endpointslice_hints import DISTRIBUTIONS, distribute, remove_hints
from muster.controllers.network.endpointslice_objects import MANAGED_BY, MANAGER, SERVICE_NAME, address_types
from muster.controllers.network.endpointslice_packing import SlicePlan
from muster.controllers.network.endpointslice_plan import plan_slices
from muster.controllers.network.endpointslice_topology import (
    CONTROL_PLANE,
    DISABLED,
    ENABLED,
    HintsImpossible,
    Zones,
    cpu_ratios,
    is_automatic,
    is_overloaded,
    share_out,
)
from muster.controllers.runner import Request
from muster.controllers.state import State


@dataclass(frozen=True, slots=True)
class Memory:
    """What the last look at a Service left: the times of its pods, and where its automatic hints went."""

    times: TriggerTimes
    zones: Mapping[str, Zones] = field(default_factory=dict)
    """Hinted endpoints a zone, by address type."""
    hinted: bool = False
    """Whether the Service has automatic hints."""


class EndpointSliceController:
    """Reconciles Services; keys are `namespace/name`."""

    name = "endpointslice-controller"
    resources: tuple[Resource, ...] = (SERVICES, PODS, NODES, ENDPOINT_SLICES)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == SERVICES:
            return [Request(key_of(change.object))] if change.new is None or selects(change.new) else []
        if resource == PODS:
            return [Request(key) for key in services_to_update(change, state)]
        if resource == NODES:
            return [Request(key) for key in dict.fromkeys(_services_of_node(change, state))]
        return [Request(key) for key in dict.fromkeys(_services_of_slice(change))]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        service = state[SERVICES].get(key)
        if service is None or not selects(service):
            return Result()
        memory = state.memory(key)
        assert memory is None or isinstance(memory, Memory)
        pods = pods_of(service, state)
        times = trigger_times(service, pods)
        changed_s = last_change_s(memory.times if memory is not None else None, times)
        slices = _slices_of(service, state)
        types = address_types(service)
        actions: list[Action] = []
        events: list[Action] = []
        after = memory or Memory(times)
        for type_ in types:
            existing = [slice_ for slice_ in slices if slice_.get("addressType") == type_]
            plan = plan_slices(service, pods, existing, state[NODES], type_)
            after, told = _hint(plan, service, type_, after, state)
            actions += writes(plan, service, changed_s)
            events += told
        unsupported = [slice_ for slice_ in slices if slice_.get("addressType") not in types]
        actions += writes(SlicePlan(delete=unsupported), service, changed_s)
        memory = Memory(times, after.zones, after.hinted)
        return Result(
            (*actions, *events), memory=memory, on_failure=lambda action, error: _tell(service, action, error)
        )


def _tell(service: Object, action: Action, error: str) -> tuple[Action, ...]:
    text = f"Error updating Endpoint Slices for Service {key_of(service)}: {failure_text(service, action, error)}"
    return (Emit(service, "Warning", "FailedToUpdateEndpointSlices", text),)


def _slices_of(service: Object, state: State) -> Objects:
    """The slices that this controller keeps for the Service, but for those that go."""
    name = service["metadata"]["name"]
    found = []
    for slice_ in state[ENDPOINT_SLICES].in_namespace(namespace_of(service)):
        labels = slice_["metadata"].get("labels") or {}
        if labels.get(SERVICE_NAME) == name and labels.get(MANAGED_BY) == MANAGER and not is_deleting(slice_):
            found.append(slice_)
    return found


def _services_of_slice(change: Change) -> Iterator[str]:
    """The Services whose slices changed; one that this controller has nothing to do with concerns nobody."""
    forms = [form for form in (change.old, change.new) if form is not None]
    labels = [form["metadata"].get("labels") or {} for form in forms]
    if any(each.get(MANAGED_BY) == MANAGER for each in labels):
        for form, each in zip(forms, labels, strict=True):
            if name := each.get(SERVICE_NAME):
                yield f"{namespace_of(form)}/{name}"


def _services_of_node(change: Change, state: State) -> Iterator[str]:
    """Services whose pods waited for the node, or whose automatic hints fit the nodes no more.

    A changed zone alone changes no slice: the next look at the Service takes it over.
    """
    if change.old is None:
        for pod in state[PODS].on_node(change.object["metadata"]["name"]):
            yield from services_to_update(Change("ADDED", None, pod), state)
    elif change.new is not None and _capacity(change.old) == _capacity(change.new):
        return
    automatic = [service for service in state[SERVICES].all() if is_automatic(service)]
    if not automatic:
        return
    ratios = cpu_ratios(state[NODES].all())
    for service in automatic:
        memory = state.memory(key_of(service))
        if isinstance(memory, Memory) and any(is_overloaded(zones, ratios) for zones in memory.zones.values()):
            yield key_of(service)


def _capacity(node: Object) -> Object:
    """What of a node counts for automatic hints."""
    labels = node["metadata"].get("labels") or {}
    return {
        "zone": labels.get(ZONE),
        "excluded": any(label in labels for label in CONTROL_PLANE),
        "ready": has_condition(node, "Ready"),
        "cpu": ((node.get("status") or {}).get("allocatable") or {}).get("cpu"),
    }


def _hint(
    plan: SlicePlan, service: Object, type_: str, memory: Memory, state: State
) -> tuple[Memory, tuple[Action, ...]]:
    """Put the hints into the plan that the Service asks for; what to remember and the events that tell of it."""
    zones = {key: counts for key, counts in memory.zones.items() if key != type_}
    if not is_automatic(service):
        distribution = service["spec"].get("trafficDistribution")
        if distribution in DISTRIBUTIONS:
            distribute(plan, distribution)
        else:
            remove_hints(plan)
        disabled = (_warning(service, DISABLED, type_),) if memory.hinted else ()
        return Memory(memory.times, zones, hinted=False), disabled
    try:
        hinted = share_out(plan, cpu_ratios(state[NODES].all()))
    except HintsImpossible as why:
        remove_hints(plan)
        return Memory(memory.times, zones, hinted=False), (_warning(service, str(why), type_),)
    text = f"{ENABLED}, addressType: {type_}"
    enabled = () if memory.hinted else (Emit(service, "Normal", "TopologyAwareHintsEnabled", text),)
    return Memory(memory.times, {**zones, type_: hinted}, hinted=True), enabled


def _warning(service: Object, text: str, type_: str) -> Emit:
    return Emit(service, "Warning", "TopologyAwareHintsDisabled", f"{text}, addressType: {type_}")
