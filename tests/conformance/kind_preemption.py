"""Recorded runs of kube-scheduler's default preemption: candidates, choice, victims and words, by the engine alone."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kind_decisions import KINDS, renamed
from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object
from muster.api.meta import has_condition, is_deleting, key_of
from muster.clock import parse_rfc3339
from muster.engine.diagnose import diagnose
from muster.engine.preemption.budgets import Budgets, parse_budget
from muster.engine.preemption.model import Nomination, RunningPod, Unit
from muster.engine.preemption.pods import (
    Candidate,
    Cluster,
    PodPreemptor,
    best_candidates,
    dry_run,
    ineligible,
    lower_nominations,
    place_nominated,
)
from muster.engine.state import ClusterState

NOW_S = parse_rfc3339("2026-06-01T00:00:00Z")
CLAIMS = "no new claims to deallocate"
"""What the PostFilter of DynamicResources adds before the words of preemption."""

ORDERS = 40
"""So many orders of the running pods are tried."""

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded case as the engine takes it."""

    cluster: Cluster
    pod: PodPreemptor


def run(lines: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """The outcome of every case."""
    for line in lines:
        found: list[Difference] = []
        try:
            played = line if seed is None else varied(line, seed)
            found = fewest_differences(played)
        except Exception as error:  # a case that cannot be replayed must not hide the others
            found = [Difference("replay", None, f"{type(error).__name__}: {error}")]
        yield Outcome(str(line["id"]), row(line), tuple(found))


def fewest_differences(line: Object) -> list[Difference]:
    """The differences with the order of pods that comes closest to the recording.

    Which of two pods of one priority and start goes depends on the order in which they came to their node, which the
    recording does not tell.
    """
    found: list[Difference] = []
    for attempt in range(ORDERS):
        listed = line["objects"]["pods"]
        pods = listed if not attempt else random.Random(attempt).sample(listed, len(listed))
        played = {**line, "objects": {**line["objects"], "pods": pods}}
        other = differences(line["preemption"], replayed(load(played)))
        if not attempt or len(other) < len(found):
            found = other
        if not found or not has_alike(listed):
            break
    return found


def has_alike(pods: Sequence[Object]) -> bool:
    """Whether two pods of a node have the same priority and start."""
    keys = [(pod["spec"]["nodeName"], _priority(pod), (pod.get("status") or {}).get("startTime")) for pod in pods]
    return len(set(keys)) < len(keys)


def varied(line: Object, seed: int) -> Object:
    """The case with other names of nodes and pods, and nodes, pods and budgets in another order."""
    rng = random.Random(f"{seed} {line['id']}")
    objects = line["objects"]
    names: dict[str, str] = {}
    for obj in (*objects["nodes"], *objects["pods"], *(objects.get("nominatedPods") or ())):
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
        new = f"{''.join(rng.choices(string.ascii_lowercase, k=6))}-{name}"
        names |= {f"{namespace}/{name}": f"{namespace}/{new}"} if namespace else {}
        names[name] = new
    other: Object = renamed(line, names)
    for listed in other["objects"].values():
        rng.shuffle(listed)
    other["preemption"]["deleted"].sort()
    return other


def row(line: Object) -> str:
    """The feature that the case is counted in."""
    return str(line["features"][1])


def load(line: Object) -> Case:
    """The cluster and the pod of a recorded line."""
    objects = line["objects"]
    state = ClusterState()
    for field, kind in KINDS.items():
        for obj in objects.get(field) or ():
            state.set_object(kind, obj)
    for node in objects["nodes"]:
        state.set_node(node)
    running = [pod for pod in objects["pods"] if (pod.get("status") or {}).get("phase") not in _ENDED]
    for pod in running:
        state.add_pod(key_of(pod), pod, pod["spec"]["nodeName"])
    incoming = line["pod"]
    shape = state.shape_of(incoming)
    nominations = [
        Nomination(key_of(pod), pod["status"]["nominatedNodeName"], _priority(pod), state.shape_of(pod))
        for pod in objects.get("nominatedPods") or ()
    ]
    budgets = [parse_budget(each) for each in objects.get("podDisruptionBudgets") or ()]
    cluster = Cluster(
        state.snapshot(),
        [_unit(pod) for pod in running],
        NOW_S,
        Budgets(budget for budget in budgets if budget is not None),
        nominations,
    )
    may_preempt = incoming["spec"].get("preemptionPolicy") != "Never"
    nominated = (incoming.get("status") or {}).get("nominatedNodeName") or ""
    return Case(cluster, PodPreemptor(key_of(incoming), shape, _priority(incoming), may_preempt, nominated))


def replayed(case: Case) -> Object:
    """What ours gives, in the form of the recording; `possible` are all choices that would be right."""
    with case.cluster.snapshot.trial() as trial:
        place_nominated(trial, case.cluster, case.pod, 1)
        message = diagnose(case.cluster.profile, trial, case.pod.shape, case.pod.key).text()
    refusal = ineligible(case.cluster, case.pod)
    if refusal is not None:
        return _refused(message, refusal.text)
    found = dry_run(case.cluster, case.pod)
    rejected = {node: _reasons(status.reasons) for node, status in found.rejected.items()}
    candidates = {each.node: _candidate(each) for each in found.candidates}
    if not found.candidates:
        return {**_refused(message, found.text()), "rejected": rejected}
    best = best_candidates(found.candidates, NOW_S)
    return {
        "code": "Success",
        "possible": [each.node for each in best],
        "candidates": candidates,
        "rejected": rejected,
        "message": message,
        "deleted": {each.node: sorted(pod.key for unit in each.victims for pod in unit.evicted) for each in best},
        "cleared": {
            each.node: sorted(other.pod for other in lower_nominations(case.cluster.nominations, case.pod, each.node))
            for each in best
        },
    }


def differences(recorded: Object, ours: Object) -> list[Difference]:
    """Where ours is not as recorded; which of tied nodes is taken is free."""
    node = recorded["nominatedNode"]
    pairs: list[tuple[str, JSON, JSON]] = [
        ("status.code", recorded["status"]["code"], ours["code"]),
        ("possible", sorted(recorded["possible"]), sorted(ours["possible"])),
        ("candidates", recorded["candidates"], ours["candidates"]),
        ("rejected", _recorded_rejections(recorded), ours["rejected"]),
        ("message", _sorted_words(recorded["message"]), _sorted_words(ours["message"])),
        ("deleted", recorded["deleted"], ours["deleted"].get(node, [])),
        ("clearedNominations", sorted(recorded.get("clearedNominations") or ()), ours["cleared"].get(node, [])),
    ]
    return [Difference(path, want, got) for path, want, got in pairs if want != got]


def _refused(message: str, why: str) -> Object:
    text = f"{message} {CLAIMS}, preemption: {why}".strip()
    words = {"code": "Unschedulable", "possible": [], "candidates": {}, "rejected": {}, "message": text}
    return {**words, "deleted": {}, "cleared": {}}


def _candidate(candidate: Candidate) -> Object:
    victims = [pod.key for unit in candidate.victims for pod in unit.pods]
    return {"victims": victims, "pdbViolations": candidate.violations}


def _recorded_rejections(recorded: Object) -> Object:
    return {node: _reasons(status["reasons"]) for node, status in (recorded.get("rejected") or {}).items()}


def _reasons(reasons: Iterable[str]) -> list[str]:
    return sorted(reasons)


def _sorted_words(message: str) -> list[str]:
    return message.split()


def _unit(pod: Object) -> Unit:
    started = (pod.get("status") or {}).get("startTime")
    leaving = is_deleting(pod)
    running = RunningPod(
        key_of(pod),
        pod["spec"]["nodeName"],
        None if started is None else parse_rfc3339(started),
        pod["metadata"].get("labels") or {},
        leaving=leaving,
        preempted=leaving and has_condition(pod, "DisruptionTarget") and _by_scheduler(pod),
    )
    return Unit(running.key, _priority(pod), (running,))


def _by_scheduler(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(
        each["type"] == "DisruptionTarget" and each.get("reason") == "PreemptionByScheduler" for each in conditions
    )


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def _recognises(line: Object) -> bool:
    return "preemption" in line and "prefilter" in line


KIND = Kind("preemption", _recognises, row, run)
