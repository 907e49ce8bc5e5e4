"""Scenarios in YAML: nodes, objects, what happens later, and what must come of it.

A scenario is one document with these keys:

- `about`: a sentence, the test's name; `source`: the public report it was made from, or `kind: ` and what many report
- `nodes`: texts of `--nodes`; `objects`: manifests or short forms; `options`: fields of `ClusterOptions`; `until`
- `config`: a KubeSchedulerConfiguration of the scheduler
- `at`: entries `{time, do}` (a step, as in `muster simulate --at`) or `{time, objects}`
- `want`: what must hold at the end, by the functions of `EXPECTATIONS`; or `rejected`: what the server says instead

Short forms of objects (all other keys are those of the builders; `spec` is merged into the pod's):
`{node: NAME, …}`, `{pod: NAME, …}`, `{group: NAME, minCount: 2, …}`, `{job: NAME, pods: 3, …}` and
`{gang: NAME, pods: 4, …}`: a PodGroup and its pods `NAME-0`, `NAME-1`, …
`priority: 10` stands for a PriorityClass of that value, which is made.
`{slice: NODE, devices: 4, …}` (NODE "" for devices of all nodes), `{deviceClass: NAME}`, `{claim: NAME, …}` and
`{template: NAME, …}` with `requests` and `constraints`; pods name theirs as `claims` and `templates`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import yaml
from msgspec import Struct

from muster.api.codec import JSON, Object, Objects
from muster.api.durations import parse_duration
from muster.api.manifests import ManifestError
from muster.nodes.spec import parse_node_spec
from muster.scheduler.configuration.reading import read_configuration
from muster.scheduler.options import SchedulerOptions
from muster.simulator.options import ClusterOptions
from muster.simulator.refusals import standing_refusals
from muster.simulator.report import report
from muster.simulator.run import Timed, simulate
from muster.simulator.steps import read_step
from muster.simulator.world import manifests_of
from muster.testing.builders import make_group, make_job, make_node, make_pod
from muster.testing.devices import make_claim, make_claim_template, make_device_class, make_slice

ONE_MOMENT_S = 2.0
"""Bindings of a group are written one after the other; a request takes up to 20 ms."""
RUN_SECONDS = "sim.muster-k8s.dev/run-seconds"


class Scenario(Struct, frozen=True):
    """One document; the module says what its keys mean."""

    about: str
    source: str
    value: Object

    def run(self) -> Object:
        """The report of the simulation."""
        timed: list[Timed] = [_timed(entry) for entry in self.value.get("at") or ()]
        return report(
            simulate(
                manifests_of([*self._classes(), *expand(self.value.get("objects") or [])]),
                timed=timed,
                nodes=[parse_node_spec(text) for text in self.value.get("nodes") or ()],
                until_s=parse_duration(self.value.get("until", "1h")),
                keeps_schedules="until" in self.value,
                options=self._options(),
            )
        )

    def _options(self) -> ClusterOptions:
        given = dict(self.value.get("options") or {})
        if "config" in self.value:
            given["scheduler"] = SchedulerOptions().with_configuration(read_configuration(self.value["config"]))
        return ClusterOptions(**given)

    def _classes(self) -> Objects:
        later = [obj for entry in self.value.get("at") or () for obj in entry.get("objects") or ()]
        priorities = {
            entry["priority"] for entry in (*(self.value.get("objects") or ()), *later) if "priority" in entry
        }
        return [_priority_class(priority) for priority in sorted(priorities)]


def load_scenarios(directory: Path) -> list[Scenario]:
    """All scenarios of a directory, by file and place."""
    found = []
    for file in sorted(directory.glob("*.yaml")):
        for value in yaml.safe_load_all(file.read_text()):
            found.append(Scenario(value["about"], value["source"], value))
    return found


def _timed(entry: Object) -> Timed:
    at_s = parse_duration(entry["time"])
    if "do" in entry:
        return at_s, read_step(entry["do"])
    return at_s, manifests_of(expand(entry["objects"]))


def expand(objects: Objects) -> Objects:
    """The manifests that the entries stand for."""
    return [obj for entry in objects for obj in _expanded(dict(entry))]


def _expanded(entry: Object) -> Iterator[Object]:
    if "apiVersion" in entry:
        yield entry
    elif "pod" in entry:
        yield _pod(entry.pop("pod"), entry)
    elif "node" in entry:
        yield make_node(entry.pop("node"), **entry)
    elif "slice" in entry:
        yield make_slice(entry.pop("slice"), entry.pop("devices"), **entry)
    elif "deviceClass" in entry:
        yield make_device_class(entry["deviceClass"])
    elif "claim" in entry:
        yield make_claim(entry.pop("claim"), *entry.pop("requests", ()), **entry)
    elif "template" in entry:
        yield make_claim_template(entry.pop("template"), *entry.pop("requests", ()), **entry)
    elif "group" in entry:
        yield _group(entry.pop("group"), entry)
    elif "job" in entry:
        yield _job(entry.pop("job"), entry)
    else:
        yield from _gang(entry.pop("gang"), entry)


def _priority_class(value: int) -> Object:
    metadata = {"name": f"priority-{value}"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def _pod(name: str, entry: Object) -> Object:
    if "priority" in entry:
        class_name = f"priority-{entry.pop('priority')}"
        entry["spec"] = {"priorityClassName": class_name, **(entry.get("spec") or {})}
    sources = [("resourceClaimName", each) for each in entry.pop("claims", ())]
    sources += [("resourceClaimTemplateName", each) for each in entry.pop("templates", ())]
    if sources:
        used = [{"name": each, source: each} for source, each in sources]
        entry["spec"] = {"resourceClaims": used, **(entry.get("spec") or {})}
    run_s = entry.pop("run", None)
    annotations = {**(entry.pop("annotations", None) or {})}
    if run_s is not None:
        annotations[RUN_SECONDS] = str(run_s)
        entry["spec"] = {"restartPolicy": "Never", **(entry.get("spec") or {})}
    if "phase" in entry:
        phase = entry.pop("phase")
        return {**make_pod(name, annotations=annotations, **entry), "status": {"phase": phase}}
    return make_pod(name, annotations=annotations, **entry)


def _group(name: str, entry: Object) -> Object:
    return make_group(name, min_count=entry.pop("minCount", 1), **entry)


def _job(name: str, entry: Object) -> Object:
    spec = entry.pop("jobSpec", None) or {}
    indexed = entry.pop("indexed", True)
    namespace = entry.pop("namespace", "default")
    return make_job(
        name, parallelism=entry.pop("pods"), indexed=indexed, namespace=namespace, pod=_pod("pod", entry), **spec
    )


def _gang(name: str, entry: Object) -> Iterator[Object]:
    size = entry.pop("pods")
    min_count = entry.pop("minCount", size)
    group = {**(entry.pop("groupSpec", None) or {})}
    namespace = entry.get("namespace", "default")
    annotations = entry.pop("groupAnnotations", None)
    if "priority" in entry:
        group.setdefault("priorityClassName", f"priority-{entry['priority']}")
    made = make_group(name, min_count=min_count, namespace=namespace, **group)
    if annotations:
        made["metadata"]["annotations"] = annotations
    yield made
    for index in range(size):
        yield _pod(f"{name}-{index}", {**entry, "group": name})


# What must hold


def faults_of(scenario: Scenario) -> list[str]:
    """Run a scenario: what of its expectations does not hold, in words."""
    pattern = scenario.value["want"].get("rejected")
    try:
        result = scenario.run()
    except ManifestError as error:
        return [] if pattern and re.search(pattern, str(error)) else [str(error)]
    return ["rejected: it was not"] if pattern else check(scenario, result)


def check(scenario: Scenario, result: Object) -> list[str]:
    """What of the scenario's expectations does not hold, in words; no invariant may be violated either."""
    faults = [violation["text"] for violation in result["invariants"]["violations"]]
    for key, want in scenario.value["want"].items():
        for fault in EXPECTATIONS[key](result, want):
            faults.append(f"{key}: {fault}")
    return faults


def _states(result: Object, want: Object) -> Iterator[str]:
    found = {group["name"]: group["state"] for group in result["groups"]}
    yield from _differences(found, want)


def _scheduled(result: Object, want: Object) -> Iterator[str]:
    found = {group["name"]: group["scheduled"] for group in result["groups"]}
    yield from _differences(found, want)


def _nodes(result: Object, want: Object) -> Iterator[str]:
    found = {pod["name"]: pod["node"] for pod in result["pods"] if not pod["preempted"]}
    yield from _differences(found, want)


def _phases(result: Object, want: Object) -> Iterator[str]:
    found = {pod["name"]: pod["phase"] for pod in result["pods"] if not pod["preempted"]}
    yield from _differences(found, want)


def _placed(result: Object, want: Object) -> Iterator[str]:
    """How many pods whose name begins so have a node."""
    placed = [pod["name"] for pod in result["pods"] if pod["node"] and not pod["preempted"]]
    found = {start: sum(name.startswith(start) for name in placed) for start in want}
    yield from _differences(found, want)


def _evicted(result: Object, want: list[str]) -> Iterator[str]:
    found = sorted(eviction["pod"].partition("/")[2] for eviction in result["evictions"])
    if found != sorted(want):
        yield f"want {sorted(want)}, got {found}"


def _evictions(result: Object, want: int) -> Iterator[str]:
    if len(result["evictions"]) != want:
        yield f"want {want}, got {[eviction['pod'] for eviction in result['evictions']]}"


def _first_scheduled(result: Object, want: dict[str, list[float]]) -> Iterator[str]:
    found = {group["name"]: group["first_scheduled_s"] for group in result["groups"]}
    for name, (low, high) in want.items():
        got = found.get(_full_name(found, name))
        if got is None or not low <= got <= high:
            yield f"{name}: want {low} to {high}, got {got}"


def _pod_scheduled(result: Object, want: dict[str, list[float]]) -> Iterator[str]:
    found = {pod["name"]: pod["scheduled_s"] for pod in result["pods"] if not pod["preempted"]}
    for name, (low, high) in want.items():
        got = found.get(_full_name(found, name))
        if got is None or not low <= got <= high:
            yield f"{name}: want {low} to {high}, got {got}"


def _says(result: Object, want: dict[str, str | list[str]]) -> Iterator[str]:
    """Patterns that the group's message or summary, or the pod's message, must have."""
    groups = {group["name"]: _words(group) for group in result["groups"]}
    pods = {pod["name"]: pod["message"] for pod in result["pods"]}
    for name, patterns in want.items():
        text = pods[name] if name in pods else groups.get(_full_name(groups, name), "")
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if not re.search(pattern, text):
                yield f"{name}: want {pattern!r}, got {text!r}"


def _words(group: Object) -> str:
    return f"{group['message']} | {(group['explanation'] or {}).get('summary', '')}"


def _refused(result: Object, want: dict[str, str]) -> Iterator[str]:
    """What could not be made for whom, and why."""
    found = {event["name"]: event["message"] for event in standing_refusals(result["events"])}
    for name, pattern in want.items():
        if not re.search(pattern, found.get(name, "")):
            yield f"{name}: want {pattern!r}, got {found}"


def _offers(result: Object, want: dict[str, list[str]]) -> Iterator[str]:
    """Texts of changes that must be among those that would help the group."""
    for group in result["groups"]:
        texts = [change["text"] for change in (group["explanation"] or {}).get("changes", ())]
        patterns = [pattern for name in want if group["name"].startswith(name) for pattern in want[name]]
        for pattern in patterns:
            if not any(re.search(pattern, text) for text in texts):
                yield f"{group['name']}: want {pattern!r} among {texts}"


def _offers_not(result: Object, want: dict[str, list[str]]) -> Iterator[str]:
    for group in result["groups"]:
        texts = [change["text"] for change in (group["explanation"] or {}).get("changes", ())]
        patterns = [pattern for name in want if group["name"].startswith(name) for pattern in want[name]]
        for pattern in patterns:
            if any(re.search(pattern, text) for text in texts):
                yield f"{group['name']}: {pattern!r} must not be among {texts}"


def _reasons(result: Object, want: Object) -> Iterator[str]:
    """The reasons of pods that wait; those whose name begins so all have it."""
    for start, reason in want.items():
        found = {pod["name"]: pod["reason"] for pod in result["pods"] if pod["name"].startswith(start)}
        if not found or set(found.values()) != {reason}:
            yield f"{start}: want {reason!r}, got {found}"


def _together(result: Object, want: list[str]) -> Iterator[str]:
    """Pods whose name begins so got their nodes at one moment."""
    for start in want:
        times = {pod["scheduled_s"] for pod in result["pods"] if pod["name"].startswith(start)}
        if None in times or max(times) - min(times) > ONE_MOMENT_S:
            yield f"{start}: want one moment, got {sorted(times, key=str)}"


def _in_order(result: Object, want: list[str]) -> Iterator[str]:
    """The pods of a Job by index fill one node after the other: no node is come back to."""
    for job in want:
        pods = {int(found[1]): pod["node"] for pod in result["pods"] if (found := _index(job, pod["name"]))}
        nodes = [pods[index] for index in sorted(pods)]
        runs = [node for at, node in enumerate(nodes) if at == 0 or nodes[at - 1] != node]
        if None in nodes or len(runs) != len(set(nodes)):
            yield f"{job}: want ranks side by side, got {nodes}"


def _index(job: str, pod: str) -> re.Match[str] | None:
    return re.fullmatch(rf"{re.escape(job)}-(\d+)-\w+", pod)


def _topology(result: Object, want: Object) -> Iterator[str]:
    found = {group["name"]: group["topology"] for group in result["groups"]}
    yield from _differences(found, want)


def _counts(result: Object, want: dict[str, int]) -> Iterator[str]:
    """How many pods each node has at the end that have not ended."""
    live = [pod for pod in result["pods"] if pod["phase"] not in ("Succeeded", "Failed") and not pod["preempted"]]
    found = {node["name"]: sum(pod["node"] == node["name"] for pod in live) for node in result["nodes"]}
    yield from _differences(found, cast(Object, want))


def _happened(result: Object, want: list[str]) -> Iterator[str]:
    events = {f"{event['name']} {event['reason']}" for event in result["events"]}
    for entry in want:
        if entry not in events:
            yield f"want {entry!r} among {sorted(events)}"


def _ends_within(result: Object, want: float) -> Iterator[str]:
    if result["time_s"] > want:
        yield f"want at most {want}, got {result['time_s']}"


def _differences(found: Object, want: Object) -> Iterator[str]:
    for name, value in want.items():
        got = found.get(_full_name(found, name))
        if got != value:
            yield f"{name}: want {value!r}, got {got!r}"


def _full_name(found: Object, name: str) -> str:
    """The name, or else the only one that begins so: groups of Jobs have names with a hash."""
    longer = [each for each in found if each.startswith(f"{name}-")]
    return longer[0] if name not in found and len(longer) == 1 else name


EXPECTATIONS: dict[str, Callable[[Object, JSON], Iterator[str]]] = {
    "states": _states,
    "scheduled": _scheduled,
    "nodes": _nodes,
    "phases": _phases,
    "placed": _placed,
    "evicted": _evicted,
    "evictions": _evictions,
    "first_scheduled": _first_scheduled,
    "pod_scheduled": _pod_scheduled,
    "says": _says,
    "refused": _refused,
    "reasons": _reasons,
    "together": _together,
    "in_order": _in_order,
    "offers": _offers,
    "offers_not": _offers_not,
    "topology": _topology,
    "counts": _counts,
    "happened": _happened,
    "ends_within": _ends_within,
}
