"""`muster demo`: `muster simulate` over examples/demo, three times, with some narration. It decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

import muster
from muster.api.codec import Object
from muster.cli.demo_view import LiveView
from muster.cli.durations import format_duration
from muster.cli.errors import BadInput
from muster.cli.inputs import read_manifests
from muster.cli.options import Output, Write
from muster.cli.output import emit
from muster.cli.report_view import change_text
from muster.cli.terminal import console, error_console
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import simulate

EXAMPLES = Path("examples/demo")
UNTIL_S = 24 * 3600.0
STORY_WIDTH = 110
DEFAULT_SEED = 1
"""One with which the pods of the two jobs meet half and half."""


@dataclass(frozen=True, slots=True)
class Act:
    """One simulation: what is said before it, its files and options, and what is said of its report after it."""

    name: str
    title: str
    before: str
    files: tuple[str, ...]
    pod_by_pod: bool
    after: Callable[[Object], list[str]]

    def command(self, seed: int) -> str:
        """The command that does the same."""
        files = " ".join(f"-f {EXAMPLES / file}" for file in self.files)
        return f"muster simulate {files}{' --pod-by-pod' if self.pod_by_pod else ''} --seed {seed}"


def demo(*, seed: int = DEFAULT_SEED, output: Output = "table", write: Write = None) -> int:
    """Show in ten seconds what Muster is for: pods that deadlock, and gangs that do not.

    Parameters
    ----------
    seed
        Draws the order of what happens at once, as in `muster simulate`.
    output
        How to print the outcome.
    write
        Write the outcome into this file instead.
    """
    examples = find_examples()
    is_story = output == "table" and write is None
    screen = story_console() if is_story else error_console()
    acts = []
    for number, act in enumerate(ACTS, start=1):
        if is_story:
            _introduce(screen, number, act, seed)
        outcome = _play(act, examples, seed, screen)
        if is_story:
            for line in act.after(outcome):
                _say(screen, line)
            screen.print()
        acts.append({"name": act.name, "title": act.title, "command": act.command(seed), "report": outcome})
    value = {"acts": acts}
    if is_story:
        _summarise(screen, acts)
    else:
        emit(value, output, write, lambda console: _summarise(console, acts))
    return 0


def find_examples() -> Path:
    """Where examples/demo is: in the clone that this package is installed from, else below the current directory.

    Raises `BadInput`.
    """
    root = Path(muster.__file__).resolve().parents[2]
    for place in (root, Path.cwd()):
        if (place / EXAMPLES / ACTS[0].files[0]).is_file():
            return place / EXAMPLES
    raise BadInput(f"{EXAMPLES} is not in {root}: run muster demo in a clone of the project")


def story_console() -> Console:
    """Standard output, not wider than is good to read."""
    return console(STORY_WIDTH, most=STORY_WIDTH)


def play(act: Act, examples: Path, seed: int, on_progress: LiveView | None = None) -> Object:
    """The report of one act's simulation."""
    manifests = [manifest for file in act.files for manifest in read_manifests([examples / file])]
    options = ClusterOptions(pod_by_pod=act.pod_by_pod)
    return report(simulate(manifests, until_s=UNTIL_S, seed=seed, options=options, on_progress=on_progress))


def _play(act: Act, examples: Path, seed: int, screen: Console) -> Object:
    # Pods one by one are worth a look each; of a gang, how it is before and after.
    pace = LiveView(screen) if act.pod_by_pod else LiveView(screen, settles_s=0.1, stays_s=0.6)
    with pace as view:
        return play(act, examples, seed, view)


def _introduce(screen: Console, number: int, act: Act, seed: int) -> None:
    screen.print(Rule(f"{number} of {len(ACTS)} · {act.title}", align="left", style="dim"))
    _say(screen, act.before)
    _say(screen, f"[dim]$ {act.command(seed)}[/]")


def _say(screen: Console, markup: str) -> None:
    """Print a line, indented also where it is broken."""
    text = Text.from_markup(markup.lstrip())
    screen.print(Padding(text, (0, 0, 0, 2 + len(markup) - len(markup.lstrip()))))


def _summarise(screen: Console, acts: list[Object]) -> None:
    from muster.cli.tables import plain_table

    table = plain_table("What happened")
    for column in ("", "job", "workers with a GPU", "outcome", "first started"):
        table.add_column(column)
    for act in acts:
        for index, group in enumerate(act["report"]["groups"]):
            started = group["first_scheduled_s"]
            table.add_row(
                act["title"].partition(":")[0] if index == 0 else "",
                job_name(group),
                f"{group['scheduled']} of {group['members']}",
                Text(OUTCOMES.get(group["state"], group["state"]), style=STYLES.get(group["state"], "red")),
                "never" if started is None else f"after {format_duration(started)}",
            )
    screen.print(table)
    screen.print()
    screen.print("A gang starts as a whole or not at all: that is what Muster adds to a Kubernetes scheduler.")
    screen.print(
        Text("Next: `muster up` starts a cluster for kubectl; `muster simulate --help` runs your own manifests.")
    )


def job_name(group: Object) -> str:
    """The name of the Job that a group was made for: the first part of `<job>-<hash>-<template>-<hash>`."""
    return str(group["name"]).split("-", 1)[0]


OUTCOMES = {
    "Succeeded": "done",
    "Unschedulable": "never starts",
    "Pending": "never starts",
    "Undecided": "never starts",
}
STYLES = {"Succeeded": "green", "Running": "green"}


def _after_deadlock(outcome: Object) -> list[str]:
    if all(group["state"] == "Succeeded" for group in outcome["groups"]):
        return ["By luck, the pods of one job came first, and both jobs finished. Try another --seed."]
    held = [f"[bold]{job_name(group)}[/] holds {group['scheduled']}" for group in outcome["groups"]]
    return [
        f"{' and '.join(held)} of the GPUs that they both need. Neither can start, and neither gives way:"
        " [bold red]deadlock[/]. The GPUs are busy for ever, and nothing is done with them.",
    ]


def _after_gangs(outcome: Object) -> list[str]:
    started = sorted((group["first_scheduled_s"] or 0.0, job_name(group)) for group in outcome["groups"])
    parts = [f"[bold]{name}[/] started after {format_duration(time_s)}" for time_s, name in started]
    return [
        f"{', '.join(parts)}.",
        f"All 4 workers of a job together, one job after the other: [bold green]done[/] after "
        f"{format_duration(outcome['time_s'])}.",
    ]


def _after_refusal(outcome: Object) -> list[str]:
    lines = []
    for group in outcome["groups"]:
        explanation = group["explanation"]
        if not explanation:
            continue
        lines.append(f"[bold]{job_name(group)}[/] takes no GPU and waits: {explanation['summary']}.")
        if explanation["changes"]:
            lines.append("It would start with one of these changes, each of them checked:")
        lines += [f"  [green]→[/] {change_text(change)}" for change in explanation["changes"]]
    return lines


ACTS = (
    Act(
        "pods",
        "Pod by pod: a deadlock",
        "Two training jobs, [red]red[/] and [blue]blue[/], have 4 workers each; a worker gets on only while all 4 run."
        " There are 4 GPUs.",
        ("nodes.yaml", "jobs.yaml"),
        True,
        _after_deadlock,
    ),
    Act(
        "gangs",
        "As gangs: one job, then the other",
        "The same two jobs. Muster starts all workers of a job together, or none.",
        ("nodes.yaml", "jobs.yaml"),
        False,
        _after_gangs,
    ),
    Act(
        "too-big",
        "Too big for the cluster: why, and what would help",
        "A third job, [green]green[/], wants 6 workers at once, on the same 4 GPUs.",
        ("nodes.yaml", "too-big.yaml"),
        False,
        _after_refusal,
    ),
)
