"""Recorded runs of groups with kube-scheduler, replayed on the embedded server under virtual time by its rules.

What upstream leaves to chance (ties, the order in which members arrive, which placement is tried first) is taken from
the recording where that is one of our choices, so that the run goes on from the recorded choice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Iterable, Sequence

from following import Follower, phases
from group_states import (
    Played,
    differences,
    event_texts,
    group_states,
    pod_states,
    said_in_other_runs,
    same_cycle,
)
from group_varying import vary
from outcome import Difference, Kind, Outcome

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.resource import (
    COMPOSITE_POD_GROUPS,
    EVENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import Release, ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from muster.clock import VirtualClock, run_virtual
from muster.engine.upstream.model import Trace
from muster.scheduler.options import PlacementMode, SchedulerOptions
from muster.scheduler.service import Scheduler

NAMESPACE = "default"
PRIORITIES = {"neg": -10, "low": 10, "mid": 100, "high": 1000, "never": 1000}
DAY_S = 86_400.0
QUIET_S = 3.0
"""The recorder read a state after two quiet seconds."""

MOST_VARIANTS = 4
"""So many orders of placements are tried: which of them is reported first is chance."""

LOGGER = "muster.scheduler.telling"


def run(lines: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """Replay scenarios, each on a cluster of its own."""
    for line in lines:
        yield run_scenario(line if seed is None else vary(line, seed), str(line["id"]))


def run_scenario(scenario: Object, unit: str, placement: PlacementMode | None = None) -> Outcome:
    """Replay one scenario, with each placement tried first in turn, and take the run that is nearest."""
    found: list[Difference] = []
    said: set[tuple[str, ...]] = set()
    for variant in range(MOST_VARIANTS):
        try:
            played = play(scenario, variant, placement)
            said |= set(played.events)
            other = differences(scenario, played)
        except Exception as error:  # one scenario that breaks something must not hide the others
            other = [Difference("replay", "ends", "".join(traceback.format_exception(error)))]
        if not variant or len(other) < len(found):
            found = other
        if not found or not _has_placements(scenario):
            break
    found = [each for each in found if not said_in_other_runs(each, said)]
    return Outcome(unit, str(scenario["family"]), tuple(found))


def _has_placements(scenario: Object) -> bool:
    return any("placements" in cycle for result in scenario["results"] for cycle in result.get("cycles") or ())


def release_of(scenario: Object) -> Release:
    """The release by whose API the groups of a scenario were written."""
    versions = {obj.get("apiVersion") for step in scenario["steps"] for obj in step if obj.get("kind") == "PodGroup"}
    return "1.36" if "scheduling.k8s.io/v1alpha2" in versions else "1.37"


def play(scenario: Object, variant: int = 0, placement: PlacementMode | None = None) -> Played:
    """Play all steps."""
    return run_virtual(lambda clock: Play(scenario, clock, variant, placement).run())


class Play:
    """One replay on a cluster of its own."""

    def __init__(self, scenario: Object, clock: VirtualClock, variant: int, placement: PlacementMode | None) -> None:
        self.scenario, self.clock = scenario, clock
        self.release = release_of(scenario)
        rng = random.Random(1)
        server = ApiServer(MemoryStore(), clock, rng, ServerOptions(emulate=self.release, job_groups="off"))
        self.client = Client(InProcessTransport(server))
        self.follower = Follower(scenario, variant)
        by_release: PlacementMode = "upstream-1.36" if self.release == "1.36" else "upstream-1.37"
        options = SchedulerOptions(
            placement=placement or by_release, choices=self.follower, say_why_held=False, strict_order=True
        )
        self.scheduler = Scheduler(self.client, clock, rng, options)
        self.log = _CycleLog(self.follower)
        self.running: dict[str, None] = {}
        self.played = Played()

    async def run(self) -> Played:
        """Play all steps."""
        await self.clock.sleep(DAY_S)  # pods of recordings have run for hours
        await self._prepare()
        task = asyncio.get_running_loop().create_task(self.scheduler.run())
        logger = logging.getLogger(LOGGER)
        level = logger.level
        logger.addHandler(self.log)
        logger.setLevel(logging.INFO)
        try:
            await self.clock.sleep(1.0)
            for number, step in enumerate(self.scenario["steps"]):
                await self._step(number, step)
                if task.done():
                    task.result()
        finally:
            logger.removeHandler(self.log)
            logger.setLevel(level)
            task.cancel()
        listing = await self.client.list(EVENTS)
        self.played.events = event_texts(listing.items, self._names())
        return await self._finish(self.played)

    async def _finish(self, played: Played) -> Played:
        return played

    async def _prepare(self) -> None:
        for name, value in PRIORITIES.items():
            policy = {"preemptionPolicy": "Never"} if name == "never" else {}
            obj = {**_named("scheduling.k8s.io/v1", "PriorityClass", name), "value": value, **policy}
            await self.client.create(PRIORITY_CLASSES, None, obj)

    async def _step(self, number: int, step: list[Object]) -> None:
        self.follower.begin(number)
        self.log.cycles = []
        for phase in phases(step, self.scenario["results"][number], self.release):
            for obj in phase:
                await self._create(obj)
            await self.clock.sleep(QUIET_S)
        self.played.cycles.append(self.log.cycles)
        self.played.states.append(await self._state())

    async def _create(self, obj: Object) -> None:
        if "do" in obj:
            assert obj["do"] == "removeSchedulingGates", obj
            await self.client.patch(PODS, NAMESPACE, obj["pod"], {"spec": {"schedulingGates": None}}, type_=MERGE_PATCH)
            return
        resource = _resource(obj)
        namespace = NAMESPACE if resource.namespaced else None
        name = name_of(obj)
        await self.client.create(resource, namespace, obj)
        if resource is NODES:
            await self.client.patch(
                NODES, None, name, {"spec": {"taints": obj["spec"].get("taints") if "spec" in obj else None}}
            )
        if obj.get("status"):
            patch = {"status": obj["status"]}
            await self.client.patch(resource, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")
        if resource is PODS and obj["spec"].get("nodeName"):
            self.running[name] = None

    def _names(self) -> frozenset[str]:
        return frozenset(name_of(obj) for step in self.scenario["steps"] for obj in step if "metadata" in obj)

    async def _state(self) -> Object:
        pods = {name_of(pod): pod for pod in (await self.client.list(PODS, NAMESPACE)).items}
        groups = (await self.client.list(_groups(self.release), NAMESPACE)).items
        state: Object = {
            "pods": pod_states([pod for name, pod in pods.items() if name not in self.running]),
            "podGroups": group_states(groups),
            "evicted": sorted(name for name in self.running if name not in pods),
        }
        if self.release == "1.37":
            composites = (await self.client.list(COMPOSITE_POD_GROUPS, NAMESPACE)).items
            state["compositePodGroups"] = group_states(composites)
        return state


class _CycleLog(logging.Handler):
    """Takes the cycles from the scheduler's log and tells the follower where it is."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(logging.INFO)
        self.cycles: list[Object] = []
        self._follower = follower

    def emit(self, record: logging.LogRecord) -> None:
        trace, root = getattr(record, "cycle", None), getattr(record, "root", "")
        if isinstance(trace, Trace):
            cycle = _cycle(root, trace)
            if not self.cycles or not same_cycle(self.cycles[-1], cycle):
                self.cycles.append(cycle)
                self._follower.next_cycle(root)


def _cycle(root: str, trace: Trace) -> Object:
    found: Object = {"podGroup": root, "results": list(trace.results.values())}
    if trace.runs:
        found["runs"] = trace.runs
    if trace.order:
        found["order"] = [_short(pod) for pod in trace.order]
    if placements := {name for name in trace.placements if name}:
        found["placements"] = sorted(placements)
    if trace.scores:
        found["scores"] = trace.scores
    if root.startswith("compositepodgroup"):
        found["tree"] = [[kind, _short(key)] for kind, key in trace.tree]
    return found


def _short(key: str) -> str:
    return key.partition("/")[2]


def _named(api_version: str, kind: str, name: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def _groups(release: Release) -> Resource:
    version = "v1alpha2" if release == "1.36" else "v1beta1"
    return Resource("scheduling.k8s.io", version, "podgroups", "PodGroup")


def _resource(obj: Object) -> Resource:
    if obj["kind"] == "PodGroup":
        return Resource("scheduling.k8s.io", obj["apiVersion"].partition("/")[2], "podgroups", "PodGroup")
    return {each.kind: each for each in (NODES, PODS, POD_DISRUPTION_BUDGETS, COMPOSITE_POD_GROUPS)}[obj["kind"]]


def _recognises(line: Object) -> bool:
    """Runs of groups without claims for devices."""
    kinds = {obj.get("kind") for step in line.get("steps") or () for obj in step if isinstance(obj, dict)}
    return {"steps", "results", "events", "family"} <= line.keys() and "DeviceClass" not in kinds


KIND = Kind("groups", _recognises, lambda line: str(line["family"]), run)
