"""One agent that plays the kubelet of every simulated node: it runs their pods, in time only, and keeps them ready.

It watches nodes and pods; a pod bound to one of its nodes gets a life (`stages`), whose every step is written as pod
status. A pod that is being deleted is stopped and then removed. It knows nothing of schedulers and controllers.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, name_of
from muster.api.resource import NODES, PODS
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.informer import Change, Informer
from muster.client.transport import STRATEGIC_MERGE_PATCH, ClientError
from muster.clock import Clock, wait
from muster.nodes import stages
from muster.nodes.barriers import Barriers
from muster.nodes.leases import LEASE_S, NodeLeases
from muster.nodes.spec import completed, healthy_conditions, is_complete
from muster.nodes.stages import NEGLIGIBLE_S, Kind, Life, Stages, load_stages
from muster.nodes.status import resources_of
from muster.nodes.writer import ENDED_PHASES, PodWriter, Run, SimulatedNode, Spawner

logger = logging.getLogger(__name__)

FAIL = "sim.muster-k8s.dev/fail"
"""Annotation of a node whose machine is to fail while it says `true`."""


class NodeAgent:
    """Runs the pods of all nodes that `simulates` accepts (default: every node)."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        lease_client: Client | None = None,
        simulates: Callable[[Object], bool] = lambda node: True,
        recorder: EventRecorder | None = None,
        lease_s: int = LEASE_S,
        data: Stages | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._simulates = simulates
        self._recorder = recorder
        self._data = data if data is not None else load_stages()
        self._leases = NodeLeases(lease_client if lease_client is not None else client, clock, lease_s)
        self._tasks = Spawner()
        self._writer = PodWriter(client, clock, self._data, self._tasks)
        self._pods = Informer(client, clock, PODS)
        self._node_informer = Informer(client, clock, NODES)
        self._nodes: dict[str, SimulatedNode] = {}
        self._waiting: dict[str, dict[str, Object]] = {}
        self._runs: dict[str, Run] = {}
        self._barriers = Barriers()
        self._timers: list[tuple[float, int, Run, Life]] = []
        self._sequence = 0
        self._waits_until: float | None = None
        self._wake = asyncio.Event()
        self._addresses = 0

    async def run(self) -> None:
        """Work until cancelled."""
        self._node_informer.add_handler(self._on_nodes)
        self._pods.add_handler(self._on_pods)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._node_informer.run(), name="nodes: node informer")
                group.create_task(self._pods.run(), name="nodes: pod informer")
                group.create_task(self._leases.run(), name="nodes: leases")
                group.create_task(self._run_timers(), name="nodes: timers")
        finally:
            self._tasks.cancel()

    # Nodes

    async def stop_node(self, name: str) -> None:
        """The node dies: nothing on it goes on, nobody speaks for it, its lease runs out as a real one would."""
        node = self._nodes.get(name)
        if node is None or not node.up:
            return
        await self._leases.shorten(name)
        node.up = False
        now = self._clock.now()
        for run in node.runs.values():
            self._leave_barrier(run, now)
            self._set_life(run, stages.freeze(run.life, now))

    async def start_node(self, name: str) -> None:
        """The node comes back after it was stopped; what ran on it is lost and, where the pod says so, begins anew."""
        node = self._nodes.get(name)
        if node is None or node.up:
            return
        node.up = True
        await self._leases.hold(node.object)
        await self._write_node(name)
        for run in list(node.runs.values()):
            now = self._clock.now()
            self._change(run, stages.lose(run.plan, self._data, run.life, now), now)
            if run.dirty:  # it ended just before the node died
                self._writer.write(run)
            self._consider(run.pod)
        self._take_waiting(name)

    def _on_nodes(self, changes: list[Change]) -> None:
        for change in changes:
            name = name_of(change.object)
            if change.new is None:
                self._drop_node(name)
            elif name in self._nodes:
                before, self._nodes[name].object = self._nodes[name].object, change.new
                if _is_to_fail(before) != _is_to_fail(change.new):
                    act = self.stop_node if _is_to_fail(change.new) else self.start_node
                    self._tasks.spawn(act(name), f"nodes: machine of {name}")
            elif self._simulates(change.new):
                self._take_node(change.new)

    def _take_node(self, obj: Object) -> None:
        name = name_of(obj)
        node = SimulatedNode(obj, _address_of(obj) or self._new_host_address())
        self._nodes[name] = node
        self._tasks.spawn(self._begin(obj), f"nodes: lease {name}")
        if not is_complete(obj):
            self._tasks.spawn(self._write_node(name), f"nodes: status {name}")
        self._take_waiting(name)

    async def _begin(self, obj: Object) -> None:
        """Speak for a new node, unless its machine is to have failed."""
        await self._leases.hold(obj)
        if _is_to_fail(obj):
            await self.stop_node(name_of(obj))

    def _take_waiting(self, name: str) -> None:
        for pod in self._waiting.pop(name, {}).values():
            self._consider(pod)

    def _drop_node(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is None:
            return
        self._leases.drop(name)
        for key, run in list(node.runs.items()):
            self._waiting.setdefault(name, {})[key] = run.pod
            self._forget(run)

    async def _write_node(self, name: str) -> None:
        """Fill in what a kubelet says about its node, and that it is ready."""
        node = self._nodes[name].object
        status = completed(node, self._clock.now())["status"]
        status["conditions"] = healthy_conditions(self._clock.now())
        patch = {"status": {key: status[key] for key in ("capacity", "allocatable", "conditions", "nodeInfo")}}
        try:
            await self._client.patch(NODES, None, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")
        except ClientError as error:
            logger.warning("node status not written", extra={"node": name, "error": str(error)})

    # Pods

    def _on_pods(self, changes: list[Change]) -> None:
        for change in changes:
            if change.new is None:
                self._lose_pod(change.object)
            elif change.new["spec"].get("nodeName"):
                self._consider(change.new)

    def _lose_pod(self, pod: Object) -> None:
        key = key_of(pod)
        self._waiting.get(pod["spec"].get("nodeName", ""), {}).pop(key, None)
        run = self._runs.get(key)
        if run is not None:
            self._forget(run)

    def _consider(self, pod: Object) -> None:
        """A bound pod appeared or changed."""
        key = key_of(pod)
        name = pod["spec"]["nodeName"]
        node = self._nodes.get(name)
        run = self._runs.get(key)
        if node is None or (run is None and not node.up):
            self._waiting.setdefault(name, {})[key] = pod
            return
        if run is None:
            run = self._start(pod, node)
        is_resized = resources_of(run.pod) != resources_of(pod)
        run.pod = pod
        if is_resized and node.up and run.life.kind is not Kind.ENDED:
            self._writer.write(run)
        if (pod.get("status") or {}).get("phase") in ENDED_PHASES and run.life.kind is not Kind.ENDED:
            self._end_silently(run)  # somebody else (pod garbage collection) said that it ended
        if is_deleting(pod) and node.up:
            now = self._clock.now()
            self._change(run, stages.terminate(run.plan, self._data, run.life, now), now)
            if run.life.kind is Kind.ENDED and not run.is_removed:
                self._writer.write(run)

    def _start(self, pod: Object, node: SimulatedNode) -> Run:
        now = self._clock.now()
        status = pod.get("status") or {}
        plan = stages.plan_of(pod, self._data)
        owner = controller_of(pod)
        ip = self._address_for(status.get("podIP"))
        life = Life(Kind.ENDED, 0, None, None, began=now)
        run = Run(pod, node, plan, life, ip, str(owner.get("uid", "")) if owner else "")
        self._runs[key_of(pod)] = node.runs[key_of(pod)] = run
        if status.get("phase") not in ENDED_PHASES:
            adopted = stages.adopt(plan, self._data, pod, now) if status.get("containerStatuses") else None
            if adopted is not None:
                self._enter(run, adopted, now)  # the server knows all that there is to say
            else:
                self._report_invalid(run)
                self._change(run, stages.begin(plan, self._data, now), now)
        return run

    def _end_silently(self, run: Run) -> None:
        self._leave_barrier(run, self._clock.now())
        self._set_life(run, Life(Kind.ENDED, 0, None, None, began=run.life.began))

    def _forget(self, run: Run) -> None:
        key = key_of(run.pod)
        self._end_silently(run)
        run.is_removed = True
        del self._runs[key]
        run.node.runs.pop(key, None)

    def _change(self, run: Run, life: Life, now: float) -> None:
        """Give a pod a new life: its barrier, its timer and its status follow."""
        before = run.life
        if life is before:
            return
        self._enter(run, life, now)
        self._emit(run, before)
        self._writer.write(run)

    def _enter(self, run: Run, life: Life, now: float) -> None:
        """Give a pod a new life; its barrier and its timer follow."""
        before = run.life
        here, there = (stages.waits_at(run.plan, self._data, each) for each in (before, life))
        if here is not None and here != there:
            self._leave_barrier(run, now, ended_well=life.kind is Kind.ENDED and life.exit_code == 0)
        self._set_life(run, life)
        if there is not None:
            self._barriers.join(there, key_of(run.pod), run.owner)
            self._settle(run, now)

    def _leave_barrier(self, run: Run, now: float, *, ended_well: bool = False) -> None:
        barrier = stages.waits_at(run.plan, self._data, run.life)
        if barrier is not None:
            self._barriers.leave(barrier, key_of(run.pod), ended_well=ended_well)
            self._settle(run, now)

    def _settle(self, run: Run, now: float) -> None:
        """Let the time of every pod at this pod's barrier count or not, as it now stands."""
        assert run.plan.barrier is not None
        for key in self._barriers.members(run.plan.barrier):
            member = self._runs[key]
            assert member.plan.barrier is not None
            counts = self._barriers.is_open(member.plan.barrier, member.owner)
            life = stages.resume(member.life, now) if counts else stages.freeze(member.life, now)
            if life is not member.life:
                self._set_life(member, life)

    def _new_host_address(self) -> str:
        number = len(self._nodes) + 1
        return f"172.{16 + (number >> 16 & 15)}.{number >> 8 & 255}.{number & 255}"

    def _address_for(self, present: str | None) -> str:
        """The address that a pod has, or a new one above all that any pod had."""
        if present:
            octets = present.split(".")
            if octets[0] == "10" and len(octets) == 4 and all(each.isdecimal() for each in octets):
                number = int(octets[1]) << 16 | int(octets[2]) << 8 | int(octets[3])
                self._addresses = max(self._addresses, number)
            return present
        self._addresses += 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    # Time

    def _set_life(self, run: Run, life: Life) -> None:
        old, new = run.life.deadline, life.deadline
        run.life = life
        if new is not None:
            self._sequence += 1
            heapq.heappush(self._timers, (new, self._sequence, run, life))
        ends_sooner = new is not None and (self._waits_until is None or new < self._waits_until)
        if ends_sooner or (old is not None and old == self._waits_until):
            self._wake.set()

    async def _run_timers(self) -> None:
        while True:
            now = self._clock.now()
            self._expire(now)
            self._wake.clear()
            self._drop_stale_timers()
            self._waits_until = self._timers[0][0] if self._timers else None
            await wait(self._clock, self._wake, None if self._waits_until is None else self._waits_until - now)

    def _drop_stale_timers(self) -> None:
        while self._timers and self._timers[0][2].life is not self._timers[0][3]:
            heapq.heappop(self._timers)

    def _expire(self, now: float) -> None:
        """Advance all pods whose stage is over. They are found first, because one that ends can stop the time of others
        whose time was up as well."""
        due: list[Run] = []
        while self._timers and self._timers[0][0] <= now + NEGLIGIBLE_S:
            _, _, run, life = heapq.heappop(self._timers)
            if run.life is life:
                due.append(run)
        for run in due:
            self._change(run, stages.advance(run.plan, self._data, run.life, now), now)

    # Events

    def _emit(self, run: Run, before: Life) -> None:
        life = run.life
        starts = life.started is not None and life.started != before.started
        stops = life.kind is Kind.TERMINATING or (life.kind is Kind.ENDED and is_deleting(run.pod))
        for container in run.pod["spec"]["containers"]:
            if starts:
                self._record(run, "Normal", "Started", f"Started container {container['name']}")
            if stops:
                self._record(run, "Normal", "Killing", f"Stopping container {container['name']}")

    def _report_invalid(self, run: Run) -> None:
        for annotation in run.plan.invalid:
            text = f"annotation {annotation} is ignored: its value has no meaning"
            self._record(run, "Warning", "InvalidAnnotation", text)

    def _record(self, run: Run, type_: str, reason: str, message: str) -> None:
        if self._recorder is not None:
            # objects out of a list carry neither kind nor apiVersion
            self._recorder.record({"apiVersion": "v1", "kind": "Pod", **run.pod}, type_, reason, message)


def _address_of(node: Object) -> str:
    for entry in (node.get("status") or {}).get("addresses") or ():
        if entry.get("type") == "InternalIP":
            return str(entry.get("address", ""))
    return ""


def _is_to_fail(node: Object) -> bool:
    return (node["metadata"].get("annotations") or {}).get(FAIL) == "true"
