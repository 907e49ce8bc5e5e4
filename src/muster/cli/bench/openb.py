"""A production GPU cluster of 1,523 nodes and its 8,152 pods, one after the other in order of creation; none leaves.

Many pods ask for a share of one GPU. Two ways to see that: as a device plugin does, where a share takes a whole GPU, or
as thousandths of the GPUs of a node. The second forgets that a share must be on one device: how many of the placed pods
would have to be split over two, at least, is a column (shares are put into the devices of a node largest first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from muster.api.codec import Object, Objects
from muster.cli.bench.trace import Advance
from muster.engine.in_order import place_in_order
from muster.engine.plugins.scoring_strategy import (
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ScoringStrategy,
)
from muster.engine.profile import Profile
from muster.engine.registry import FitArguments, PluginArguments, default_profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState

GPU = "nvidia.com/gpu"
GPU_MILLI = "example.com/gpu-milli"
MODEL = "gpu-model"
_CHUNK = 1_000
_WEIGHTS = (("cpu", 1), ("memory", 1))


class Host(NamedTuple):
    """A row of the node list."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Host:
        return cls(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])


class Task(NamedTuple):
    """A row of the pod list. `milli`: the share of each of its GPUs; `models`: those that it may use, () for all."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    models: tuple[str, ...]
    created: float

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Task:
        models = tuple(sorted(model for model in row["gpu_spec"].split("|") if model))
        gpus, milli = int(row["num_gpu"]), int(row["gpu_milli"])
        cpu, memory = int(row["cpu_milli"]), int(row["memory_mib"])
        return cls(row["name"], cpu, memory, gpus, milli, models, float(row["creation_time"]))


class Sharing(NamedTuple):
    """How a share of a GPU is seen, and the resource that stands for GPUs."""

    name: str
    resource: str
    unit: int

    def amount(self, task: Task) -> int:
        """What a pod asks of the resource."""
        return task.gpus * (task.milli if self.unit > 1 else 1)


WHOLE = Sharing("a share takes a whole GPU", GPU, 1)
SHARED = Sharing("shares of GPUs", GPU_MILLI, 1_000)


def run(hosts: Sequence[Host], tasks: Sequence[Task], advance: Advance) -> Objects:
    """A row for each way to see shares and each scoring strategy."""
    ordered = sorted(tasks, key=lambda task: (task.created, task.name))
    rows = []
    for sharing in (WHOLE, SHARED):
        state = ClusterState()
        for host in hosts:
            state.set_node(node(host, sharing))
        for name, strategy in _strategies(sharing).items():
            arguments = PluginArguments(fit=FitArguments(strategy))
            profile = default_profile(arguments)
            rows.append(_replay(f"{sharing.name}, {name}", profile, state, ordered, sharing, advance))
    return rows


def _strategies(sharing: Sharing) -> dict[str, ScoringStrategy]:
    weights = (*_WEIGHTS, (sharing.resource, 1))
    packing = ((0, 0), (100, 10))
    return {
        "LeastAllocated (default)": LeastAllocated(),
        "LeastAllocated with GPU": LeastAllocated(weights),
        "MostAllocated": MostAllocated(),
        "MostAllocated with GPU": MostAllocated(weights),
        "RequestedToCapacityRatio with GPU": RequestedToCapacityRatio(packing, weights),
    }


def _replay(
    what: str, profile: Profile, state: ClusterState, tasks: Sequence[Task], sharing: Sharing, advance: Advance
) -> Object:
    shapes = [state.shape_of(pod(task, sharing)) for task in tasks]
    held: dict[int, list[Task]] = {}
    with state.snapshot().trial() as trial:
        wall, cpu = perf_counter(), process_time()
        for start in range(0, len(tasks), _CHUNK):
            advance(what, start, len(tasks))
            chunk = shapes[start : start + _CHUNK]
            for at, (shape, row) in enumerate(zip(chunk, place_in_order(profile, trial, chunk), strict=True)):
                if row >= 0:
                    trial.place(shape.usage, row)
                    held.setdefault(row, []).append(tasks[start + at])
        wall, cpu = perf_counter() - wall, process_time() - cpu
        advance(what, len(tasks), len(tasks))
        column = trial.axis.columns[sharing.resource]
        gpus = int(trial.table.allocatable[:, column].sum())
        return {
            "what": what,
            "pods": len(tasks),
            "placed": sum(map(len, held.values())),
            "gpus_given_percent": round(100 * int(trial.requested[:, column].sum()) / gpus, 2),
            "fragmented_percent": round(100 * fragmentation(profile, trial, shapes, column) / gpus, 2),
            "split": _split(held, trial) if sharing is SHARED else None,
            "pods_per_s": round(len(tasks) / wall),
            "wall_s": round(wall, 2),
            "cpu_s": round(cpu, 2),
        }


def fragmentation(profile: Profile, snapshot: Snapshot, shapes: Sequence[Shape], column: int) -> float:
    """The free GPUs that are of no use to a pod drawn from the workload: on nodes where it does not fit, on average.

    After Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), section 3, for whole nodes; pods without GPUs have
    no use for any, and are left out.
    """
    free = snapshot.table.allocatable[:, column] - snapshot.requested[:, column]
    wanted = Counter(shape for shape in shapes if shape.request(snapshot.axis.names[column]))
    lost = sum(number * float(free[profile.count(shape, snapshot) == 0].sum()) for shape, number in wanted.items())
    return lost / max(wanted.total(), 1)


def _split(held: Mapping[int, Sequence[Task]], snapshot: Snapshot) -> int:
    """How many shares do not fit on one device of their node, when the largest are put there first."""
    column = snapshot.axis.columns[GPU_MILLI]
    split = 0
    for row, tasks in held.items():
        devices = np.full(int(snapshot.table.allocatable[row, column]) // SHARED.unit, SHARED.unit)
        for task in sorted(tasks, key=lambda each: (-each.milli, each.name)):
            for _ in range(task.gpus):
                fitting = np.flatnonzero(devices >= task.milli)
                if len(fitting):
                    devices[fitting[devices[fitting].argmin()]] -= task.milli
                else:
                    split += 1
    return split


def node(host: Host, sharing: Sharing) -> Object:
    """A host as a Node."""
    amounts = {"cpu": f"{host.cpu_milli}m", "memory": f"{host.memory_mib}Mi", "pods": "1000"}
    if host.gpus:
        amounts[sharing.resource] = str(host.gpus * sharing.unit)
    labels = {"kubernetes.io/hostname": host.name, **({MODEL: host.model} if host.model else {})}
    return {"metadata": {"name": host.name, "labels": labels}, "spec": {}, "status": {"allocatable": amounts}}


def pod(task: Task, sharing: Sharing) -> Object:
    """A task as a Pod; the name does not matter."""
    requests = {"cpu": f"{task.cpu_milli}m", "memory": f"{task.memory_mib}Mi"}
    if amount := sharing.amount(task):
        requests[sharing.resource] = str(amount)
    spec: Object = {"containers": [{"name": "main", "image": "task", "resources": {"requests": requests}}]}
    if task.models:
        expression = {"key": MODEL, "operator": "In", "values": list(task.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"metadata": {"name": "task", "namespace": "default"}, "spec": spec}
