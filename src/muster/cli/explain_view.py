"""Draws explanations (docs/explain-output.schema.json) for people, with rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from muster.api.codec import Object, Objects
from muster.cli.report_view import change_text, qualified
from muster.cli.tables import plain_table

STYLES = {
    "Placed": "green",
    "WouldBePlaced": "green",
    "Fits": "green",
    "Infeasible": "red",
    "Undecided": "yellow",
    "Waiting": "yellow",
}
WORDS = {
    "Placed": "placed",
    "WouldBePlaced": "would be placed",
    "Infeasible": "does not fit (proved)",
    "Undecided": "undecided: neither placed nor proved impossible",
    "Waiting": "waits",
    "Fits": "fits",
}
SHOWN = 8
SHOWN_NAMES = 4
INDENT = 2


def draw(value: Object, console: Console, *, everything: bool = False, objects: Iterable[Object] = ()) -> None:
    """Print all explanations; long lists are cut unless `everything`. `objects`: of the cluster, and asked about."""
    found = value["explanations"]
    if not found:
        console.print(nothing_waits(objects))
    for number, explanation in enumerate(found):
        if number:
            console.print()
        for part in _parts(explanation, None if everything else SHOWN):
            console.print(part)


def nothing_waits(objects: Iterable[Object]) -> str:
    """What is said where nothing is to be explained: what there is instead."""
    given = list(objects)
    pods = sum(obj["kind"] == "Pod" for obj in given)
    jobs = [qualified(obj["metadata"]) for obj in given if obj["kind"] == "Job" and obj["spec"].get("suspend")]
    text = f"{_number(pods, 'pod')}, all placed or ended" if pods else "there are no pods"
    others = Counter(obj["kind"] for obj in given if obj["kind"] != "Pod")
    if not pods and others:
        text += f" (but {', '.join(_number(number, kind) for kind, number in sorted(others.items()))})"
    suspended = f"; suspended: Job {', '.join(jobs)}" if jobs else ""
    return f"Nothing waits for a node: {text}{suspended}."


def _number(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x")) else "s"
    return f"{number} {noun}{ending}"


def _parts(explanation: Object, limit: int | None) -> Iterator[Text | Padding]:
    state = explanation["state"]
    yield Text.assemble(
        (f"{explanation['kind']} {qualified(explanation)}", "bold"), ": ", (WORDS[state], STYLES[state])
    )
    yield _indented(Text(_sentence(explanation["summary"])))
    if explanation["proof"] and explanation["proof"] not in explanation["summary"]:
        label = "Proof: " if state == "Infeasible" else "So far: "
        yield _indented(Text.assemble((label, "bold"), explanation["proof"]))
    for table in _tables(explanation, limit):
        yield Padding(table, (1, 0, 0, INDENT))
    if explanation["preemption"] is not None:
        yield Padding(_preemption(explanation["preemption"], limit), (1, 0, 0, INDENT))
    if explanation["changes"]:
        yield Padding(_changes(explanation["changes"]), (1, 0, 0, INDENT))


def _tables(explanation: Object, limit: int | None) -> Iterator[Table]:
    if explanation["placements"]:
        yield _placements(explanation["placements"], limit)
    if explanation["groups"] and explanation["state"] != "Placed":
        table = plain_table("Its groups", ("group", "state", "why"))
        for each in explanation["groups"][:limit]:
            table.add_row(each["group"], Text(WORDS[each["state"]], style=STYLES[each["state"]]), each["text"])
        yield _with_rest(table, len(explanation["groups"]), limit)
    if explanation["shapes"]:
        yield _shapes(explanation["shapes"], limit)
    if explanation["domains"]:
        table = plain_table(f"Domains of {explanation['domains'][0]['key']}", ("domain", "state", "why"))
        for each in explanation["domains"][:limit]:
            table.add_row(each["domain"], Text(WORDS[each["state"]], style=STYLES[each["state"]]), each["proof"])
        yield _with_rest(table, len(explanation["domains"]), limit)
    if explanation["nodes"]:
        yield _nodes(explanation["nodes"], limit)
    if explanation["holders"]:
        yield _holders(explanation["holders"], limit)


def _shapes(shapes: Objects, limit: int | None) -> Table:
    table = plain_table("What it asks for", ("pods", "each asks for", "room, alone", "what is free"))
    for shape in shapes[:limit]:
        room = Text(f"{shape['room']} on {shape['nodes']} nodes", style="" if shape["room"] >= shape["pods"] else "red")
        free = [f"{each['free']} {each['resource']}, on one node {each['mostOnANode']}" for each in shape["resources"]]
        table.add_row(str(shape["pods"]), shape["shape"], room, "\n".join(free))
    return _with_rest(table, len(shapes), limit)


def _nodes(nodes: Objects, limit: int | None) -> Table:
    """Nodes that say the same in one row."""
    alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for node in nodes:
        alike.setdefault((node["room"], tuple(node["reasons"])), []).append(node["node"])
    rows = sorted(alike.items(), key=lambda item: (-item[0][0], -len(item[1]), item[1]))
    table = plain_table("Nodes", ("nodes", "which", "why not"))
    for (room, reasons), names in rows[:limit]:
        why = Text(", ".join(reasons)) if reasons else Text(f"room for {room}", style="green")
        table.add_row(str(len(names)), _names(names, None if limit is None else SHOWN_NAMES), why)
    return _with_rest(table, len(rows), limit)


def _holders(holders: Objects, limit: int | None) -> Table:
    table = plain_table("Who holds the room", ("who", "pods", "nodes", "priority", "holds"))
    for each in holders[:limit]:
        holds = ", ".join(f"{amount} {name}" for name, amount in each["requests"].items())
        who = f"{each['kind']} {each['name'].removeprefix('default/')}"
        table.add_row(who, str(each["pods"]), str(each["nodes"]), str(each["priority"]), holds)
    return _with_rest(table, len(holders), limit)


def _placements(placements: Objects, limit: int | None) -> Table:
    by_node: dict[str, list[str]] = {}
    for each in placements:
        by_node.setdefault(each["node"], []).append(each["pod"].removeprefix("default/"))
    table = plain_table("Where", ("node", "pods", "which"))
    for node, pods in list(by_node.items())[:limit]:
        table.add_row(node, str(len(pods)), _names(pods, None if limit is None else SHOWN_NAMES))
    return _with_rest(table, len(by_node), limit)


def _preemption(preemption: Object, limit: int | None) -> Text:
    text = Text.assemble(("Preemption: ", "bold"), preemption["text"])
    for victim in preemption["victims"][:limit]:
        text.append(f"\n  {victim['pod']} on {victim['node']}, priority {victim['priority']}")
        text.append(f", with all of {victim['unit']}" if victim["unit"] else "")
    more = len(preemption["victims"]) - SHOWN
    return text.append(f"\n  … and {more} more") if limit is not None and more > 0 else text


def _changes(changes: Objects) -> Table:
    table = plain_table("It would run with one of these changes, each of them tried:")
    table.show_header = False
    table.add_column(width=1)
    table.add_column()
    for each in changes:
        table.add_row("→", Text(change_text(each), style="green"))
    return table


def _with_rest(table: Table, number: int, limit: int | None) -> Table:
    if limit is not None and number > limit:
        table.caption = f"… and {number - limit} more (--all shows them)"
        table.caption_justify = "left"
    return table


def _names(names: Sequence[str], limit: int | None) -> str:
    shown = ", ".join(names[:limit])
    return f"{shown}, …" if limit is not None and len(names) > limit else shown


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, INDENT))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""
