"""The demo's live picture: which worker holds which GPU, and how far each job is, as the simulation goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from muster.api.codec import Object
from muster.api.meta import controller_of, name_of
from muster.cli.durations import format_duration
from muster.simulator.world import World

GPU = "nvidia.com/gpu"
SLOW_FRAMES = 9
"""How many frames are shown slowly; what follows is shown as it comes, so that an act never takes long."""
COLOURS = ("red", "blue", "green", "magenta", "cyan", "yellow")


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job: how many workers it wants, how many of them hold a GPU, and how many are done."""

    name: str
    workers: int
    holding: int
    done: int

    @property
    def is_complete(self) -> bool:
        return self.done >= self.workers

    def text(self) -> str:
        """How far it is, in words."""
        missing = self.workers - self.holding
        if self.is_complete:
            return "done"
        if not missing:
            return "all workers run: training"
        if self.holding:
            return f"waits for {missing} more GPU{'' if missing == 1 else 's'}, and holds on to its own"
        return "waits"


@dataclass(frozen=True, slots=True)
class Frame:
    """What there is to see: the pods (name, job) on each node's GPUs, and the jobs."""

    nodes: tuple[tuple[str, int, tuple[tuple[str, str], ...]], ...]
    jobs: tuple[JobLine, ...]


def frame_of(world: World) -> Frame:
    """The picture of a world as it is now."""
    on_node: dict[str, list[tuple[str, str]]] = {}
    holding: dict[str, int] = {}
    done: dict[str, int] = {}
    for pod in world.objects("pods"):
        node, job, phase = pod["spec"].get("nodeName"), _job_of(pod), (pod.get("status") or {}).get("phase")
        if phase == "Succeeded":
            done[job] = done.get(job, 0) + 1
        elif node and phase != "Failed":
            on_node.setdefault(node, []).append((_worker_of(pod, job), job))
            holding[job] = holding.get(job, 0) + 1
    nodes = tuple(
        (name_of(node), int(node["status"]["allocatable"].get(GPU, 0)), tuple(sorted(on_node.get(name_of(node), []))))
        for node in world.objects("nodes")
    )
    jobs = tuple(
        JobLine(
            name_of(job),
            int(job["spec"].get("parallelism", 1)),
            holding.get(name_of(job), 0),
            done.get(name_of(job), 0),
        )
        for job in world.objects("jobs")
    )
    return Frame(nodes, jobs)


def draw_frame(frame: Frame, time_s: float) -> RenderableType:
    """The frame as a panel: a row a node with its GPUs, a row a job."""
    gpus = Table(box=None, show_header=False, pad_edge=False)
    for name, slots, pods in frame.nodes:
        cells = [_slot(*pod) for pod in pods] + [Text("· free  ", style="dim")] * (slots - len(pods))
        gpus.add_row(Text(name, style="dim"), *cells)
    jobs = Table(box=None, show_header=False, pad_edge=False)
    for job in frame.jobs:
        bar = Text("■" * job.holding + "□" * (job.workers - job.holding), style=_colour(job.name))
        if job.is_complete:
            bar = Text("■" * job.workers, style="dim")
        jobs.add_row(Text(f"job {job.name}", style=_colour(job.name)), bar, job.text())
    title = f"{format_duration(time_s)} have passed"
    return Panel(Group(gpus, "", jobs), title=title, title_align="left", width=76)


@dataclass(slots=True)
class LiveView:
    """Draws a world whenever what there is to see has changed. Without a terminal it draws nothing.

    A frame is shown if it holds for more than `settles_s` of the world's time, and then stays for `stays_s` of ours.
    """

    console: Console
    settles_s: float = 0.0
    stays_s: float = 0.25
    _live: Live | None = None
    _last: Frame | None = None
    _since_s: float = 0.0
    _is_shown: bool = True
    _shown: int = field(default=0)

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._show(self._since_s)
            self._live.stop()

    def __call__(self, world: World) -> None:
        """Take in the world as it is before its time goes on."""
        if self._live is None:
            return
        if world.time_s - self._since_s > self.settles_s:
            self._show(self._since_s)
        frame = frame_of(world)
        if frame != self._last:
            self._last, self._since_s, self._is_shown = frame, world.time_s, False

    def _show(self, time_s: float) -> None:
        if self._is_shown or self._live is None or self._last is None:
            return
        self._is_shown = True
        self._live.update(draw_frame(self._last, time_s), refresh=True)
        self._shown += 1
        if self._shown <= SLOW_FRAMES:
            time.sleep(self.stays_s)


def _job_of(pod: Object) -> str:
    owner = controller_of(pod)
    return str(owner["name"]) if owner is not None else name_of(pod)


def _worker_of(pod: Object, job: str) -> str:
    """`red-2` for the worker with completion index 2, whatever random name its pod has."""
    index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")
    return name_of(pod) if index is None else f"{job}-{index}"


def _slot(worker: str, job: str) -> Text:
    return Text(f"■ {worker:<7}", style=_colour(job))


def _colour(job: str) -> str:
    return job if job in COLOURS else COLOURS[sum(job.encode()) % len(COLOURS)]
