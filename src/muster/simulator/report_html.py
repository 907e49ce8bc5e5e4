"""The report of a simulation as one HTML file that needs nothing else: pictures, timeline, tables, reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from muster.api.codec import Object, Objects
from muster.simulator.report_moments import Stay, levels_of, moments_of, stays_of
from muster.simulator.report_pictures import Colours, cluster_picture, main_resource, timeline
from muster.simulator.world import Outcome

MOST_ROWS = 300
"""So many groups are drawn and listed at most; the page says how many there are beside."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --paper: #ffffff; --soft: #f1f3f5; --line: #c9ced6;
  --plain: #8b949e; --wait: #d8dce2; --bad: #c62828; --good: #2e7d32 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --paper: #14171c; --soft: #20252d; --line: #3d4550;
  --plain: #77808c; --wait: #363d48; --bad: #ff7b72; --good: #6fcf7c } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem } h3 { font-size: 1rem; margin-bottom: .3rem }
h4 { font-size: .85rem; margin: .8rem 0 .2rem; font-weight: 600 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top } th { font-weight: 600 }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.domain { display: inline-block; margin: 0 10px 8px 0; padding: 6px; background: var(--soft); border-radius: 4px;
  vertical-align: top } .domain > div { display: flex; flex-wrap: wrap; gap: 4px; max-width: 240px }
figcaption { font-size: .75rem; margin-bottom: 4px }
.node { background: var(--paper); border: 1px solid var(--line); border-radius: 2px }
.slot { stroke: var(--paper); stroke-opacity: .8 } .wide { overflow-x: auto }
.timeline text { font-size: 11px; fill: var(--ink) } .tick { stroke: var(--line); stroke-opacity: .6 }
.waits { fill: var(--wait) } .evicted { stroke: var(--bad); stroke-width: 2; fill: none }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em }

.plain { fill: var(--plain) } .bad { color: var(--bad) } .good { color: var(--good) } .more { color: var(--plain) }
"""
_COLUMNS = ("Group", "State", "Scheduled", "Needs", "First scheduled", "Evicted", "Topology")
_RIGHT = ' class="number"'
_KINDS = {"Unschedulable": "bad", "Failed": "bad", "Undecided": "bad"}
_GOOD = ("Running", "Scheduled", "Succeeded")


def html_report(outcome: Outcome, report: Object) -> str:
    """The page. `report`: what `muster.simulator.report` makes of the outcome."""
    stays, groups = stays_of(outcome), report["groups"]
    names = [f"{group['namespace']}/{group['name']}" for group in groups]
    owners = sorted({stay.owner for stay in stays if stay.owner} - set(names))
    colours = Colours.of([*names, *owners])
    asked = sorted({key for group in groups for key in group["topology"]})
    sections = [
        _summary(report),
        _pictures(outcome, report, stays, asked, colours),
        _section("Groups over time", _over_time(outcome, groups, stays, colours)),
        _section("Groups", _groups_table(groups, report["evictions"], colours)),
        _section("What still waits, and why", _waiting(report)),
    ]
    head = f'<meta charset="utf-8"/><title>Simulation</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{"".join(sections)}\n</body></html>\n'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n" if body else ""


def _summary(report: Object) -> str:
    groups, pods = report["groups"], report["pods"]
    violations = report["invariants"]["violations"]
    rows = [
        ("Virtual time", f"{report['time_s']:g} s"),
        ("Seed", str(report["seed"])),
        ("Nodes", str(len(report["nodes"]))),
        ("Groups", _counted([group["state"] for group in groups])),
        ("Pods", _counted([pod["phase"] for pod in pods])),
        ("Evictions", _counted([f"by {each['by']}" for each in report["evictions"]]) or "none"),
        ("Violated rules", str(len(violations)) if violations else "none"),
    ]
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<h1>Simulation</h1><table>{cells}</table>\n"


def _counted(values: Iterable[str]) -> str:
    numbers: dict[str, int] = {}
    for value in values:
        numbers[value] = numbers.get(value, 0) + 1
    return ", ".join(f"{number} {value}" for value, number in sorted(numbers.items()))


def _pictures(outcome: Outcome, report: Object, stays: Sequence[Stay], asked: list[str], colours: Colours) -> str:
    nodes = outcome.objects["nodes"]
    if not nodes:
        return ""
    resource, levels = main_resource(nodes), levels_of(nodes, asked)
    moments = moments_of(stays, [each["time_s"] for each in report["evictions"]], outcome.time_s)
    parts = [f"<p>Width of a node: its {escape(resource)}. Colours: groups; grey: pods without one.</p>"]
    for name, at_s in moments:
        picture = cluster_picture(nodes, stays, at_s, levels, resource, colours)
        parts.append(f"<h3>{escape(name.capitalize())}: {at_s:g} s</h3>{picture}")
    return _section(
        f"The cluster by {' and '.join(key.rpartition('/')[2] for key in levels) or 'node'}", "".join(parts)
    )


def _over_time(outcome: Outcome, groups: Objects, stays: Sequence[Stay], colours: Colours) -> str:
    if not groups:
        return ""
    text = "Grey: waits. Pale: some pods run. Full: at least minCount run. Cross: evicted."
    picture = timeline(groups[:MOST_ROWS], stays, outcome.time_s, colours)
    return f'<p>{text}</p><div class="wide">{picture}</div>{_more(len(groups))}'


def _groups_table(groups: Objects, evictions: Objects, colours: Colours) -> str:
    if not groups:
        return ""
    lost: dict[str, int] = {}
    for each in evictions:
        lost[each["group"] or ""] = lost.get(each["group"] or "", 0) + 1
    head = "".join(
        f"<th>{name}</th>"
        for name in ("Group", "State", "Scheduled", "Needs", "First scheduled", "Evicted", "Topology")
    )
    rows = "".join(_group_row(group, lost, colours) for group in groups[:MOST_ROWS])
    return f"<table><tr>{head}</tr>{rows}</table>{_more(len(groups))}"


def _group_row(group: Object, lost: dict[str, int], colours: Colours) -> str:
    name = f"{group['namespace']}/{group['name']}"
    kind = "good" if group["state"] in _GOOD else _KINDS.get(group["state"], "")
    first = "" if group["first_scheduled_s"] is None else f"{group['first_scheduled_s']:g} s"
    where = ", ".join(f"{key.rpartition('/')[2]} {value}" for key, value in sorted(group["topology"].items()))
    numbers = (f"{group['scheduled']} of {group['members']}", str(group["min_count"]), first, str(lost.get(name, "")))
    key = f'<span class="key" style="background:{colours.of_group(name)}"></span>'
    cells = "".join(f'<td class="number">{escape(number)}</td>' for number in numbers)
    state = f'<td class="{kind}">{escape(group["state"])}</td>'
    return f"<tr><td>{key}{escape(name)}</td>{state}{cells}<td>{escape(where)}</td></tr>"


def _waiting(report: Object) -> str:
    """Groups that do not run with their explanation, then pods without a group."""
    groups = [group for group in report["groups"] if group["state"] not in (*_GOOD, "Failed")]
    parts = [_reason(group) for group in groups[:MOST_ROWS]]
    pods = [pod for pod in report["pods"] if not pod["group"] and pod["node"] is None and pod["phase"] == "Pending"]
    parts += [
        f"<li><b>{escape(pod['namespace'])}/{escape(pod['name'])}</b>: {escape(pod['message'] or pod['reason'])}</li>"
        for pod in pods[:MOST_ROWS]
    ]
    if not parts:
        return "<p>Nothing.</p>"
    return f"<ul>{''.join(parts)}</ul>{_more(max(len(groups), len(pods)))}"


def _reason(group: Object) -> str:
    name, explanation = f"{group['namespace']}/{group['name']}", group["explanation"]
    said = group["message"] or group["reason"] or group["state"]
    parts = [f"<b>{escape(name)}</b> ({escape(group['state'])}): {escape(said)}"]
    if explanation is not None:
        parts.append(f"<br/>{escape(explanation['summary'])}")
        changes = "".join(f"<li>{escape(change['text'])}</li>" for change in explanation["changes"])
        parts.append(f"<ul>{changes}</ul>" if changes else "")
    return f"<li>{''.join(parts)}</li>"


def _more(number: int) -> str:
    return f'<p class="more">{number - MOST_ROWS} more are not shown.</p>' if number > MOST_ROWS else ""
