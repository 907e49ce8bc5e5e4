"""Draws the result of `muster check` for people, with rich."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from muster.api.codec import Object, Objects
from muster.cli.tables import plain_table

OUTCOMES = {"gang": "a gang of {count}", "basic": "a group of single pods", "none": "no group"}
STYLES = {"gang": "green", "basic": "yellow", "none": "yellow"}


def draw(value: Object, console: Console) -> None:
    """Print what the releases say of the objects, then of the groups."""
    console.print(_objects(value["objects"], value["releases"]))
    for each in value["objects"]:
        for line in _details(each):
            console.print(line)
    for group in value["groups"]:
        console.print()
        _group(group, console)


def _objects(objects: Objects, releases: list[str]) -> Table:
    table = plain_table("Would the API server take it?", ("object", *releases))
    for each in objects:
        answers = ("",) * len(releases) if each["leftOut"] else [_answer(found) for found in each["releases"]]
        table.add_row(each["object"], *answers)
    return table


def _answer(found: Object) -> Text:
    if found["problem"]:
        return Text("no", style="red")
    if found["unknown"]:
        return Text("without fields", style="yellow")
    return Text("yes", style="green")


def _details(each: Object) -> list[Padding]:
    """What is wrong, once for the releases that say the same."""
    said: dict[str, list[str]] = {}
    for found in each["releases"]:
        for text in [found["problem"]] if found["problem"] else [*found["unknown"], *found["warnings"]]:
            said.setdefault(text, []).append(found["release"])
    return [
        Padding(Text.assemble((f"{each['object']}, {', '.join(names)}: ", "bold"), text), (0, 0, 0, 2))
        for text, names in said.items()
    ]


def _group(group: Object, console: Console) -> None:
    console.print(Text(group["object"], style="bold"))
    console.print(Padding(Text(_likeness(group)), (0, 0, 0, 2)))
    table = plain_table("", ("release", "becomes", "feature gates needed", "kube-scheduler", "Muster"))
    for found in group["releases"]:
        outcome = OUTCOMES[found["outcome"]].format(count=found["min_count"])
        gates = "\n".join(f"{gate['name']}: {gate['default']}" for gate in found["gates"])
        tried = [_tried(found["kubeScheduler"]), _tried(found["muster"])]
        table.add_row(found["release"], Text(outcome, style=STYLES[found["outcome"]]), gates, *tried)
    if not any(found["muster"] for found in group["releases"]):
        table.columns = table.columns[:3]
    console.print(Padding(table, (0, 0, 0, 2)))
    for found in group["releases"]:
        refused = [found["muster"]["message"]] if found["muster"] and found["muster"]["state"] == "Refused" else []
        for text in (*found["unmet"], *(f"cannot be tried: {each}" for each in refused)):
            console.print(Padding(Text.assemble((f"{found['release']}: ", "bold"), text), (0, 0, 0, 2)))


def _likeness(group: Object) -> str:
    rules = f"rules about other pods ({', '.join(group['rules'])})" if group["rules"] else ""
    if group["greedyIsEnough"]:
        return (
            "Its pods are alike and have no rules about each other: kube-scheduler's greedy cycle finds a placement "
            "if there is one."
        )
    what = " and ".join(
        part for part in ("" if group["homogeneous"] else f"{group['kinds']} kinds of pods", rules) if part
    )
    return f"It has {what}: kube-scheduler's greedy cycle may leave it pending though it fits; Muster does not."


def _tried(result: Object | None) -> Text:
    if result is None:
        return Text("")
    if result["state"] == "Placed":
        return Text(f"places {result['placed']} pods", style="green")
    words = {"Infeasible": "does not fit (proved)", "Undecided": "leaves it pending", "Refused": "cannot be tried"}
    return Text(words[result["state"]], style="red")
