"""Recorded runs of kube-controller-manager's controllers, replayed on the embedded server under virtual time."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compare import differences
from msgspec.structs import replace
from naming import Names
from outcome import Difference, Kind, Outcome
from playing import Player
from states import WRITERS, Writer, sort_key, write_events
from states_apps import APPS_WRITERS
from varying import vary

from muster.api.codec import Object
from muster.api.meta import has_condition, is_deleting, name_of
from muster.api.resource import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions, NodeLifecycleOptions
from muster.controllers.registry import CONTROLLERS, ControllerService

CRON_WAIT_S = 130.0
"""So long at most a recorded action of a CronJob is waited for."""

TIMING_TOLERANCE_S = 3.5
"""The recorder looked now and then, and its clock started with the step."""

ROOT_CA = "kube-root-ca.crt"
"""A ConfigMap that another controller makes in every namespace: recordings leave it out, but quotas count it."""

NO_NEW_POD_S = 14.0
"""So long the recorder waited before it wrote that no new pod came."""

ZONES = {"n1": "zone-a", "n2": "zone-a", "n3": "zone-b", "n4": "zone-b", "n5": "zone-c", "n6": ""}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What ran when a scenario was recorded."""

    controllers: frozenset[str]
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Names and zones of the nodes that are always there."""
    server: ServerOptions = field(default_factory=lambda: ServerOptions(emulate="1.36", job_groups="off"))
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(job_groups="off"))


ALL_WRITERS: dict[str, tuple[Resource, Writer]] = {**APPS_WRITERS, **WRITERS}

_ALWAYS = frozenset(
    {
        "cronjob-controller",
        "daemonset-controller",
        "deployment-controller",
        "disruption-controller",
        "endpoints-controller",
        "endpointslice-controller",
        "endpointslice-mirroring-controller",
        "garbage-collector-controller",
        "job-controller",
        "namespace-controller",
        "persistentvolumeclaim-protection-controller",
        "pod-garbage-collector-controller",
        "replicaset-controller",
        "resourcequota-controller",
        "statefulset-controller",
        "taint-eviction-controller",
        "ttl-after-finished-controller",
    }
)

CLUSTERS: dict[str, Cluster] = {
    "default": Cluster(_ALWAYS, ZONES),
    "workloads": Cluster(
        _ALWAYS | {"podgroup-protection-controller"},
        {name: zone for name, zone in ZONES.items() if zone},
        ServerOptions(emulate="1.36", job_groups="1.36"),
        ControllerOptions(job_groups="1.36"),
    ),
    "nodelifecycle": Cluster(
        _ALWAYS | {"node-lifecycle-controller"},
        options=ControllerOptions(
            job_groups="off",
            node_lifecycle=NodeLifecycleOptions(
                monitor_period_s=1.0, monitor_grace_period_s=8.0, startup_grace_period_s=8.0, eviction_rate=10.0
            ),
        ),
    ),
}


def run(lines: Sequence[Object], seed: int | None) -> Iterable[Outcome]:
    """Replay scenarios, each on a cluster of its own."""
    for line in lines:
        yield run_scenario(line if seed is None else vary(line, seed), str(line["id"]))


def run_scenario(scenario: Object, unit: str) -> Outcome:
    """Replay one scenario and compare all its states."""
    try:
        found = run_virtual(lambda clock: _Replay(scenario, clock).run())
    except Exception as error:  # one scenario that breaks something must not hide the others
        found = [Difference("replay", "ends", "".join(traceback.format_exception(error)))]
    return Outcome(unit, scenario["family"], tuple(found), _facts(scenario))


def _facts(scenario: Object) -> Object:
    gangs = [
        len(action["create"]["metadata"]["name"])
        for step in scenario["steps"]
        for action in step["do"]
        if isinstance(action, dict) and isinstance(action.get("create"), dict) and action["create"]["kind"] == "Job"
    ]
    return {"longest_gang_name": max(gangs, default=0)}


class _Replay:
    """One scenario on one cluster."""

    def __init__(self, scenario: Object, clock: VirtualClock) -> None:
        self.scenario = scenario
        self.clock = clock
        self.cluster = CLUSTERS[scenario["cluster"]]
        nodes = {scenario.get("nodes", {}).get(name, name): zone for name, zone in self.cluster.nodes.items()}
        if scenario["cluster"] == "nodelifecycle" and "exclusive" not in scenario["id"]:
            nodes["elsewhere"] = "zone-elsewhere"  # scenarios ran side by side: nodes of others lived
        self.nodes = nodes
        rng = random.Random(1)
        self.server = ApiServer(MemoryStore(), clock, rng, self.cluster.server)
        self.client = Client(InProcessTransport(self.server))
        self.names = Names("ns-under-test")
        self.player = Player.of(self.client, clock, self.names)
        self.player.default_node = scenario.get("nodes", {}).get("n1", "n1")
        names = [name for name in self.cluster.controllers if name in CONTROLLERS]
        options = replace(self.cluster.options, removal_tie=self._removal_tie)
        self.controllers = ControllerService(self.client, clock, rng, options, names)
        self.recorded: Object = {}
        self.told: set[str] = set()
        self.kinds = {kind for state in scenario["states"] for kind in state}

    async def run(self) -> list[Difference]:
        """Play all steps; the differences."""
        await self._prepare()
        loop = asyncio.get_running_loop()
        player = self.player
        informers = (*player.named, player.pods, player.node_objects)
        running = (self.controllers.run(), *(informer.run() for informer in informers), player.nodes.run())
        tasks = [loop.create_task(coroutine) for coroutine in running]
        await self.clock.sleep(1.0)
        if self.scenario["family"] == "cronjob":
            await self.clock.sleep(62.0 - self.clock.now() % 60)  # they began when a minute had just begun
        found: list[Difference] = []
        for number, (step, state) in enumerate(zip(self.scenario["steps"], self.scenario["states"], strict=True), 1):
            try:
                found += await self._step(number, step, state)
            except NotImplementedError as missing:
                return [*found, Difference(f"step {number}", "played", f"cannot be played: {missing}")]
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        return found

    def _removal_tie(self, pod: Object) -> int:
        """Among equal pods those go first that went in the recording; which ones is not fixed by a rule."""
        name = self.names.write_text(name_of(pod))
        return int(any(entry["name"] == name and not entry.get("deleting") for entry in self.recorded.get("Pod") or ()))

    async def _prepare(self) -> None:
        await self.client.create(
            NAMESPACES,
            None,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.names.namespace}},
        )
        await self.client.create(CONFIG_MAPS, self.names.namespace, _config_map(ROOT_CA))
        for name, zone in self.nodes.items():
            await self.client.create(NODES, None, _node(name, zone))
            await self.client.patch(NODES, None, name, {"status": _node(name, zone)["status"]}, subresource="status")
            await self.client.patch(NODES, None, name, {"spec": {"taints": None}})
            if self.cluster.options.node_lifecycle != NodeLifecycleOptions():
                await self.player.nodes.live(name)

    async def _step(self, number: int, step: Object, state: Object) -> list[Difference]:
        self.recorded = state
        start, seen = self.clock.now(), set(self.player.pods.objects)
        self.player.recorded, self.player.note = state, step.get("note") or ""
        await self.player.finish_what_is_gone(step["do"])
        for action in step["do"]:
            await self.player.play(action)
        await self._await_cron_jobs(state)
        found = [Difference(f"step {number}: {d.path}", d.want, d.got) for d in self.player.differences]
        self.player.differences.clear()
        found += [
            Difference(f"step {number}: timing.{name}", values, got)
            for name, values in (state.get("timing") or {}).items()
            if (got := await self._timing(name, values, start, seen, state)) is not None
        ]
        await self.clock.sleep(step["settle_s"])
        varying = frozenset(self.scenario.get("varies") or ())
        return found + differences(number, state, await self._state(), varying)

    async def _await_cron_jobs(self, state: Object) -> None:
        """Wait, as the recorder did, for what CronJobs do at the next minute."""
        wanted = {event["reason"] for event in state.get("events") or () if event["kind"] == "CronJob"}
        until = self.clock.now() + CRON_WAIT_S
        while wanted and self.clock.now() < until:
            fresh = [event for event in (await self.client.list(EVENTS)).items if name_of(event) not in self.told]
            wanted -= {event["reason"] for event in fresh if event["involvedObject"]["kind"] == "CronJob"}
            await self.clock.sleep(0.5)

    async def _timing(
        self, name: str, values: list[float | None], start: float, seen: set[str], state: Object
    ) -> float | str | None:
        """Wait as the recorder did; what was measured, if it is not as recorded."""
        happened = {
            "seconds_until_unknown": self._is_unknown,
            "seconds_until_eviction": lambda: self._are_evicted(state),
            "seconds_until_pod_failed": lambda: self._has_failed(seen),
        }.get(name)
        if happened is not None:
            return await self._wait_until(happened, [value for value in values if value is not None], start)
        if not name.endswith(("new_pod", "new_pods")):
            return None
        if None in values:
            await self.clock.sleep(NO_NEW_POD_S)
            return "a new pod" if set(self.player.pods.objects) - seen else None
        numbers = [value for value in values if value is not None]
        until = start + max(numbers) + TIMING_TOLERANCE_S
        while not set(self.player.pods.objects) - seen and self.clock.now() < until:
            await self.clock.sleep(0.1)
        fresh = [pod for key, pod in self.player.pods.objects.items() if key not in seen]
        if not fresh:
            return "no new pod"
        created = min(self.player.appeared[name_of(pod)] for pod in fresh) - start
        return None if min(numbers) - TIMING_TOLERANCE_S <= created <= until - start else round(created, 1)

    async def _wait_until(self, happened: Callable[[], bool], numbers: list[float], start: float) -> float | str | None:
        """Wait for what the recorder waited for; what was measured, if it is not as recorded."""
        until = start + max(numbers) + TIMING_TOLERANCE_S
        while not happened():
            if self.clock.now() > until:
                return "never"
            await self.clock.sleep(0.1)
        took = self.clock.now() - start
        return None if took >= min(numbers) - TIMING_TOLERANCE_S else round(took, 1)

    def _is_unknown(self) -> bool:
        nodes = self.player.node_objects.objects.values()
        return any(has_condition(node, "Ready", "Unknown") for node in nodes)

    def _are_evicted(self, state: Object) -> bool:
        wanted = [self.names.real(pod["name"]) for pod in state.get("Pod") or () if pod.get("deleting")]
        pods = [self.player.pods.objects.get(f"{self.names.namespace}/{name}") for name in wanted]
        return all(pod is None or is_deleting(pod) for pod in pods)

    def _has_failed(self, seen: set[str]) -> bool:
        pods = [self.player.pods.objects.get(key) for key in seen]
        return any(pod is None or pod["status"].get("phase") == "Failed" for pod in pods)

    async def _state(self) -> Object:
        """The state of the namespace as a recording writes it."""
        state: Object = {}
        for kind, (resource, write) in ALL_WRITERS.items():
            if not resource.namespaced and kind not in self.kinds:
                continue
            if resource.group == "scheduling.k8s.io" and self.cluster.options.job_groups == "off":
                continue
            listing = await self.client.list(resource, self.names.namespace if resource.namespaced else None)
            for obj in listing.items:
                self.names.see(obj)
            objects = [obj for obj in listing.items if self._counts(kind, obj)]
            if objects:
                state[kind] = sorted((self.names.write(write(obj)) for obj in objects), key=sort_key)
            elsewhere = f"other namespace: {kind}"
            if elsewhere in self.kinds:
                others = (await self.client.list(resource, f"{self.names.namespace}-other")).items
                state[elsewhere] = sorted((self.names.write(write(obj)) for obj in others), key=sort_key)
        state["events"] = await self._new_events()
        return state

    def _counts(self, kind: str, obj: Object) -> bool:
        if kind == "Namespace":
            return name_of(obj) == self.names.namespace
        if kind == "ConfigMap":
            return name_of(obj) != ROOT_CA
        return kind != "Node" or name_of(obj) not in self.nodes

    async def _new_events(self) -> list[Object]:
        listing = await self.client.list(EVENTS)
        fresh = [event for event in listing.items if name_of(event) not in self.told]
        self.told |= {name_of(event) for event in fresh}
        about_us = [event for event in fresh if event["involvedObject"].get("name") not in self.nodes]
        return write_events(about_us, self.names)


def _config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def _node(name: str, zone: str) -> Object:
    labels = {"kubernetes.io/hostname": name, **({"topology.kubernetes.io/zone": zone} if zone else {})}
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _recognises(line: Object) -> bool:
    return {"steps", "states", "cluster", "family"} <= line.keys()


KIND = Kind("controllers", _recognises, lambda line: str(line["family"]), run)
