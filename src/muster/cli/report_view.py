"""Draws the report of a simulation (docs/simulate-output.schema.json) for people, with rich."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.api.codec import JSON, Object, Objects
from muster.cli.durations import format_duration
from muster.cli.tables import plain_table
from muster.simulator.refusals import standing_refusals

STATE_STYLES = {
    "Succeeded": "green",
    "Running": "green",
    "Scheduled": "cyan",
    "Pending": "yellow",
    "Gated": "yellow",
    "Undecided": "yellow",
    "Unschedulable": "red",
    "Failed": "red",
}
SHOWN_PODS = 50
SHOWN_NODES = 30


def draw(report: Object, console: Console, *, events: bool = False, everything: bool = False) -> None:
    """Print groups, pods, nodes and evictions, events if asked for; long lists are cut unless `everything`."""
    console.print(headline(report))
    _section(console, groups_table, report["groups"])
    for group in report["groups"]:
        for line in explanation_lines(group):
            console.print(line)
    of_groups = frozenset(group["message"] for group in report["groups"] if group["message"])
    draw_pods = partial(pods_table, of_groups=of_groups)
    _section(console, draw_pods, report["pods"], None if everything else SHOWN_PODS)
    _section(console, nodes_table, report["nodes"], None if everything else SHOWN_NODES)
    _section(console, refusals_table, standing_refusals(report["events"]))
    _section(console, evictions_table, report["evictions"])
    _section(console, events_table, report["events"] if events else [])
    for violation in report["invariants"]["violations"]:
        console.print(Text(f"Violated: {violation['invariant']}: {violation['text']}", style="bold red"))


def headline(report: Object) -> Text:
    """One sentence: how long it took, and what became of how many groups and pods."""
    text = Text(f"After {format_duration(report['time_s'])}: ", style="bold")
    if not report["pods"] and not report["groups"]:
        return text.append("there were no pods to run")
    if report["groups"]:
        text.append("groups: ").append_text(_counts([group["state"] for group in report["groups"]])).append("; ")
    return text.append("pods: ").append_text(_counts([pod["phase"] for pod in report["pods"]]))


def groups_table(groups: Objects) -> Table:
    """Groups: how many members are scheduled of how many, since when, and why not."""
    table = plain_table("Groups", ("group", "kind", "state", "scheduled", "needs", "first scheduled", "why"))
    for group in groups:
        state = group["state"]
        table.add_row(
            qualified(group),
            group["kind"],
            Text(state, style=STATE_STYLES.get(state, "")),
            f"{group['scheduled']} of {group['members']}",
            str(group["min_count"]),
            _moment(group["first_scheduled_s"]),
            "" if state in ("Succeeded", "Running") else "see below" if group["explanation"] else reason_text(group),
        )
    return table


def explanation_lines(group: Object) -> list[Text]:
    """Why a group does not run and what would help, as indented lines; none if it has no explanation."""
    explanation = group.get("explanation")
    if not explanation:
        return []
    lines = [Text.assemble((f"{qualified(group)}: ", "bold"), explanation["summary"])]
    lines += [Text.assemble("  → ", (change_text(change), "green")) for change in explanation["changes"]]
    return lines


def change_text(change: Object) -> str:
    """A change that would let the group run, and whether less was proved not to be enough."""
    return f"{change['text']} (nothing less is enough)" if change.get("minimal") else str(change["text"])


def pods_table(pods: Objects, of_groups: frozenset[str] = frozenset()) -> Table:
    """Pods: where each runs or why it waits; what is said of its group already (`of_groups`) is not repeated."""
    table = plain_table("Pods", ("pod", "group", "node", "phase", "scheduled", "finished", "why"))
    for pod in pods:
        phase = pod["phase"]
        table.add_row(
            qualified(pod),
            pod["group"] or "",
            pod["node"] or "",
            Text(phase, style=STATE_STYLES.get(phase, "")),
            _moment(pod["scheduled_s"]),
            _moment(pod["finished_s"]),
            "" if pod["node"] else "see its group" if pod["message"] in of_groups else reason_text(pod),
        )
    return table


def nodes_table(nodes: Objects) -> Table:
    """Nodes: what is requested of what there is, a column a resource that any node has."""
    names = resource_names(nodes)
    table = plain_table("Nodes (requested of allocatable)", ("node", *(_short(name) for name in names)))
    for node in nodes:
        cells = [_share(node["requested"].get(name), node["allocatable"].get(name)) for name in names]
        table.add_row(node["name"], *cells)
    return table


def evictions_table(evictions: Objects) -> Table:
    """Evictions: who had to go, for whom, when."""
    table = plain_table("Evictions", ("time", "pod", "group", "by"))
    for eviction in evictions:
        table.add_row(_moment(eviction["time_s"]), eviction["pod"], eviction["group"] or "", eviction["by"] or "")
    return table


def refusals_table(refusals: Objects) -> Table:
    """What the API server refuses to make for its owner, which goes on trying."""
    table = plain_table("Could not be made", ("for", "why"))
    for event in refusals:
        table.add_row(f"{event['kind']} {qualified(event)}", event["message"])
    return table


def events_table(events: Objects) -> Table:
    """Events in order of time."""
    table = plain_table("Events", ("time", "object", "type", "reason", "message"))
    for event in events:
        style = "yellow" if event["type"] == "Warning" else ""
        name = f"{event['kind']} {qualified(event)}"
        table.add_row(
            _moment(event["time_s"]), name, Text(event["type"], style=style), event["reason"], event["message"]
        )
    return table


def resource_names(nodes: Objects) -> list[str]:
    """Resources that any of the nodes has, the usual ones first."""
    present = {name for node in nodes for name in node["allocatable"]}
    usual = [name for name in ("cpu", "memory", "pods") if name in present]
    return usual + sorted(present - {*usual, "ephemeral-storage"})


def qualified(item: Object) -> str:
    """`namespace/name`; the name alone in the default namespace and for objects of the cluster."""
    namespace = item.get("namespace")
    return f"{namespace}/{item['name']}" if namespace and namespace != "default" else str(item["name"])


def reason_text(item: Object) -> str:
    """The message, else the reason, else nothing."""
    return str(item.get("message") or item.get("reason") or "")


def _section(
    console: Console, draw_table: Callable[[Objects], Table], items: Objects, limit: int | None = None
) -> None:
    if not items:
        return
    console.print()
    console.print(draw_table(items[:limit]))
    if limit is not None and len(items) > limit:
        console.print(f"… and {len(items) - limit} more (--all shows them)", style="dim")


def _counts(states: Sequence[str]) -> Text:
    """`3 Running, 1 Failed`, in the colours of the states; `none` without any."""
    text = Text()
    for state in sorted(set(states)):
        text.append(", " if text else "").append(f"{states.count(state)} {state}", style=STATE_STYLES.get(state, ""))
    return text or Text("none")


def _moment(seconds: JSON) -> str:
    return "" if seconds is None else format_duration(float(seconds))


def _share(requested: JSON, allocatable: JSON) -> str:
    if allocatable is None:
        return ""
    return f"{'0' if requested is None else requested} of {allocatable}"


def _short(resource: str) -> str:
    return resource.rpartition("/")[2] if resource.endswith("/gpu") else resource
