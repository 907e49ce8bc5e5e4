"""The scheduler as a service: watch, decide, bind, tell. All decisions are the core's; here is what waits and writes.

Everything it knows comes from the API, so a restart loses nothing: members that were bound before count as scheduled,
the others are decided again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from muster.api.meta import key_of, uid_of
from muster.api.resource import (
    COMPOSITE_POD_GROUPS,
    JOBS,
    KUEUE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    WORKLOADS,
    Resource,
)
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.informer import Change
from muster.clock import Clock, wait
from muster.engine.devices.demand import pod_claims
from muster.engine.devices.view import IN_FLIGHT
from muster.engine.objects import RESOURCE_CLAIM
from muster.engine.preemption.model import NoPlan, Plan
from muster.scheduler.apart import Answer, Apart
from muster.scheduler.binder import Binder, BindRequest, Commit
from muster.scheduler.core import SchedulerCore
from muster.scheduler.cycle import SCHEDULER_ERROR, UNSCHEDULABLE, Rejection, Verdict
from muster.scheduler.devices.binder import DeviceBinder
from muster.scheduler.devices.writing import is_in_the_way
from muster.scheduler.members import scheduler_name_of
from muster.scheduler.metrics import SchedulerMetrics
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.preemption.apart import Planning
from muster.scheduler.preemption.evicting import Eviction, Evictor
from muster.scheduler.provisioning.asking import Asking
from muster.scheduler.provisioning.requester import Requester
from muster.scheduler.repair import NOT_WHOLE, Repairs, is_rejection
from muster.scheduler.report import Reporter
from muster.scheduler.telling import Teller
from muster.scheduler.undoing import Undoer
from muster.scheduler.volumes.binder import VolumeBinder
from muster.scheduler.watches import OBSERVED, Watches

logger = logging.getLogger(__name__)

AHEAD_S = 0.25
"""So long at most decisions wait for bindings before them: a server that does not answer holds nobody up."""
STAND_BY_S = 1.0
"""How often one that does not lead takes over what its watches brought."""
DRAIN_PAUSE_S = 0.05
OF_VOLUMES = frozenset({PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, NODES, PODS})
"""What pods that wait for their volumes look at."""
OF_DEVICES = frozenset({RESOURCE_CLAIMS, NODES, PODS})
"""What pods that wait for their devices look at."""


class Scheduler:
    """Places pods and groups of pods on nodes until cancelled. `rng` names events; no decision depends on it."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: random.Random,
        options: SchedulerOptions | None = None,
        *,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.options = options or SchedulerOptions()
        self.core = SchedulerCore(self.options, clock)
        self.metrics = SchedulerMetrics(registry, self.core.pending_pods)
        self.ready = asyncio.Event()
        """Set once a first cycle is over and, if it placed anything, a first binding."""
        self.synced = asyncio.Event()
        """Set once all that is watched has been listed."""
        self.served: dict[str, str] = {}
        """Under which group and version the server has each kind of the group API that it has."""
        self._client = client
        self._clock = clock
        self._events = EventRecorder(client, clock, rng, self.options.event_source)
        self._binder = Binder(client, clock, self, concurrency=self.options.bindings)
        cache = self.core.cache
        self._evictor = Evictor(client, clock, self._events, cache.pods, self, marks_groups=self.options.say_why_held)
        self._reporter = Reporter(
            client,
            clock,
            self._events,
            self._binder.idle,
            cache.pods,
            {POD_GROUPS: cache.pod_groups, COMPOSITE_POD_GROUPS: cache.hierarchy.composites},
            self._evictor.nominations,
        )
        terms = self.options.provisioning
        self._requester = None if terms is None else Requester(client, clock, self._events, terms, self)
        self._asking = Asking(self.core, self._requester, self.served)
        self._teller = Teller(self.core, self._reporter, clock, self._asking)
        self._undoer = Undoer(client, clock, self._events, cache.pods)
        self._repairs = Repairs(cache, rng, self.options.repair_after_s, keeps=self.options.keeps_together)
        self._contested: dict[str, None] = {}
        self._volumes = VolumeBinder(client, clock, cache.state, self)
        self._devices = DeviceBinder(client, clock, cache.state, self, cache.pod_groups.get)
        self._changes: list[tuple[Resource, list[Change]]] = []
        self._work = asyncio.Event()
        self._answers: list[tuple[Apart | Planning, Answer | Plan | NoPlan | Exception]] = []
        self._one_at_a_time = asyncio.Lock()
        self._tasks: asyncio.TaskGroup | None = None
        self._is_draining = False

    async def run(self, lead: asyncio.Event | None = None) -> None:
        """Watch, decide and bind until cancelled. `lead`: until it is set, only watch, so as to be ready at once."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            parts = (self._binder, self._reporter, self._evictor, self._undoer, self._events)
            more = () if self._requester is None else (self._requester.run,)
            for run in (*(part.run for part in parts), *more, self._flush):
                tasks.create_task(run())
            await self._watch(tasks)
            self.synced.set()
            while lead is not None and not lead.is_set():
                self._take_over()
                await wait(self._clock, lead, STAND_BY_S, periodic=True)
            await self._schedule()

    async def drain(self, bind_s: float, tell_s: float) -> bool:
        """Decide nothing more; return when what was decided is bound and told, or their times are over.

        Returns whether all bindings were answered.
        """
        self._is_draining = True
        self._work.set()
        is_answered = await wait(self._clock, self._binder.answered, bind_s)
        end_s = self._clock.now() + tell_s
        while not (self._reporter.is_done and self._events.is_done) and self._clock.now() < end_s:
            await self._clock.sleep(DRAIN_PAUSE_S)
        return is_answered

    async def _schedule(self) -> None:
        self._take_over()
        self._teller.held(self._tasks, self.core.settle(self._clock.now()))
        self.core.adopt_nominations()
        self._teller.groups_that_are_whole()
        while not self._is_draining:
            # 1. Take over what the watches brought.
            self._take_over()
            now = self._clock.now()
            # 2. Move entities in the queue; remember which groups are held, and why.
            self._teller.held(self._tasks, self.core.settle(now))
            # 3. Decide about those that are next, all on one view of the cluster; placements are assumed at once.
            verdicts = self._conclude(now) + self.core.decide(now)
            self._decide_beside()
            # 4. Send the bindings and evictions; tell about what was not placed.
            self._asking.verdicts(verdicts)
            for verdict in verdicts:
                self._commit(verdict)
                self._evict(verdict)
                self._teller.verdict(verdict)
                self._free_claims(verdict)
            self._clear_nominations()
            self._undo(now)
            if self._binder.idle.is_set():
                self.ready.set()
            if verdicts:
                named = [(self._scheduler_name(verdict), verdict) for verdict in verdicts]
                self.metrics.decided(named, now, self._clock.now())
            # 5. Let the others run: as long as there is enough to bind, what comes meanwhile is decided about, too.
            #    Without anything ready, sleep until something changes or a backoff ends.
            if verdicts or self.core.queue.has_ready:
                await asyncio.sleep(0)
                if self.core.queue.has_ready:
                    await wait(self._clock, self._binder.hungry, AHEAD_S)
            else:
                await self._sleep()

    def _scheduler_name(self, verdict: Verdict) -> str:
        first = next((member.key for member in verdict.ask.members), "")
        record = self.core.cache.pods.get(first)
        return "" if record is None else scheduler_name_of(record.pod)

    def _decide_beside(self) -> None:
        """Decide what may take long in a thread, one at a time."""
        for apart in self.core.take_apart():
            if self._tasks is not None:
                self._tasks.create_task(self._decide_apart(apart))

    async def _decide_apart(self, apart: Apart | Planning) -> None:
        async with self._one_at_a_time:
            answer: Answer | Plan | NoPlan | Exception = await asyncio.to_thread(apart.compute)
        self._answers.append((apart, answer))
        self._work.set()

    def _conclude(self, now: float) -> list[Verdict]:
        answers, self._answers = self._answers, []
        return [verdict for apart, answer in answers for verdict in self.core.conclude(apart, answer, now)]

    async def _sleep(self) -> None:
        self.metrics.observe(self.core.queue, self.core.cache.pods)
        if not self._changes and not self._answers:
            self._work.clear()
        times_s = (self.core.queue.next_retry_s(), self._repairs.next_s(self._waits_for_victims))
        next_s = min((time_s for time_s in times_s if time_s is not None), default=None)
        await wait(self._clock, self._work, None if next_s is None else next_s - self._clock.now())

    # -- watches -----------------------------------------------------------------------------------------------------

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        await Watches(self._client, self._clock, self.options.grouping, self._arrived, self._placed).start(tasks)

    def _placed(self, found: Mapping[Resource, Resource]) -> None:
        """Take note of where the server has the kinds of the group API."""
        self.served.clear()
        self.served.update({each.kind: found[each].api_version for each in found if each.group == POD_GROUPS.group})
        self._reporter.group_resource = self._evictor.group_resource = found.get(POD_GROUPS, POD_GROUPS)
        self._reporter.composite_resource = found.get(COMPOSITE_POD_GROUPS, COMPOSITE_POD_GROUPS)

    def _arrived(self, resource: Resource, changes: list[Change]) -> None:
        self._changes.append((resource, changes))
        self._work.set()

    def _take_over(self) -> None:
        cache = self.core.cache
        apply: dict[Resource, Callable[[Iterable[Change]], object]] = {
            NODES: cache.apply_nodes,
            PODS: cache.apply_pods,
            JOBS: cache.apply_jobs,
            COMPOSITE_POD_GROUPS: cache.apply_composites,
            POD_GROUPS: cache.apply_pod_groups,
            WORKLOADS: cache.apply_workloads,
            KUEUE_TOPOLOGIES: cache.apply_topologies,
            POD_DISRUPTION_BUDGETS: self.core.preemptions.units.apply_budgets,
            **{resource: partial(cache.apply_objects, resource.kind) for resource in OBSERVED},
        }
        arrived, self._changes = self._changes, []
        if any(resource in OF_VOLUMES for resource, _ in arrived):
            self._volumes.changed()
        for resource, changes in arrived:
            for change in changes:
                if resource == PODS:
                    self._note_contest(change)
                try:
                    apply[resource]((change,))
                except ValueError as error:
                    logger.warning("unreadable object", extra={"key": key_of(change.object), "error": str(error)})
                if resource == PODS:
                    self._watch_over(change)
                if resource == POD_GROUPS and change.old is None:
                    self._teller.appeared(key_of(change.object))
                if change.new is None:
                    self._forget(resource, key_of(change.object))
        if any(resource in OF_DEVICES for resource, _ in arrived):
            self._devices.changed()

    def _forget(self, resource: Resource, key: str) -> None:
        """Keep nothing about objects that are gone."""
        if resource == PODS:
            self._reporter.forget(key)
        elif resource == POD_GROUPS:
            self._teller.not_placed(key)
            self._repairs.forget(key)
            self._reporter.forget(f"ignored {key}")

    async def _flush(self) -> None:
        """Retry what has slept for too long: a periodic timer, so that a simulation may end without it."""
        while True:
            await self._clock.sleep(self.options.flush_every_s, periodic=True)
            if self.core.queue.flush(self._clock.now()):
                self._work.set()

    # -- requests for nodes (ProvisioningReports) --------------------------------------------------------------------

    def is_waiting(self, entity: str) -> bool:
        return self._asking.is_waiting(entity)

    def provisioned(self, entity: str) -> None:
        self.core.queue.activate(entity, self._clock.now(), "Provisioned")
        self._work.set()

    def requests_are(self, outcome: str) -> None:
        self.metrics.provisioning(outcome)

    # -- groups that are bound in part -------------------------------------------------------------------------------

    def _note_contest(self, change: Change) -> None:
        """While bindings are under way: whether somebody else has put a pod on a node."""
        new = change.new
        node = None if new is None or self._binder.answered.is_set() else new["spec"].get("nodeName")
        if new is None or not node:
            return
        record = self.core.cache.pods.get(key_of(new))
        if record is None or record.node != node:
            self._contested[node] = None

    def _watch_over(self, change: Change) -> None:
        """Note what a change of a pod means for its group."""
        pod, old = change.object, change.old
        node = pod["spec"].get("nodeName")
        if change.new is None:
            self._repairs.forget_pod(uid_of(pod))
        if not node:
            return
        ref = self.core.cache.group_of(pod)
        if ref is None:
            return
        if change.new is not None and is_rejection(pod) and not (old is not None and is_rejection(old)):
            logger.info("member rejected by its node", extra={"pod": key_of(pod), "node": node, "group": ref.key})
            self._repairs.failed(ref.key)
        else:
            self._repairs.touch(ref.key)

    def _undo(self, now: float) -> None:
        for undo in self._repairs.due(now, self._waits_for_victims):
            logger.warning("group undone", extra={"group": undo.ref.key, "pods": len(undo.members)})
            self.metrics.undone(len(undo.members))
            self.core.fence(undo.ref.key, undo.fenced_until_s)
            if undo.reason == NOT_WHOLE:
                self.core.give_up(undo.ref.key, undo.members)
            self._undoer.submit(undo)
        faults, self._repairs.faults = self._repairs.faults, {}
        for group, fault in faults.items():
            logger.warning("annotation ignored", extra={"group": group, "error": fault})
            self._reporter.ignored(group, fault)

    def _waits_for_victims(self, group: str) -> bool:
        return self.core.entity_of(group) in self.core.preemptions

    # -- bindings (BindingReports) -----------------------------------------------------------------------------------

    def _commit(self, verdict: Verdict) -> None:
        commit = Commit(verdict.ask.ref, len(verdict.placements))
        if commit.ref is not None and verdict.placements:
            self._teller.placing(commit.ref.key)
        requests, notes = [], self._repairs.notes(commit.ref)
        for placement in verdict.placements:
            record = self.core.cache.pods[placement.pod]
            requests.append(BindRequest(record.key, record.pod, placement.node, commit, notes))
        if any(self.core.cache.state.device_reservation(request.key) for request in requests):
            assert self._tasks is not None
            timeout_s = self.options.device_timeout_s(scheduler_name_of(requests[0].pod))
            self._tasks.create_task(self._devices.bind(requests, timeout_s))
        else:
            self.devices_bound(requests)

    def _free_claims(self, verdict: Verdict) -> None:
        """Who found no node may have claims whose devices are elsewhere: they get others the next time."""
        if verdict.placements or verdict.rejection is None or verdict.rejection.reason != UNSCHEDULABLE:
            return
        core, ask = self.core, verdict.ask
        pods = [core.cache.pods[member.key].pod for member in ask.members if member.shape.usage.devices is not None]
        if not pods or self._tasks is None:
            return
        consumers = {uid_of(pod) for pod in pods}
        group = None if ask.ref is None or ask.scheduled else core.cache.pod_groups.get(ask.ref.key)
        consumers |= set() if group is None else {uid_of(group)}
        for key in dict.fromkeys(each.key for pod in pods for each in pod_claims(pod)):
            claim = core.cache.state.objects.get(RESOURCE_CLAIM, key)
            if claim is not None and IN_FLIGHT not in claim and is_in_the_way(claim, consumers):
                self._tasks.create_task(self._devices.free(key, frozenset(consumers)))

    def devices_bound(self, requests: Sequence[BindRequest]) -> None:
        """The claims of the pods of a commit are written; their volumes come next."""
        if any(self.core.cache.state.reservation(request.key) for request in requests):
            self._bind_volumes(list(requests))
        else:
            self.volumes_bound(requests)

    def devices_failed(self, requests: Sequence[BindRequest], failed: BindRequest | None, why: str) -> None:
        """The pods of a commit are taken back together, so that no gang is half bound for want of a device."""
        self._take_back(requests, failed, f'running PreBind plugin "DynamicResources": {why}')

    def _bind_volumes(self, requests: list[BindRequest]) -> None:
        assert self._tasks is not None
        timeout_s = self.options.bind_timeout_s(scheduler_name_of(requests[0].pod))
        self._tasks.create_task(self._volumes.bind(requests, timeout_s))

    def volumes_bound(self, requests: Sequence[BindRequest]) -> None:
        for request in requests:
            self._binder.submit(request)

    def volumes_failed(self, requests: Sequence[BindRequest], failed: BindRequest | None, why: str) -> None:
        """The pods of a commit are taken back together, so that no gang is half bound for want of a volume."""
        self._take_back(requests, failed, f'running PreBind plugin "VolumeBinding": binding volumes: {why}')

    def _take_back(self, requests: Sequence[BindRequest], failed: BindRequest | None, message: str) -> None:
        if failed is not None:
            self._teller.pods(Rejection((failed.key,), SCHEDULER_ERROR, message))
        for request in requests:
            request.commit.waiting -= 1
            self.bind_failed(request)
        ref = requests[0].commit.ref
        if ref is not None and not self.core.entities.is_satisfied(ref.key):
            self._teller.not_placed(ref.key)

    def can_bind(self, request: BindRequest) -> bool:
        if not self._is_current(request) or request.node not in self.core.cache.nodes:
            return False
        if request.node in self._contested:
            if self.core.is_crowded_out(request.key):
                return False  # another scheduler was quicker
            del self._contested[request.node]
        return True

    def _is_current(self, request: BindRequest) -> bool:
        record = self.core.cache.pods.get(request.key)
        return record is not None and record.node == request.node and uid_of(record.pod) == uid_of(request.pod)

    def bound(self, request: BindRequest) -> None:
        self.ready.set()
        self.core.bound(request.key)
        self._devices.bound(request.key)
        self.metrics.bound(request.key, scheduler_name_of(request.pod), self._clock.now())
        self._reporter.scheduled(request.pod, request.node)
        self._after_commit(request.commit)

    def bind_failed(self, request: BindRequest) -> None:
        self.ready.set()
        logger.info("binding failed", extra={"pod": request.key, "node": request.node})
        self.metrics.bind_failed(request.key, scheduler_name_of(request.pod), self._clock.now())
        if request.commit.ref is not None:
            self._repairs.failed(request.commit.ref.key)
        if self._tasks is not None and self._devices.has_written(request.key):
            self._tasks.create_task(self._devices.unbind(request.key))
        if self._is_current(request):
            self.core.bind_failed(request.key, self._clock.now())
        self._after_commit(request.commit)
        self._work.set()

    def _after_commit(self, commit: Commit) -> None:
        ref = commit.ref
        if commit.waiting == 0 and ref is not None and self.core.entities.is_satisfied(ref.key):
            self._teller.whole(ref.key)

    # -- evictions (EvictionReports) ---------------------------------------------------------------------------------

    def _evict(self, verdict: Verdict) -> None:
        if verdict.plan is None:
            return
        core, placements = self.core, verdict.plan.placements
        record = core.cache.pods[verdict.ask.members[0].key]
        kind, uid = core.entities.preemptor(verdict.ask)
        place = placements[0].node if kind == "pod" else "cluster"
        nominated = {placement.pod: placement.node for placement in placements}
        self._evictor.submit(Eviction(kind, uid, scheduler_name_of(record.pod), place, nominated, verdict.victims))

    def _clear_nominations(self) -> None:
        cleared, self.core.preemptions.cleared = self.core.preemptions.cleared, {}
        for pod in cleared:
            self._evictor.clear(pod)

    def eviction_refused(self, pod: str) -> None:
        logger.warning("victim cannot be deleted", extra={"pod": pod})
        self.core.eviction_refused(pod, self._clock.now())
        self._work.set()
