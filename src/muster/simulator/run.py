"""`simulate`: run manifests on an embedded cluster in virtual time until nothing is left to happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.durations import duration_text
from muster.api.manifests import Manifest, ManifestError
from muster.clock import VirtualClock, VirtualLoop, cancel_all
from muster.nodes.spec import NodeSpec
from muster.simulator.faults import ComponentFault, NodeFault, RequestFaults, play
from muster.simulator.notices import Notice
from muster.simulator.options import ClusterOptions
from muster.simulator.steps import Performer, Step, StepError
from muster.simulator.world import Outcome, World

Timed = tuple[float, Sequence[Manifest] | Step]
"""Objects and the second at which they are applied, or a step and the second at which it is taken."""

Progress = Callable[[World], None]
"""Called whenever time is about to go on; it must change nothing."""

Tell = Callable[[Sequence[Notice]], None]
"""Called with what is to be said about manifests."""


class Faults(Struct, frozen=True):
    """What goes wrong; nothing by default."""

    requests: RequestFaults | None = None
    nodes: tuple[NodeFault, ...] = ()
    components: tuple[ComponentFault, ...] = ()


def simulate(
    manifests: Sequence[Manifest],
    *,
    timed: Sequence[Timed] = (),
    nodes: Sequence[NodeSpec] = (),
    until_s: float | None = None,
    seed: int = 0,
    options: ClusterOptions | None = None,
    faults: Faults | None = None,
    on_progress: Progress | None = None,
    on_notices: Tell | None = None,
    keeps_schedules: bool = False,
) -> Outcome:
    """Create the nodes and the manifests at second 0 and the timed ones at theirs, and see what comes of it.

    Timed manifests change objects that are there already (`steps`).

    Ends when it is quiet (no write is under way and no timer but periodic ones is set) or `until_s` seconds have
    passed. `keeps_schedules`: not before `until_s` where there are CronJobs. `on_notices` gets what is to be said about
    manifests whenever some were applied. The same arguments give the same outcome, byte for byte. Raises
    `ManifestError` for an object that the API server refuses, `StepError` for a step that cannot be taken, and whatever
    error a component dies of.
    """
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    faults = faults if faults is not None else Faults()
    try:
        world = World(clock, seed, options if options is not None else ClusterOptions(), faults.requests)
        conductor = _Conductor(world, loop, until_s, on_progress, keeps_schedules)
        stage = _Stage(world, faults, on_notices)
        return conductor.run(stage.play(manifests, sorted(timed, key=lambda pair: pair[0]), nodes))
    finally:
        cancel_all(loop)
        loop.close()


@dataclass(slots=True)
class _Stage:
    """Everything that happens to the world from outside."""

    world: World
    faults: Faults
    on_notices: Tell | None

    async def play(self, manifests: Sequence[Manifest], timed: Sequence[Timed], nodes: Sequence[NodeSpec]) -> None:
        performer = Performer(self.world)
        await self.world.create_nodes(nodes)
        await self._told(performer.create(manifests))
        async with asyncio.TaskGroup() as group:
            if self.faults.nodes or self.faults.components:
                group.create_task(play(self.faults.nodes, self.faults.components, self.world.cluster, self.world.clock))
            for at_s, later in timed:
                if at_s > self.world.clock.elapsed_s:
                    await self.world.clock.sleep(at_s - self.world.clock.elapsed_s)
                try:
                    await self._told(performer.perform(later) if isinstance(later, Step) else performer.apply(later))
                except StepError as error:
                    raise StepError(f"{duration_text(at_s)}: {error}") from error
                except ManifestError as error:
                    raise ManifestError(error.file, error.line, f"at {duration_text(at_s)}: {error.message}") from error

    async def _told(self, action: Coroutine[object, object, None]) -> None:
        """Take an action, and say what is to be said about its manifests, also if it fails."""
        try:
            await action
        finally:
            said, self.world.said = self.world.said, []
            if said and self.on_notices is not None:
                self.on_notices(said)


@dataclass(slots=True)
class _Conductor:
    """Lets the loop run until it is quiet or the time is up, or something failed."""

    world: World
    loop: VirtualLoop
    until_s: float | None
    on_progress: Progress | None
    keeps_schedules: bool
    _outcome: Outcome | None = field(default=None)

    def run(self, stage: Coroutine[object, object, None]) -> Outcome:
        tasks = [self.loop.create_task(stage), self.loop.create_task(self.world.run())]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        self.loop.on_idle = self._on_idle
        try:
            self.loop.run_interruptibly()
        finally:
            # Whoever interrupts it (Ctrl-C) goes on to cancel the tasks, which must not stop the loop then.
            for task in tasks:
                task.remove_done_callback(self._task_ended)
        for task in tasks:
            if task.done() and not task.cancelled():
                _raise_from(task.exception())
        assert self._outcome is not None, "the loop ends only with an outcome or an error"
        return self._outcome

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.loop.stop()

    def _on_idle(self, timeout: float | None) -> bool:
        """Nothing is ready: go on to the next timer if there is a reason to."""
        now = self.world.clock.elapsed_s
        is_quiet = self.world.clock.pending == 0 or timeout is None
        is_over = self.until_s is not None and now + (timeout or 0.0) > self.until_s
        goes_on = not is_quiet or (timeout is not None and self._awaits_more())
        if goes_on and not is_over:
            if self.on_progress is not None:
                self.on_progress(self.world)
            return True
        if goes_on and self.until_s is not None:
            self.loop.advance_to(max(now, self.until_s))
        self._outcome = self.world.outcome(is_quiet=is_quiet)
        return False

    def _awaits_more(self) -> bool:
        """Whether something will happen though nothing but periodic timers is set."""
        if self.world.awaits_retry() or self.world.awaits_discovery():
            return True
        return self.keeps_schedules and self._has_schedules()

    def _has_schedules(self) -> bool:
        return any(not cronjob["spec"].get("suspend") for cronjob in self.world.objects("cronjobs"))


def _raise_from(error: BaseException | None) -> None:
    """Raise what a task died of; from nested groups of one error, that error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if error is not None:
        raise error
