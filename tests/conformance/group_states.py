"""The state of pods and groups as recordings of groups write it, and how ours is compared with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from compare import value_differences
from outcome import Difference

from muster.api.codec import Object, Objects
from muster.api.meta import condition, name_of

SUCCEEDED = "Successfully scheduled a pod group"
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
FAILED = "FailedScheduling"
MOST_CYCLES = 6
"""The recorder kept so many cycles of a step."""

CLAIMS_ERROR = 'error in "DynamicResources" PodGroupPostFilter plugins: not found'


def pod_states(pods: Iterable[Object]) -> Object:
    """Where pods are, or why they are nowhere."""
    found: Object = {}
    for pod in pods:
        state: Object = {"priority": pod["spec"].get("priority")}
        if pod["spec"].get("nodeName"):
            state["nodeName"] = pod["spec"]["nodeName"]
        if (pod.get("status") or {}).get("nominatedNodeName"):
            state["nominatedNodeName"] = pod["status"]["nominatedNodeName"]
        said = condition(pod, "PodScheduled")
        if said is not None:
            state["condition"] = {key: said[key] for key in ("status", "reason", "message") if said.get(key)}
        found[name_of(pod)] = state
    return found


def group_states(groups: Iterable[Object]) -> Object:
    """What groups say of themselves."""
    return {
        name_of(group): {
            "priority": group["spec"].get("priority"),
            "disruptionMode": group["spec"].get("disruptionMode"),
            "conditions": [
                {key: each.get(key) or "" for key in ("type", "status", "reason", "message")}
                for each in (group.get("status") or {}).get("conditions") or ()
            ],
        }
        for group in groups
    }


def event_texts(events: Objects, names: frozenset[str]) -> list[tuple[str, ...]]:
    """The events about these objects, each once."""
    found: dict[tuple[str, ...], None] = {}
    for event in events:
        about = event["involvedObject"]
        if about.get("name") in names:
            message = UID.sub("<uid>", event.get("message") or "")
            found[about["kind"], about["name"], event["type"], event["reason"], message] = None
    return sorted(found)


@dataclass(slots=True)
class Played:
    """What one run of a scenario gave: a state a step, the cycles of each, and all events."""

    states: list[Object] = field(default_factory=list)
    cycles: list[list[Object]] = field(default_factory=list)
    events: list[tuple[str, ...]] = field(default_factory=list)


def differences(scenario: Object, played: Played) -> list[Difference]:
    """Where ours is not as recorded.

    Paths that begin with `race:` are about what upstream gets wrong now and then (see accepted.yaml): groups that are
    popped before all their members are seen, a status written late, an error of the plugin for claims.
    """
    found: list[Difference] = []
    early: set[str] = set()
    for number, (want, got) in enumerate(zip(scenario["results"], played.states, strict=True), 1):
        for kind in ("pods", "podGroups", "compositePodGroups"):
            found += value_differences(f"step {number}: {kind}", want.get(kind) or {}, got.get(kind) or {})
        found += value_differences(f"step {number}: evicted", sorted(want["evicted"]), got["evicted"])
        found += _cycles(number, want.get("cycles") or [], played.cycles[number - 1], early)
    recorded: set[tuple[str, ...]] = {
        (event["kind"], event["name"], event["type"], event["reason"], event["message"]) for event in scenario["events"]
    }
    found += _events(recorded, set(played.events))
    members = _members(scenario, early)
    late = {path for number, state in enumerate(played.states, 1) for path in _written_late(number, state)}
    return [_as_race(each, members, late) for each in found]


def said_in_other_runs(difference: Difference, said: set[tuple[str, ...]]) -> bool:
    """Whether all that a pod was told in the recording and not by us it is told when another placement comes first.

    A group that fails is tried again and again, and each time another placement may be reported.
    """
    if not difference.path.startswith("events["):
        return False
    want = {tuple(each) for each in difference.want}
    return {tuple(each) for each in difference.got} <= want <= said


def same_cycle(one: Object, other: Object) -> bool:
    """Whether two cycles are a repetition; of a tree it is chance for which of its groups a result is logged."""
    if "tree" not in one:
        return one == other
    return {**one, "results": None} == {**other, "results": None}


def _cycles(step: int, want: Sequence[Object], got: Sequence[Object], early: set[str]) -> Iterator[Difference]:
    """The recorded cycles; the last may be cut off. `early` takes the roots that upstream popped too early."""
    recorded: list[Object] = []
    for cycle in (_written(cycle) for cycle in want if "result" in cycle):
        if not recorded or not same_cycle(_without_result(recorded[-1]), _without_result(cycle)):
            recorded.append(cycle)
    is_cut = len(want) >= MOST_CYCLES or any("result" not in cycle for cycle in want)
    ours = list(got)[: len(recorded)] if is_cut else list(got)
    while len(recorded) > len(ours) and (popped := popped_early(recorded)) is not None:
        early.add(root_name(popped))
        recorded.remove(popped)
        yield Difference(f"race: step {step}: cycles[{popped['podGroup']}]", popped, None)
    if [cycle["podGroup"] for cycle in recorded] != [cycle["podGroup"] for cycle in ours]:
        yield Difference(f"step {step}: cycles[]", recorded, ours)
        return
    for number, (one, other) in enumerate(zip(recorded, ours, strict=True), 1):
        path = f"step {step}: cycles[{number}]"
        yield from value_differences(path, _without_result(one), _without_result(other))
        if one["result"] not in other["results"]:
            yield Difference(f"{path}.result", one["result"], other["results"])


def _without_result(cycle: Object) -> Object:
    return {key: value for key, value in cycle.items() if key not in ("result", "results")}


def popped_early(recorded: Sequence[Object]) -> Object | None:
    """The first cycle that found too few members: it tried nobody, or it is of a tree and another one followed it."""
    for at, cycle in enumerate(recorded):
        is_first = all(each["podGroup"] != cycle["podGroup"] for each in recorded[:at])
        is_last = all(each["podGroup"] != cycle["podGroup"] for each in recorded[at + 1 :])
        tried_nobody = not cycle.get("order") and (not is_last or "runs" in cycle)
        failed = cycle.get("result", SUCCEEDED) != SUCCEEDED
        if is_first and failed and (tried_nobody or ("tree" in cycle and not is_last)):
            return cycle
    return None


def root_name(cycle: Object) -> str:
    """The name of the group whose cycle it is."""
    name: str = cycle["podGroup"].rpartition("/")[2]
    return name


def _written(cycle: Object) -> Object:
    """A recorded cycle in our form."""
    found = {key: value for key, value in cycle.items() if value not in ([], None)}
    if " " not in found["podGroup"]:
        found["podGroup"] = f"podgroup {found['podGroup']}"
    if "placements" in found:
        found["placements"] = sorted(set(found["placements"]))
    return found


def _members(scenario: Object, roots: set[str]) -> set[str]:
    """The pods of these groups and of all below them."""
    objects = [obj for step in scenario["steps"] for obj in step if "spec" in obj]
    below = set(roots)
    for _ in range(4):
        below |= {name_of(obj) for obj in objects if obj["spec"].get("parentCompositePodGroupName") in below}
    return {name_of(obj) for obj in objects if (obj["spec"].get("schedulingGroup") or {}).get("podGroupName") in below}


def _written_late(step: int, state: Object) -> Iterator[str]:
    """The conditions that ours has True, which stay so."""
    for name, group in state["podGroups"].items():
        if any(each["status"] == "True" for each in group["conditions"]):
            yield f"step {step}: podGroups.{name}.conditions["


def _as_race(difference: Difference, early: set[str], late: set[str]) -> Difference:
    """The difference under a path that says that it is chance, if it is."""
    path, want, got = difference.path, difference.want, difference.got
    is_race = CLAIMS_ERROR in json.dumps(want).replace('\\"', '"')
    if path.startswith("events["):
        failed = [each for each in want if each not in got]
        is_early = path[len("events[") : -1] in early and all(each[3] == FAILED for each in failed)
        is_race = all(each in want for each in got) and (is_early or all(CLAIMS_ERROR in each[4] for each in failed))
    elif any(path.startswith(each) for each in late):
        is_race = True
    return Difference(f"race: {path}", want, got) if is_race and not path.startswith("race:") else difference


def _events(want: set[tuple[str, ...]], got: set[tuple[str, ...]]) -> Iterator[Difference]:
    for name in sorted({event[1] for event in want ^ got}):
        recorded = sorted(event for event in want if event[1] == name)
        ours = sorted(event for event in got if event[1] == name)
        yield Difference(f"events[{name}]", [list(each) for each in recorded], [list(each) for each in ours])
