"""Recorded decisions of kube-scheduler: one cluster, one incoming pod. The unit is a case."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object
from muster.api.meta import key_of
from muster.engine import objects
from muster.engine.decide import decide
from muster.engine.diagnose import diagnose
from muster.engine.evaluate import Evaluation, evaluate
from muster.engine.model import Code, GroupRequest, Member, Placed, ScoreError, Status
from muster.engine.profile import Profile
from muster.engine.registry import default_profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.scheduler.configuration.arguments import API_VERSION
from muster.scheduler.configuration.reading import KIND as KIND_NAME
from muster.scheduler.configuration.reading import read_configuration

KINDS = {
    "namespaces": objects.NAMESPACE,
    "services": objects.SERVICE,
    "replicationControllers": objects.REPLICATION_CONTROLLER,
    "replicaSets": objects.REPLICA_SET,
    "statefulSets": objects.STATEFUL_SET,
    "persistentVolumes": objects.PERSISTENT_VOLUME,
    "persistentVolumeClaims": objects.PERSISTENT_VOLUME_CLAIM,
    "storageClasses": objects.STORAGE_CLASS,
    "csiNodes": objects.CSI_NODE,
    "csiDrivers": objects.CSI_DRIVER,
    "csiStorageCapacities": objects.CSI_STORAGE_CAPACITY,
}


def state_of(case: Object) -> ClusterState:
    """The engine's state of a recorded cluster. Finished pods are unknown to a scheduler."""
    state = ClusterState()
    for field, kind in KINDS.items():
        for obj in case["objects"].get(field) or ():
            state.set_object(kind, obj)
    for node in case["objects"].get("nodes") or ():
        state.set_node(node)
    for pod in case["objects"].get("pods") or ():
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            state.add_pod(key_of(pod), pod, pod["spec"]["nodeName"])
    for pod in case["objects"].get("nominatedPods") or ():
        state.nominate(key_of(pod), pod, pod["status"]["nominatedNodeName"])
    return state


def decision_of(case: Object) -> Object:
    """Our decision of a case, in the form of the recording."""
    state, pod, profile = state_of(case), case["pod"], profile_of(case["config"])
    shape = state.shape_of(pod)
    priority = int(pod["spec"].get("priority") or 0)
    snapshot = state.snapshot().facing(priority, [key_of(pod)])
    nominated = (pod.get("status") or {}).get("nominatedNodeName") or ""
    found = evaluate(profile, snapshot, shape, nominated=nominated)
    member = Member(key_of(pod), shape, nominated)
    request = GroupRequest(member.key, (member,), min_count=1, priority=priority)
    return {
        "prefilter": _status(found.verdict),
        "filter": {} if found.verdict else {name: _status(found.statuses.get(name)) for name in snapshot.table.names},
        "scores": {} if found.error else _scores(found),
        **_chosen(found, profile, state.snapshot(), snapshot, request),
    }


def profile_of(config: Object | None) -> Profile:
    """The profile of a recorded configuration."""
    if config is None:
        return default_profile()
    profile = {name: config[name] for name in ("plugins", "pluginConfig") if config.get(name)}
    file = {"apiVersion": API_VERSION, "kind": KIND_NAME, "profiles": [profile]}
    return read_configuration(file).profiles[0].profile


def differences(case: Object) -> Iterator[Difference]:
    """Where our decision is not the recorded one. Of tied nodes the scheduler takes any."""
    ours = decision_of(case)
    yield from _differing("prefilter", verdict_part(case["prefilter"]), ours["prefilter"])
    for node in sorted({*case["filter"], *ours["filter"]}):
        yield from _differing(f"filter.{node}", case["filter"].get(node), ours["filter"].get(node))
    for node in sorted({*case["scores"], *ours["scores"]}):
        yield from _differing(f"scores.{node}", case["scores"].get(node), ours["scores"].get(node))
    yield from _differing("best", case["best"], ours["best"])
    yield from _differing("scoreError", case.get("scoreError", ""), ours["scoreError"])
    yield from _differing("message", case.get("message", ""), ours["message"])
    if ours["chosen"] is not None and ours["chosen"] not in case["best"]:
        yield Difference("chosen", case["best"], ours["chosen"])
    if ours["chosen"] is None and case["best"]:
        yield Difference("chosen", case["best"], None)


def _differing(path: str, want: JSON, got: JSON) -> Iterator[Difference]:
    if want != got:
        yield Difference(path, want, got)


def verdict_part(prefilter: Object) -> Object:
    """What of a PreFilter status is compared."""
    return {name: prefilter[name] for name in ("code", "plugin", "reasons") if name in prefilter}


def _status(status: Status | None) -> Object:
    if status is None:
        return {"code": Code.SUCCESS.value}
    code = Code.UNSCHEDULABLE if status.resolvable else Code.UNRESOLVABLE
    # The recording names no plugin for nodes that PreFilter left out; their reason names all that did.
    outside = status.reasons[0].startswith("node(s) didn't satisfy plugin(s)")
    named = {} if outside else {"plugin": status.plugin}
    return {"code": code.value, **named, "reasons": list(status.reasons)}


def _scores(found: Evaluation) -> Object:
    return {
        node: {"plugins": dict(sorted(parts.items())), "total": sum(parts.values())}
        for node, parts in found.scores.items()
    }


def _chosen(found: Evaluation, profile: Profile, snapshot: Snapshot, facing: Snapshot, request: GroupRequest) -> Object:
    """The best nodes, the message, and what `decide` chooses."""
    shape: Shape = request.members[0].shape
    try:
        decision = decide(snapshot, request, profile=profile)
    except ScoreError as failure:
        return {"best": [], "message": str(failure), "scoreError": found.error, "chosen": None}
    chosen = decision.placements[0].node if isinstance(decision, Placed) else None
    error = found.error if found.scores else ""
    message = "" if found.scores else diagnose(profile, facing, shape, request.key).text()
    return {"best": sorted(found.best), "message": message, "scoreError": error, "chosen": chosen}


def run(cases: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """Replays each case; with a seed, renamed and with its objects in another order."""
    for case in cases:
        played = case if seed is None else varied(case, seed)
        yield Outcome(case["id"], row(case), tuple(differences(played)))


def varied(case: Object, seed: int) -> Object:
    """The case with other names of nodes and running pods, consistently, and lists of objects in another order."""
    rng = random.Random(f"{seed} {case['id']}")
    names = [obj["metadata"]["name"] for field in ("nodes", "pods") for obj in case["objects"].get(field) or ()]
    others = {name: f"{''.join(rng.choices(string.ascii_lowercase, k=6))}-{name}" for name in names}
    other: Object = renamed(case, others)
    for objects_ in other["objects"].values():
        rng.shuffle(objects_)
    other["best"].sort()
    return other


def renamed(value: JSON, names: Mapping[str, str]) -> JSON:
    """The value with every text and key that is one of the names replaced; parts of texts are left alone."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    return value


def row(case: Object) -> str:
    """The row in which a case is counted: its first feature."""
    first: str = (case["features"] or [""])[0]
    return first


def recognises(line: Object) -> bool:
    """Whether a line is a recorded decision."""
    return "prefilter" in line and "preemption" not in line


KIND = Kind("decisions", recognises, row, run)
