"""A whole cluster around one API server: what `muster up`, `muster simulate` and tests run.

Components meet only through transports. Who composes it chooses the store, the clock, chance, and what lies between a
component and the server (nothing, latency, faults).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator

from muster.api.codec import Objects
from muster.api.meta import name_of
from muster.api.resource import NODES
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.protocol import Store
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import ApiError, Transport
from muster.clock import Clock
from muster.controllers.registry import ControllerService
from muster.nodes.agent import NodeAgent
from muster.nodes.leases import LEASE_S
from muster.nodes.spec import NodeSpec, make_nodes
from muster.scheduler.service import Scheduler
from muster.simulator.options import ClusterOptions

Connect = Callable[[str, Transport, random.Random], Transport]
"""Puts something between a component (by name) and the server; the random is that component's own."""

Start = Callable[[], Coroutine[object, object, None]]
"""Makes a component and runs it."""

HEAD_START_S = 0.05
"""How long after its first binding the scheduler's head start ends: so much later whoever watches has seen it."""

BATCH = 500
"""How many nodes are created between two turns of the event loop."""


def directly(component: str, transport: Transport, rng: random.Random) -> Transport:
    """Connects components to the server with nothing in between."""
    return transport


class EmbeddedCluster:
    """API server, scheduler, controllers and simulated nodes, as the options say."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: random.Random,
        options: ClusterOptions,
        *,
        connect: Connect = directly,
        lease_s: int = LEASE_S,
    ) -> None:
        """`lease_s`: how long the leases of simulated nodes last; they are renewed after half of it."""
        self.options = options
        self.clock = clock
        self.server = ApiServer(store, clock, _fork(rng), options.server_options())
        self.transport: Transport = InProcessTransport(self.server)
        self.client = Client(self.transport, user_agent="muster")
        """For whoever drives the cluster: no latency, no faults."""
        self._rng = rng
        self._connect = connect
        self._lease_s = lease_s
        self.agent: NodeAgent | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._restarting: dict[str, None] = {}
        self._others_start = asyncio.Event()

    async def run(self, *, scheduler_first: bool = False) -> None:
        """Run all components until cancelled. If one of them fails, all end and its error is raised.

        `scheduler_first`: the others start when the scheduler has taken its first decision. All have much to read when
        a large cluster comes back, and pods wait for the scheduler alone.
        """
        if not (scheduler_first and self.options.has("scheduler")):
            self._others_start.set()
        async with asyncio.TaskGroup() as group:
            for component, start in self._components():
                group.create_task(self._keep(component, start), name=f"keep {component}")

    def restart(self, component: str) -> None:
        """Kill a component (`scheduler`, `controllers`, `nodes`) as a crash would, and start it anew."""
        task = self._running.get(component)
        if task is not None:
            self._restarting[component] = None
            task.cancel()

    def _components(self) -> Iterator[tuple[str, Start]]:
        if self.options.has("nodes"):
            yield "nodes", self._run_nodes
        if self.options.controller_names():
            yield "controllers", self._run_controllers
        if self.options.has("scheduler"):
            yield "scheduler", self._run_scheduler

    async def _keep(self, component: str, start: Start) -> None:
        """Run a component, again and again if it is restarted."""
        if component != "scheduler":
            await self._others_start.wait()
        while True:
            task = asyncio.get_running_loop().create_task(start(), name=component)
            self._running[component] = task
            try:
                await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if component not in self._restarting or (current is not None and current.cancelling()):
                    raise
            self._restarting.pop(component, None)

    async def create_nodes(self, specs: Iterable[NodeSpec]) -> None:
        """Create the nodes of `--nodes`; those that exist already stay as they are. Raises `ApiError`."""
        existing = {name_of(node) for node in (await self.client.list(NODES)).items}
        nodes = make_nodes(specs, self.clock.now())
        await self._create_all([node for node in nodes if name_of(node) not in existing])

    async def _create_all(self, nodes: Objects) -> None:
        for index, node in enumerate(nodes):
            if index % BATCH == BATCH - 1:
                await asyncio.sleep(0)
            try:
                await self.client.create(NODES, None, node)
            except ApiError as error:
                if not error.is_already_exists:
                    raise

    def _client_for(self, component: str) -> Client:
        transport = self._connect(component, self.transport, _fork(self._rng))
        return Client(transport, user_agent=f"muster-{component}")

    async def _run_nodes(self) -> None:
        client = self._client_for("nodes")
        recorder = EventRecorder(client, self.clock, _fork(self._rng), "kubelet")
        self.agent = NodeAgent(
            client,
            self.clock,
            lease_client=self.client,
            recorder=recorder if self.options.node_events else None,
            lease_s=self._lease_s,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(recorder.run(), name="nodes: events")
            group.create_task(self.agent.run(), name="nodes: agent")

    async def _run_controllers(self) -> None:
        client, rng = self._client_for("controllers"), _fork(self._rng)
        options, names = self.options.controller_options(), self.options.controller_names()
        await ControllerService(client, self.clock, rng, options, names).run()

    async def _run_scheduler(self) -> None:
        client, rng = self._client_for("scheduler"), _fork(self._rng)
        scheduler = Scheduler(client, self.clock, rng, self.options.scheduler_options())
        if self._others_start.is_set():
            await scheduler.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._give_head_start(scheduler), name="scheduler: head start")
            group.create_task(scheduler.run(), name="scheduler: all else")

    async def _give_head_start(self, scheduler: Scheduler) -> None:
        await scheduler.ready.wait()
        await self.clock.sleep(HEAD_START_S)
        self._others_start.set()


def _fork(rng: random.Random) -> random.Random:
    return random.Random(rng.getrandbits(64))
