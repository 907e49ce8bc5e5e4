"""device-taint-eviction-controller: pods leave devices whose NoExecute taints their claims do not tolerate, or not any
longer. Taints are those of ResourceSlices and of DeviceTaintRules, in whose status it is told how far that is.

Source of the rules: kube-controller-manager `pkg/controller/devicetainteviction` (1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import condition, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from muster.client.informer import Change
from muster.clock import parse_rfc3339, rfc3339
from muster.controllers.action import Action, Emit, Patch, Result
from muster.controllers.node.taints import NO_EXECUTE
from muster.controllers.pod_writes import delete_pod, disruption
from muster.controllers.runner import Request
from muster.controllers.state import State

STATUS_PERIOD_S = 10.0
"""The status of a rule is written no more often than this."""
IN_PROGRESS = "EvictionInProgress"


class Eviction(Struct, frozen=True):
    """A decision to evict the pod of that uid. `due_s` None: it was carried out. `rules`: uids of rules that say so."""

    uid: str
    due_s: float | None
    rules: tuple[str, ...] = ()


class DeviceTaintEviction:
    """Keys are `pods/NAMESPACE/NAME`, with an `Eviction` as what is remembered, and `rules/NAME`.

    `rules`: the version of DeviceTaintRules to speak; None if the server serves none.
    """

    name = "device-taint-eviction-controller"

    def __init__(self, rules: Resource | None) -> None:
        self._rules = rules
        self._slices: dict[tuple[str, str], dict[str, Object]] = {}
        """The slices of each pool (driver, name)."""
        self._evicted: dict[str, set[str]] = {}
        """For each rule, by uid: the pods that were evicted because of it."""
        self.resources: tuple[Resource, ...] = (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, *((rules,) if rules else ()))

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PODS:
            if change.new is not None and change.old is not None and _placing(change.old) == _placing(change.new):
                return []
            return [Request(f"pods/{key_of(change.object)}")] if change.object["spec"].get("resourceClaims") else []
        if resource == RESOURCE_CLAIMS:
            if change.old is not None and change.new is not None and _use(change.old) == _use(change.new):
                return []
            pods = {key for each in (change.old, change.new) if each is not None for key in _pods_of(each, state)}
            return [Request(f"pods/{key}") for key in sorted(pods)]
        if resource == RESOURCE_SLICES:
            return self._of_slice(change, state)
        if change.old is not None and change.new is not None and change.old["spec"] == change.new["spec"]:
            return []
        claims = [
            claim for claim in state[RESOURCE_CLAIMS].all() if any(_covers(change, each) for each in _results(claim))
        ]
        return [Request(f"rules/{name_of(change.object)}"), *_requests_for(claims, state)]

    def _of_slice(self, change: Change, state: State) -> list[Request]:
        before = set(_evicting(change.old)) if change.old is not None else set()
        for each in (change.old, change.new):
            if each is not None:
                self._slices.setdefault(_pool(each), {}).pop(name_of(each), None)
        if change.new is not None:
            self._slices[_pool(change.new)][name_of(change.new)] = change.new
        after = set(_evicting(change.new)) if change.new is not None else set()
        if before == after:
            return []
        pools = {_pool(each) for each in (change.old, change.new) if each is not None}
        claims = [
            claim
            for claim in state[RESOURCE_CLAIMS].all()
            if any((each.get("driver"), each.get("pool")) in pools for each in _results(claim))
        ]
        return list(_requests_for(claims, state))

    def reconcile(self, key: str, state: State, now: float) -> Result:
        kind, _, rest = key.partition("/")
        return self._pod(key, rest, state, now) if kind == "pods" else self._rule(rest, state, now)

    # -- pods

    def _pod(self, key: str, rest: str, state: State, now: float) -> Result:
        remembered = state.memory(key)
        planned = remembered if isinstance(remembered, Eviction) else None
        pod = state[PODS].get(rest)
        if pod is None:
            return Result()
        planned = planned if planned is not None and planned.uid == uid_of(pod) else None
        if planned is not None and planned.due_s is None:
            return Result(memory=planned)
        found = self.eviction(pod, state, now)
        if found is None:
            return Result(() if planned is None else (_event(pod, "Cancelling deletion"),))
        assert found.due_s is not None
        if now < found.due_s:
            return Result(requeue_after_s=found.due_s - now, memory=found)
        for rule in found.rules:
            self._evicted.setdefault(rule, set()).add(found.uid)
        done = Eviction(found.uid, None, found.rules)
        if is_deleting(pod):
            return Result(memory=done)
        message = "Device Taint manager: deleting due to NoExecute taint"
        writes = disruption(pod, now, "DeletionByDeviceTaintManager", message), delete_pod(pod)
        return Result((_event(pod, "Marking for deletion"), *writes), memory=done)

    def eviction(self, pod: Object, state: State, now: float) -> Eviction | None:
        """When the pod has to leave because of a claim, and which rules say so; None if it need not."""
        if not pod["spec"].get("nodeName"):
            return None
        due: list[float] = []
        rules: dict[str, None] = {}
        for claim in _claims_of(pod, state):
            for result in _results(claim):
                for taint, rule in self._taints(result, state):
                    left_s = _tolerated_s(result.get("tolerations") or (), taint)
                    if left_s is not None:
                        due.append((parse_rfc3339(taint["timeAdded"]) if taint.get("timeAdded") else now) + left_s)
                        rules |= {rule: None} if rule else {}
        return Eviction(uid_of(pod), min(due), tuple(rules)) if due else None

    def _taints(self, result: Object, state: State) -> Iterator[tuple[Object, str]]:
        """The taints of a device that evict, with the uid of the rule that one is from."""
        for each in self._newest((result.get("driver") or "", result.get("pool") or "")):
            yield from ((taint, "") for name, taint in _evicting_taints(each) if name == result.get("device"))
        for rule in state[self._rules].all() if self._rules is not None else ():
            if rule["spec"]["taint"].get("effect") == NO_EXECUTE and _is_about(rule, result):
                yield rule["spec"]["taint"], uid_of(rule)

    def _newest(self, pool: tuple[str, str]) -> Objects:
        """The slices of a pool that count: those of its newest generation."""
        slices = self._slices.get(pool, {}).values()
        newest = max(map(_generation, slices), default=0)
        return [each for each in slices if _generation(each) == newest]

    # -- rules

    def _rule(self, name: str, state: State, now: float) -> Result:
        assert self._rules is not None
        rule = state[self._rules].get(name)
        if rule is None:
            return Result()
        known = condition(rule, IN_PROGRESS)
        generation = rule["metadata"].get("generation") or 0
        if known is not None and known.get("observedGeneration") == generation:
            wait_s = parse_rfc3339(known["lastTransitionTime"]) + STATUS_PERIOD_S - now
            if wait_s > 0:
                return Result(requeue_after_s=wait_s, periodic=True)
        told = {"type": IN_PROGRESS, **self._progress(rule, state, now), "observedGeneration": generation}
        is_new = known is None or any(known.get(field) != value for field, value in told.items())
        again_s = STATUS_PERIOD_S if rule["spec"]["taint"].get("effect") == NO_EXECUTE else None
        if not is_new:
            return Result(requeue_after_s=again_s, periodic=True)
        conditions = [
            each for each in (rule.get("status") or {}).get("conditions") or () if each["type"] != IN_PROGRESS
        ]
        status = {"conditions": [*conditions, {**told, "lastTransitionTime": rfc3339(now)}]}
        patch: Object = {"metadata": {"uid": uid_of(rule)}, "status": status}
        return Result(
            (Patch(self._rules, "", name, patch, subresource="status"),), requeue_after_s=again_s, periodic=True
        )

    def _progress(self, rule: Object, state: State, now: float) -> Object:
        """Status, reason and message of the condition."""
        effect = rule["spec"]["taint"].get("effect")
        gone = len(self._evicted.get(uid_of(rule), ()))
        evicted = f"{_number(gone, 'pod')} evicted since starting the controller." if gone else ""
        if effect == NO_EXECUTE:
            pending = self._pending(rule, state, now)
            if pending:
                verb = "needs" if len(pending) == 1 else "need"
                message = f"{_number(len(pending), 'pod')} {verb} to be evicted in {_namespaces(pending)}."
                return _said("True", "PodsPendingEviction", f"{message} {evicted}".strip())
            return _said("False", "Completed" if gone else "NotStarted", evicted)
        if effect != "None":
            other = "Eviction only happens for the NoExecute effect."
            return _said("False", "OtherEffect", f"{other} {evicted}".strip())
        as_if = {**rule, "spec": {**rule["spec"], "taint": {**rule["spec"]["taint"], "effect": NO_EXECUTE}}}
        would = self._pending(as_if, state, now)
        published = sum(
            _is_about(rule, {"driver": pool[0], "pool": pool[1], "device": device.get("name")})
            for pool in self._slices
            for each in self._newest(pool)
            for device in each["spec"].get("devices") or ()
        )
        allocated = sum(_is_about(rule, each) for claim in state[RESOURCE_CLAIMS].all() for each in _results(claim))
        message = (
            f"{_number(published, 'published device')} selected. {_number(allocated, 'allocated device')} selected. "
            f"{_number(len(would), 'pod')} would be evicted in {_namespaces(would)} if the effect was NoExecute. This "
            "information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
        return _said("False", "NoEffect", message)

    def _pending(self, rule: Object, state: State, now: float) -> Objects:
        """The pods that the rule evicts and that are not going yet."""
        found = []
        for pod in state[PODS].all():
            if pod["spec"].get("nodeName") and pod["spec"].get("resourceClaims") and not is_deleting(pod):
                taint = rule["spec"]["taint"]
                results = [
                    each for claim in _claims_of(pod, state) for each in _results(claim) if _is_about(rule, each)
                ]
                if any(_tolerated_s(each.get("tolerations") or (), taint) is not None for each in results):
                    found.append(pod)
        return found


def _said(status: str, reason: str, message: str) -> Object:
    return {"status": status, "reason": reason, "message": message}


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _namespaces(pods: Objects) -> str:
    number = len({namespace_of(pod) for pod in pods})
    return "1 namespace" if number == 1 else f"{number} different namespaces"


def _tolerated_s(tolerations: Iterable[Object], taint: Object) -> float | None:
    """For how long the taint is tolerated: 0 if not at all, None for ever."""
    limits = []
    for each in tolerations:
        if each.get("effect") == NO_EXECUTE and _tolerates(each, taint):
            if each.get("tolerationSeconds") is None:
                return None
            limits.append(max(0.0, float(each["tolerationSeconds"])))
    return min(limits, default=0.0)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")


def _claims_of(pod: Object, state: State) -> Iterator[Object]:
    """The claims that are reserved for the pod, or for its group."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        claim = state[RESOURCE_CLAIMS].get(f"{namespace_of(pod)}/{name}") if name else None
        for consumer in ((claim or {}).get("status") or {}).get("reservedFor") or ():
            is_group = consumer.get("resource") == "podgroups" and consumer.get("name") == group
            if claim is not None and (consumer.get("uid") == uid_of(pod) or is_group):
                yield claim
                break


def _pods_of(claim: Object, state: State) -> Iterator[str]:
    """The keys of the pods for which the claim is reserved, and of those of its groups."""
    namespace = namespace_of(claim)
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer.get("resource") == "pods":
            yield f"{namespace}/{consumer.get('name')}"
        elif consumer.get("resource") == "podgroups":
            for pod in state[PODS].in_namespace(namespace):
                if (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == consumer.get("name"):
                    yield key_of(pod)


def _requests_for(claims: Iterable[Object], state: State) -> Iterator[Request]:
    for key in sorted({key for claim in claims for key in _pods_of(claim, state)}):
        yield Request(f"pods/{key}")


def _results(claim: Object) -> Objects:
    """The devices that are allocated to a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: Objects = (allocation.get("devices") or {}).get("results") or []
    return found


def _use(claim: Object) -> tuple[object, object]:
    status = claim.get("status") or {}
    return status.get("allocation"), status.get("reservedFor")


def _placing(pod: Object) -> tuple[object, object]:
    return pod["spec"].get("nodeName"), (pod.get("status") or {}).get("resourceClaimStatuses")


def _pool(each: Object) -> tuple[str, str]:
    return each["spec"].get("driver") or "", (each["spec"].get("pool") or {}).get("name") or ""


def _generation(each: Object) -> int:
    return int((each["spec"].get("pool") or {}).get("generation") or 0)


def _evicting_taints(each: Object) -> Iterator[tuple[str, Object]]:
    """The taints of a slice's devices that evict, by the name of the device."""
    for device in each["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            if taint.get("effect") == NO_EXECUTE:
                yield device["name"], taint


def _evicting(each: Object) -> Iterator[tuple[object, ...]]:
    """What of a slice decides about evictions."""
    yield "generation", _generation(each)
    for name, taint in _evicting_taints(each):
        yield name, taint.get("key"), taint.get("value"), taint.get("timeAdded")


def _covers(change: Change, result: Object) -> bool:
    return any(_is_about(rule, result) for rule in (change.old, change.new) if rule is not None)


def _is_about(rule: Object, result: Object) -> bool:
    """Whether the rule selects the device; without a selector it selects none."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    return all(not selector.get(name) or selector[name] == result.get(name) for name in ("driver", "pool", "device"))


def _event(pod: Object, what: str) -> Action:
    metadata = {"namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)}
    about: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return Emit(about, "Normal", "DeviceTaintManagerEviction", what)
