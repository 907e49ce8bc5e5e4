"""Recorded runs of groups with claims for devices, replayed as those of groups, with the controllers that claims need.

Upstream places members that share a claim in one cycle, and each of them tries to write the allocation: all but one
lose, are told so and come again, which of them is luck. Ours writes a claim once for the whole group. So what losers
were told, their later cycles, and whether they had come back when the state was read is not compared.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable, Iterator, Sequence

from compare import value_differences
from following import phases
from group_states import Played, group_states, pod_states
from group_varying import vary
from kind_groups import NAMESPACE, QUIET_S, Play, release_of
from outcome import Difference, Kind, Outcome

from muster.api.codec import JSON, Object
from muster.api.meta import name_of
from muster.api.resource import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService

CONTROLLERS = ("resourceclaim-controller", "podgroup-protection-controller", "garbage-collector-controller")
LOST = "got allocated elsewhere in the meantime"
MADE = {each.kind: each for each in (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES)}
_OF_CLAIMS = ("generateName", "labels", "annotations", "owners", "finalizers", "allocation", "reservedFor", "deleting")


def run(lines: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """Replay scenarios, each on a cluster of its own."""
    for line in lines:
        scenario = line if seed is None else vary(line, seed)
        yield Outcome(
            str(line["id"]), str(line["family"]), tuple(_differences(scenario, _played(scenario))), _facts(line)
        )


def _facts(scenario: Object) -> Object:
    return {"is_1_36": int(release_of(scenario) == "1.36")}


def _played(scenario: Object) -> Played:
    return run_virtual(lambda clock: _Play(scenario, clock).run())


class _Play(Play):
    """A replay with claims."""

    def __init__(self, scenario: Object, clock: VirtualClock) -> None:
        super().__init__(scenario, clock, 0, None)
        options = ControllerOptions()
        self.controllers = ControllerService(self.client, clock, random.Random(3), options, CONTROLLERS)
        self.names: dict[str, str] = {}  # of claims that were made, as the recording writes them

    async def run(self) -> Played:
        task = asyncio.get_running_loop().create_task(self.controllers.run())
        try:
            return await super().run()
        finally:
            task.cancel()

    async def _step(self, number: int, step: list[Object]) -> None:
        self.follower.begin(number)
        self.log.cycles = []
        for phase in phases(
            [each for each in step if "do" not in each], self.scenario["results"][number], self.release
        ):
            for obj in phase:
                await self._create(obj)
            await self.clock.sleep(QUIET_S)
        for action in step:
            if "do" in action:
                await self._act(action)
        await self.clock.sleep(QUIET_S + 12.0)
        self.played.cycles.append(self.log.cycles)
        self.played.states.append(await self._state())

    async def _create(self, obj: Object) -> None:
        resource = MADE.get(obj["kind"])
        if resource is None:
            await super()._create(obj)
        else:
            await self.client.create(resource, NAMESPACE if resource.namespaced else None, obj)

    async def _act(self, action: Object) -> None:
        kind, name = self._kind(action["kind"]), action["name"]
        if action["do"] == "phase":
            patch = {"status": {"phase": action["phase"]}}
            await self.client.patch(PODS, NAMESPACE, name, patch, subresource="status")
        elif action["do"] == "delete":
            await self.client.delete(kind, NAMESPACE, name)
        else:
            for claim in (await self.client.list(RESOURCE_CLAIMS, NAMESPACE)).items:
                if name_of(claim).startswith(name):
                    await self.client.delete(RESOURCE_CLAIMS, NAMESPACE, name_of(claim))

    def _kind(self, kind: str) -> Resource:
        version = "v1alpha2" if self.release == "1.36" else "v1beta1"
        groups = Resource("scheduling.k8s.io", version, "podgroups", "PodGroup")
        return {"Pod": PODS, "PodGroup": groups, "ResourceClaim": RESOURCE_CLAIMS}[kind]

    async def _state(self) -> Object:
        pods = [pod for pod in (await self.client.list(PODS, NAMESPACE)).items if name_of(pod) not in self.running]
        groups = (await self.client.list(self._kind("PodGroup"), NAMESPACE)).items
        claims = (await self.client.list(RESOURCE_CLAIMS, NAMESPACE)).items
        for claim in sorted(claims, key=lambda each: int(each["metadata"]["resourceVersion"])):
            self._note(claim)
        state: Object = {"pods": pod_states(pods), "podGroups": group_states(groups)}
        for found, objects in ((state["pods"], pods), (state["podGroups"], groups)):
            for obj in objects:
                said = (obj.get("status") or {}).get("resourceClaimStatuses")
                if said:
                    found[name_of(obj)]["resourceClaimStatuses"] = said
        for pod in pods:
            phase = (pod.get("status") or {}).get("phase")
            if phase in ("Succeeded", "Failed"):
                state["pods"][name_of(pod)]["phase"] = phase
        state["resourceClaims"] = {name_of(claim): _claim_state(claim) for claim in claims}
        return state

    def _note(self, claim: Object) -> None:
        base = claim["metadata"].get("generateName")
        name = name_of(claim)
        if base and name not in self.names:
            number = sum(known.startswith(f"{base}gen") for known in self.names.values())
            self.names[name] = f"{base}gen{number}"

    def renamed(self, value: JSON) -> JSON:
        """The value with the names of claims that were made as the recording writes them."""
        if not self.names:
            return value
        pattern = re.compile("|".join(map(re.escape, self.names)))
        return _rewritten(value, pattern, self.names)

    async def _finish(self, played: Played) -> Played:
        played.states = [self.renamed(state) for state in played.states]
        played.events = [tuple(self.renamed(each) for each in event) for event in played.events]
        return played


def _rewritten(value: JSON, pattern: re.Pattern[str], names: dict[str, str]) -> JSON:
    if isinstance(value, str):
        return pattern.sub(lambda match: names[match[0]], value)
    if isinstance(value, list):
        return [_rewritten(each, pattern, names) for each in value]
    if isinstance(value, dict):
        return {_rewritten(key, pattern, names): _rewritten(each, pattern, names) for key, each in value.items()}
    return value


def _claim_state(claim: Object) -> Object:
    metadata, status = claim["metadata"], claim.get("status") or {}
    allocation = status.get("allocation")
    if allocation is not None:
        allocation = {name: value for name, value in allocation.items() if name != "allocationTimestamp"}
    return {
        "generateName": metadata.get("generateName"),
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
        "owners": [
            {name: owner[name] for name in ("apiVersion", "kind", "name", "controller") if name in owner}
            for owner in metadata.get("ownerReferences") or ()
        ],
        "finalizers": metadata.get("finalizers") or [],
        "allocation": allocation,
        "reservedFor": [{**each, "uid": "<uid>"} for each in status.get("reservedFor") or ()],
        "deleting": bool(metadata.get("deletionTimestamp")),
    }


def _differences(scenario: Object, played: Played) -> Iterator[Difference]:
    losers = {event["name"] for event in scenario["events"] if LOST in event["message"]}
    for number, (want, got) in enumerate(zip(scenario["results"], played.states, strict=True), 1):
        yield from _pods(number, scenario, losers, want["pods"], got["pods"])
        yield from _groups(number, want["podGroups"], got["podGroups"])
        claims = {name: _written(each) for name, each in (want.get("resourceClaims") or {}).items()}
        ours = {name: _written(each) for name, each in got["resourceClaims"].items()}
        yield from value_differences(f"step {number}: resourceClaims", claims, ours)
        yield from _cycles(number, want.get("cycles") or [], played.cycles[number - 1], losers)


def _pods(step: int, scenario: Object, losers: set[str], want: Object, got: Object) -> Iterator[Difference]:
    """Of groups with losers it is luck which of the members get a place, and where: as many must."""
    group_of = {
        name_of(obj): (obj["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        for each in scenario["steps"]
        for obj in each
        if obj.get("kind") == "Pod" and "spec" in obj
    }
    lucky = {group_of[name] for name in losers} - {""}
    for name in sorted({*want, *got}):
        one, other = _sorted_claims(want.get(name)), _sorted_claims(got.get(name))
        if one is not None and other is not None and group_of[name] in lucky:
            one, other = _of_loser(one), _of_loser(other)
        yield from value_differences(f"step {step}: pods.{name}", one, other)
    for group in sorted(lucky):
        members = [name for name in want if group_of[name] == group]
        lost = sum("nodeName" not in want[name] and name in losers and _is_lost(want[name]) for name in members)
        placed, ours = (sum("nodeName" in state[name] for name in members if name in state) for state in (want, got))
        if not placed <= ours <= placed + lost:
            yield Difference(f"step {step}: placed[{group}]", placed, ours)


def _is_lost(state: Object) -> bool:
    """Whether the pod had not come back yet when the state was read."""
    return LOST in ((state.get("condition") or {}).get("message") or "")


def _of_loser(state: Object) -> Object:
    return {name: value for name, value in state.items() if name not in ("nodeName", "condition", "nominatedNodeName")}


def _sorted_claims(state: Object | None) -> Object | None:
    """The order in which claims appear in a status is not fixed."""
    if state is None or "resourceClaimStatuses" not in state:
        return state
    claims: list[Object] = state["resourceClaimStatuses"]
    return {**state, "resourceClaimStatuses": sorted(claims, key=lambda each: str(each["name"]))}


def _written(claim: Object) -> Object:
    found = {name: claim.get(name) for name in _OF_CLAIMS}
    consumers: list[Object] = claim["reservedFor"]
    found["reservedFor"] = sorted(consumers, key=lambda each: (str(each["resource"]), str(each["name"])))
    return found


def _groups(step: int, want: Object, got: Object) -> Iterator[Difference]:
    for name in sorted({*want, *got}):
        one, other = _sorted_claims(want.get(name)), _sorted_claims(got.get(name))
        if one is not None and other is not None:
            fields = ("conditions", "resourceClaimStatuses")
            one, other = ({field: each.get(field) or [] for field in fields} for each in (one, other))
        yield from value_differences(f"step {step}: podGroups.{name}", one, other)


def _cycles(step: int, want: Sequence[Object], got: Sequence[Object], losers: set[str]) -> Iterator[Difference]:
    """The results of the cycles that are no luck come in the same order; others may be between them.

    Luck are cycles in which losers came back, and those that found nobody to try (see `races` in group_states).
    """
    recorded = [
        (_root(each), each["result"])
        for at, each in enumerate(want)
        if each.get("result") and each.get("order") and not (at and losers & set(each["order"]))
    ]
    ours = iter((_root(each), each["results"]) for each in got)
    for group, result in recorded:
        if not any(group == other and result in results for other, results in ours):
            yield Difference(f"step {step}: cycles[]", list(want), list(got))
            return


def _root(cycle: Object) -> str:
    root: str = cycle["podGroup"].rpartition(" ")[2]
    return root


def _recognises(line: Object) -> bool:
    """Runs of groups with claims for devices."""
    kinds = {obj.get("kind") for step in line.get("steps") or () for obj in step if isinstance(obj, dict)}
    return {"steps", "results", "events", "family"} <= line.keys() and "DeviceClass" in kinds


KIND = Kind("device groups", _recognises, lambda line: str(line["family"]), run)
