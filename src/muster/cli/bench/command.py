"""`muster bench`: runs measurements one after the other and prints their rows with the setting they were taken in."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import Progress
from rich.status import Status
from rich.table import Table

import muster
from muster.api.codec import Object, Objects
from muster.cli.bench.trace import ABOUT, TraceName, dlrm_families
from muster.cli.bench.trace import run as replay
from muster.cli.errors import BadInput
from muster.cli.options import Output, Write
from muster.cli.output import Format, emit
from muster.cli.terminal import error_console

BENCHES = {
    "gangs": "engine time of homogeneous gangs",
    "queue": "engine time of single pods: strict order, regrouped, rules between pods, devices; memory of a big state",
    "devices": "gangs whose pods need devices of nodes: one decision, by engine alone",
    "exact": "mixed groups: placed, proved or undecided, beside first-fit-decreasing and kube-scheduler's greedy cycle",
    "preemption": "victims for a gang on a full cluster: time of the plan, and evictions beside kube-scheduler's rule",
    "topology": "groups that are bound to domains: choice of the domain, the whole decision",
    "apiserver": "requests/s by verb over HTTP, a list of 10,000 pods, events/s to 100 watchers, memory a pod",
    "startup": "`muster up`: start to ready",
    "throughput": "pods created over HTTP until they are bound",
    "restart": "`muster up` on a full data directory: start to the first decision",
    "demo": "the demo's simulations: simulated seconds per second",
}


class Bench(Protocol):
    """A module of this package."""

    def run(self, progress: Callable[[str], None]) -> Objects:
        """Measure; say what goes on with `progress`."""


def bench(
    *names: str,
    trace: TraceName | None = None,
    data: Path | None = None,
    seed: int | None = None,
    output: Output = "table",
    write: Write = None,
) -> int:
    """Measure this machine and print the figures, with the setting they were taken in.

    Parameters
    ----------
    names
        What to measure: gangs, queue, devices, exact, preemption, topology, apiserver, startup, throughput, restart,
        demo. Everything if none is named.
    trace
        Instead, place a public cluster trace: openb (by scoring strategy) or dlrm (groups of two roles).
    data
        The directory with the trace's files; see https://github.com/alibaba/clusterdata. Default: the current one.
        With the bench exact: the services of the dlrm trace are measured too.
    seed
        Only for exact: the first seed of each family, for instances that nobody has seen. Default: 0.
    output
        How to print the figures.
    write
        Write them into this file instead.
    """
    if trace is not None:
        return _replay(trace, data or Path(), names, output, write)
    chosen = _choose(names)
    if data is not None and chosen != ["exact"]:
        raise BadInput("--data: only with --trace, whose files it says where to find, or with the bench exact")
    if seed is not None and chosen != ["exact"]:
        raise BadInput("--seed: only with the bench exact, whose instances are made from seeds")
    results: list[Object] = []
    setting = describe_setting()
    with error_console().status("") as status:
        for name in chosen:
            show = partial(_show, status, name)
            rows = _load(name).run(show) if seed is None and data is None else _exact(seed or 0, data, show)
            results.append({"name": name, "about": BENCHES[name], "rows": rows})
    value = {"setting": setting, "benches": results}
    emit(value, output, write, lambda console: draw(value, console))
    return 0


def _exact(seed: int, data: Path | None, show: Callable[[str], None]) -> Objects:
    from muster.cli.bench import exact  # loads the engine

    traced: Objects = []
    if data is not None:
        traced = dlrm_families(data, lambda what, done, total: show(f"{what} {done} of {total}"))
    return exact.run(show, seed) + traced


def _replay(trace: TraceName, data: Path, names: Sequence[str], output: Format, write: Path | None) -> int:
    if names:
        raise BadInput(f"--trace {trace} is a bench of its own: {names[0]!r} cannot be measured with it")
    setting = describe_setting()
    with Progress(console=error_console(), transient=True) as bar:
        task = bar.add_task(trace, total=None)

        def advance(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        rows = replay(trace, data, advance)
    benches = [{"name": trace, "about": ABOUT[trace], "rows": rows}]
    value: Object = {"setting": setting, "benches": benches}
    emit(value, output, write, lambda console: draw(value, console))
    return 0


def describe_setting() -> Object:
    """Where the figures were taken: versions, processors, how busy the machine was before, and how fast."""
    load_1min = os.getloadavg()[0]
    return {
        "muster": muster.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_1min": round(load_1min, 2),
        "loop_ms": round(_loop_ms(), 1),
    }


def _loop_ms() -> float:
    """The processor time of a fixed piece of Python, at best: figures of two machines, or of one that is busy and one
    that is idle, compare by it."""
    times = []
    for _ in range(5):
        start = time.process_time()
        sum(number * number for number in range(300_000))
        times.append(1000 * (time.process_time() - start))
    return min(times)


def draw(value: Object, console: Console) -> None:
    """Print a table a bench, and the setting below."""
    for result in value["benches"]:
        console.print(f"{result['name']}: {result['about']}", style="bold")
        console.print(rows_table(result["rows"]))
        console.print()
    setting = ", ".join(f"{key} {item}" for key, item in value["setting"].items())
    console.print(f"Taken with {setting}.", style="dim")


def rows_table(rows: Objects) -> Table:
    """A table with the keys of the rows as columns."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        number = any(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*("" if row.get(column) is None else f"{row[column]}" for column in columns))
    return table


def _show(status: Status, name: str, text: str) -> None:
    status.update(f"{name}: {text}")


def _choose(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in BENCHES:
            raise BadInput(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    return [name for name in BENCHES if not names or name in names]


def _load(name: str) -> Bench:
    module: Bench = import_module(f"muster.cli.bench.{name}")
    return module
