"""Recorded decisions of kube-scheduler about pods with claims, and the devices on every node that fits.

The unit is a case. What 1.36.3 does is compared with our upstream rules; see docs/reference/devices.md for where our
own differ.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kind_decisions import renamed, row, verdict_part
from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object, Objects, loads
from muster.api.meta import key_of
from muster.engine import objects
from muster.engine.devices.demand import claims_problem
from muster.engine.devices.extended import IN_MEMORY, mappings_of
from muster.engine.devices.features import Features, upstream_features
from muster.engine.devices.rooms import Room, written
from muster.engine.diagnose import diagnose
from muster.engine.evaluate import Evaluation, evaluate
from muster.engine.model import Code, Status
from muster.engine.plugins.dynamic_resources import Answers, answers_of
from muster.engine.registry import default_profile
from muster.engine.state import ClusterState

KINDS = {
    "namespaces": objects.NAMESPACE,
    "deviceClasses": objects.DEVICE_CLASS,
    "deviceTaintRules": objects.DEVICE_TAINT_RULE,
    "resourceClaims": objects.RESOURCE_CLAIM,
    "resourceSlices": objects.RESOURCE_SLICE,
}


def features_of(case: Object) -> Features:
    """The features of the gates of a case, `Name=true,Other=false`."""
    pairs = [pair.partition("=") for pair in (case.get("gates") or "").split(",") if pair]
    return upstream_features({name: value == "true" for name, _, value in pairs})


def state_of(case: Object) -> ClusterState:
    """The engine's state of a recorded cluster."""
    state = ClusterState(features=features_of(case))
    for field, kind in KINDS.items():
        for obj in case["objects"].get(field) or ():
            state.set_object(kind, obj)
    for key, allocation in (case["objects"].get("inFlight") or {}).items():
        state.assume_allocation(key, allocation)
    for node in case["objects"].get("nodes") or ():
        state.set_node(node)
    for pod in case["objects"].get("pods") or ():
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            state.add_pod(key_of(pod), pod, pod["spec"]["nodeName"])
    return state


def decision_of(case: Object) -> Object:
    """Our decision of a case, in the form of the recording."""
    state, pod = state_of(case), case["pod"]
    profile, shape, snapshot = default_profile(), state.shape_of(pod), state.snapshot()
    found = evaluate(profile, snapshot, shape)
    problem = claims_problem(pod, lambda key: snapshot.objects.get(objects.RESOURCE_CLAIM, key))
    statuses = {name: found.statuses.get(name) for name in snapshot.table.names}
    fault = next((each for _, each in sorted(statuses.items()) if each is not None and each.is_fault), None)
    message = "" if found.best else diagnose(profile, snapshot, shape, key_of(pod)).text()
    decision: Object = {
        "prefilter": _status(found.verdict),
        "filter": {} if found.verdict else {name: _status(each) for name, each in statuses.items()},
        "scores": {} if fault else _scores(found),
        "best": [] if fault else sorted(found.best),
        "message": message if fault is None else fault.reasons[0],
    }
    if problem:
        decision["preEnqueue"] = _status(Status("DynamicResources", (problem,), resolvable=False))
    if shape.usage.devices is not None and not found.verdict and not fault:
        answers = answers_of(shape, snapshot)
        decision["allocations"] = {
            node: each
            for node in found.scores
            if (each := _allocations(answers, answers.rooms[snapshot.table.index[node]], node))
        }
    return decision


def _allocations(answers: Answers, room: Room, node: str) -> Objects:
    """An entry for each claim that would get devices on the node."""
    names = [wanted.label.rpartition("/")[2] for wanted in room.wanted]
    made: Objects = []
    shares = iter(range(1000))
    for name, wanted, allocation in zip(
        names, room.wanted, written(answers.plan, room, node, answers.view, names), strict=True
    ):
        for result in (allocation["devices"]).get("results") or ():
            if "shareID" in result:
                result["shareID"] = f"share-{next(shares)}"
        entry: Object = {"claim": name, "allocation": allocation}
        if name == IN_MEMORY and room.mapped:
            entry["requests"] = loads(wanted.spec.written)["requests"]
            entry["requestMappings"] = mappings_of(room.mapped)
        made.append(entry)
    return made


def differences(case: Object) -> Iterator[Difference]:
    """Where our decision is not the recorded one."""
    ours = decision_of(case)
    yield from _differing("preEnqueue", case.get("preEnqueue"), ours.get("preEnqueue"))
    yield from _differing("prefilter", verdict_part(case["prefilter"]), ours["prefilter"])
    yield from _differing("best", case["best"], ours["best"])
    yield from _differing("message", case.get("message", ""), ours["message"])
    for part in ("filter", "scores", "allocations"):
        recorded, made = case.get(part) or {}, ours.get(part) or {}
        for node in sorted({*recorded, *made}):
            yield from _differing(f"{part}.{node}", recorded.get(node), made.get(node))


def _differing(path: str, want: JSON, got: JSON) -> Iterator[Difference]:
    if want != got:
        yield Difference(path, want, got)


def _status(status: Status | None) -> Object:
    if status is None:
        return {"code": Code.SUCCESS.value}
    code = Code.UNSCHEDULABLE if status.resolvable else Code.UNRESOLVABLE
    code = Code.ERROR if status.is_fault else code
    return {"code": code.value, "plugin": status.plugin, "reasons": list(status.reasons)}


def _scores(found: Evaluation) -> Object:
    return {
        node: {"plugins": dict(sorted(parts.items())), "total": sum(parts.values())}
        for node, parts in found.scores.items()
    }


def run(cases: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """Replays each case; with a seed, renamed and with its objects in another order."""
    for case in cases:
        played = case if seed is None else varied(case, seed)
        yield Outcome(case["id"], row(case), tuple(differences(played)))


def varied(case: Object, seed: int) -> Object:
    """The case with other names of nodes, and lists of objects in another order. Names of slices order devices: they
    stay."""
    rng = random.Random(f"{seed} {case['id']}")
    # Pools bear the names of nodes, and their order matters: the new names keep the order of the old.
    suffix = "".join(rng.choices(string.ascii_lowercase, k=6))
    nodes = [obj["metadata"]["name"] for obj in case["objects"]["nodes"]]
    names = {name: f"{name}{suffix}" for name in nodes}
    other: Object = _inside_texts(renamed(case, names), names)
    for found in other["objects"].values():
        if isinstance(found, list):
            rng.shuffle(found)
    other["best"].sort()
    return other


def _inside_texts(value: JSON, names: Mapping[str, str]) -> JSON:
    """The value with the names of pools in messages replaced."""
    if isinstance(value, str) and ("resource pool " in value or "add device " in value):
        return re.sub(r"(?<=/)\w+(?=[ /])", lambda match: names.get(match[0], match[0]), value)
    if isinstance(value, list):
        return [_inside_texts(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _inside_texts(item, names) for key, item in value.items()}
    return value


def recognises(line: Object) -> bool:
    """Whether a line is a recorded decision about devices."""
    return "prefilter" in line and "deviceClasses" in (line.get("objects") or {})


KIND = Kind("devices", recognises, row, run)
