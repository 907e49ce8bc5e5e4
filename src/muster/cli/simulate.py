"""`muster simulate`: manifests on a cluster in virtual time until nothing is left to happen, and what came of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from muster.api.codec import Object
from muster.api.manifests import ManifestError
from muster.cli.durations import format_duration
from muster.cli.errors import BadInput, CheckFailed
from muster.cli.inputs import read_duration, read_node_specs, read_simulation
from muster.cli.options import (
    DEFAULT_BEHAVIOUR,
    INPUT_RANK,
    OUTPUT,
    Behaviour,
    NodeSpecs,
    Output,
    Write,
    cluster_options,
)
from muster.cli.output import check_writable, emit, warn, write_text
from muster.cli.report_view import draw, qualified
from muster.cli.terminal import error_console
from muster.simulator.notices import lines
from muster.simulator.refusals import standing_refusals
from muster.simulator.report import report
from muster.simulator.report_html import html_report
from muster.simulator.run import Progress
from muster.simulator.run import simulate as run_simulation
from muster.simulator.steps import StepError
from muster.simulator.world import World

SIMULATION = Group("Simulation", sort_key=INPUT_RANK)
UNSCHEDULED = ("Gated", "Undecided", "Unschedulable", "Pending")
"""States of a group that has not been scheduled."""
REDRAW_S = 0.1


def simulate(
    *,
    file: Annotated[
        tuple[Path, ...], Parameter(name=["--file", "-f"], consume_multiple=1, negative="", group=SIMULATION)
    ],
    at: Annotated[
        tuple[str, ...],
        Parameter(consume_multiple=1, negative="", show_default=False, group=SIMULATION),
    ] = (),
    until: Annotated[str, Parameter(show_default=False, group=SIMULATION)] = "",
    seed: Annotated[int, Parameter(group=SIMULATION)] = 0,
    nodes: NodeSpecs = (),
    behaviour: Behaviour = DEFAULT_BEHAVIOUR,
    output: Output = "table",
    write: Write = None,
    events: Annotated[bool, Parameter(negative="", show_default=False, group=OUTPUT)] = False,
    all_rows: Annotated[bool, Parameter(name="--all", negative="", show_default=False, group=OUTPUT)] = False,
    fail_unschedulable: Annotated[bool, Parameter(negative="", show_default=False, group=OUTPUT)] = False,
    report_file: Annotated[Path | None, Parameter(name="--report", show_default=False, group=OUTPUT)] = None,
) -> int:
    """Run manifests on an embedded cluster in virtual time, until nothing is left to happen, and report.

    Parameters
    ----------
    file
        Manifests (YAML or JSON, one or many objects a file; - is standard input). Repeatable.
    at
        What happens later, such as 30s=more.yaml (manifests, applied as kubectl apply does), 1m='delete pod/train-0',
        or a node and what befalls it: 5m='cordon node-0' (uncordon, fail, recover). Repeatable.
    until
        When to stop at the latest. Default: 24h. CronJobs make Jobs until then if it is given.
    seed
        Draws API latencies and the order of what happens at once. The same seed gives the same report.
    nodes
        Simulated nodes: a number, or such as count=16,cpu=32,memory=256Gi,nvidia.com/gpu=8,racks=4. Repeatable.
    output
        How to print the report; the form of the JSON is docs/simulate-output.schema.json.
    write
        Write the report into this file instead.
    events
        Show events in the table too.
    all_rows
        Show all pods and nodes in the table, however many.
    fail_unschedulable
        Exit with 1 if a group or a pod has not been scheduled.
    report_file
        Write a page with pictures of the cluster and the timeline of the groups into this HTML file as well.
    """
    check_writable(write, report_file)
    manifests, timed = read_simulation(file, at)
    specs = read_node_specs(nodes)
    until_s = read_duration("--until", until or "24h")
    options = cluster_options(behaviour)
    try:
        with _progress() as on_progress:
            outcome = run_simulation(
                manifests,
                timed=timed,
                nodes=specs,
                until_s=until_s,
                seed=seed,
                options=options,
                on_progress=on_progress,
                on_notices=lambda found: warn(lines(found)),
                keeps_schedules=bool(until),
            )
    except ManifestError as error:
        raise BadInput(str(error)) from error
    except StepError as error:
        raise BadInput(f"--at {error}") from error
    value = report(outcome)
    if report_file is not None:
        write_text(report_file, html_report(outcome, value))
    emit(value, output, write, lambda console: draw(value, console, events=events, everything=all_rows))
    if not value["nodes"] and sys.stderr.isatty():
        print("There were no nodes: give some with --nodes, or Node objects with -f.", file=sys.stderr)
    if not until and sys.stderr.isatty() and any(each.object["kind"] == "CronJob" for each in manifests):
        print("CronJobs make Jobs only where --until says how long, such as --until 1h.", file=sys.stderr)
    check(value, fail_unschedulable)
    return 0


def check(value: Object, fail_unschedulable: bool) -> None:
    """Raise `CheckFailed` if an invariant was violated or, if that is asked for, something was not scheduled."""
    violations = value["invariants"]["violations"]
    if violations:
        raise CheckFailed(f"{len(violations)} invariants were violated, the first: {violations[0]['text']}")
    waiting = [qualified(group) for group in value["groups"] if group["state"] in UNSCHEDULED]
    waiting += [qualified(pod) for pod in value["pods"] if not pod["group"] and _is_waiting(pod)]
    waiting += [f"pods of {event['kind']} {qualified(event)}" for event in standing_refusals(value["events"])]
    if fail_unschedulable and waiting:
        more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
        raise CheckFailed(f"not scheduled: {', '.join(waiting[:5])}{more}")


def _is_waiting(pod: Object) -> bool:
    return pod["node"] is None and pod["phase"] == "Pending"


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """What to call as time goes on: a line on standard error that says how far it is, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    drawn_at = 0.0
    with error_console().status("Simulating") as status:

        def show(world: World) -> None:
            nonlocal drawn_at
            now = time.monotonic()
            if now - drawn_at >= REDRAW_S:
                drawn_at = now
                status.update(f"Simulating: {format_duration(world.time_s)} have passed")

        yield show
