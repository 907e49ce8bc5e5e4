"""The report of a simulation as one HTML file that needs nothing else: pictures, timeline, tables, reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from muster.api.codec import Object, Objects
from muster.simulator.groups import GroupView, find_groups
from muster.simulator.report_moments import Stay, groups_over_time, levels_of, moments_of, stays_of
from muster.simulator.report_pictures import (
    Colours,
    cluster_picture,
    main_resource,
    nodes_a_cell,
    numbers_picture,
    timeline,
)
from muster.simulator.world import Outcome

MANY = 40
"""From so many groups on, the page also says how many ran and waited over time."""
MOST_ROWS = 300
"""So many groups are drawn, and reasons told, at most; the page says how many there are beside."""
MOST_LISTED = 5_000
"""So many groups are in the table at most."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --paper: #ffffff; --soft: #f1f3f5; --line: #c9ced6;
  --plain: #8b949e; --wait: #d8dce2; --bad: #c62828; --good: #2e7d32; --run: #2f7fd0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --paper: #14171c; --soft: #20252d; --line: #3d4550;
  --plain: #77808c; --wait: #363d48; --bad: #ff7b72; --good: #6fcf7c;
  --run: #4c9be8 } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem } h3 { font-size: 1rem; margin-bottom: .3rem }
h4 { font-size: .85rem; margin: .8rem 0 .2rem; font-weight: 600 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top } th { font-weight: 600 }
.rows { max-height: 45rem; overflow: auto } .rows th { position: sticky; top: 0; background: var(--paper) }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.domain { display: inline-block; margin: 0 10px 8px 0; padding: 6px; background: var(--soft); border-radius: 4px;
  vertical-align: top } .domain svg { display: block } figcaption { font-size: .75rem; margin-bottom: 4px }
.node { fill: var(--paper); stroke: var(--line) }
.slot { stroke: var(--paper); stroke-opacity: .8 } .wide { overflow-x: auto }
.timeline text { font-size: 11px; fill: var(--ink) } .tick { stroke: var(--line); stroke-opacity: .6 }
.waits, .some-wait { fill: var(--wait) } .some-run { fill: var(--run); fill-opacity: .55 }
.evicted { stroke: var(--bad); stroke-width: 2; fill: none }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em }
.plain { fill: var(--plain) } .bad { color: var(--bad) } .good { color: var(--good) } .more { color: var(--plain) }
"""
_KINDS = {"Unschedulable": "bad", "Failed": "bad", "Undecided": "bad"}
_GOOD = ("Running", "Scheduled", "Succeeded")


def html_report(outcome: Outcome, report: Object) -> str:
    """The page. `report`: what `muster.simulator.report` makes of the outcome."""
    stays, groups = stays_of(outcome), report["groups"]
    views = {f"{view.ref.namespace}/{view.ref.name}": view for view in find_groups(outcome.objects)}
    names = [_name(group) for group in groups]
    owners = sorted({stay.owner for stay in stays if stay.owner} - set(names))
    colours = Colours.of([*names, *owners])
    asked = sorted({key for view in views.values() for key in view.topology_keys})
    shown = _most_telling(groups, report["evictions"], MOST_ROWS)
    listed = _most_telling(groups, report["evictions"], MOST_LISTED)
    sections = [
        _summary(report),
        _pictures(outcome, report, stays, asked, colours),
        _section("Groups over time", _over_time(outcome, groups, shown, stays, colours)),
        _section(
            "Groups", _groups_table(listed, report["evictions"], colours, views) + _more(len(groups), MOST_LISTED)
        ),
        _section("What still waits, and why", _waiting(report)),
    ]
    head = f'<meta charset="utf-8"/><title>Simulation</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{"".join(sections)}\n</body></html>\n'


def _most_telling(groups: Objects, evictions: Objects, most: int) -> Objects:
    """At most so many groups, in their order: if there are more, those that do not run, were evicted or waited
    longest."""
    if len(groups) <= most:
        return groups
    lost = {each["group"] for each in evictions}

    def telling(at: int) -> tuple[bool, bool, float, int]:
        group = groups[at]
        first_s = group["first_scheduled_s"]
        return group["state"] in _GOOD, _name(group) not in lost, -(first_s or 0.0), at

    return [groups[at] for at in sorted(sorted(range(len(groups)), key=telling)[:most])]


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


_NOTHING_RUNS = '<p class="more">Nothing runs.</p>'


def _pictures(outcome: Outcome, report: Object, stays: Sequence[Stay], asked: list[str], colours: Colours) -> str:
    nodes = outcome.objects["nodes"]
    if not nodes:
        return ""
    resource, levels = main_resource(nodes), levels_of(nodes, asked)
    moments = moments_of(stays, [each["time_s"] for each in report["evictions"]], outcome.time_s)
    most, width = nodes_a_cell(nodes), escape(resource)
    what = f"A cell: up to {most} nodes of a domain; its width: their {width}" if most > 1 else f"A node: its {width}"
    parts = [f"<p>{what}. Colours: groups; grey: pods without one, and groups too small to be drawn.</p>"]
    for name, at_s in moments:
        picture = cluster_picture(nodes, stays, at_s, levels, resource, colours)
        parts.append(f"<h3>{escape(name.capitalize())}: {at_s:g} s</h3>{picture or _NOTHING_RUNS}")
    return _section(
        f"The cluster by {' and '.join(key.rpartition('/')[2] for key in levels) or 'node'}", "".join(parts)
    )


def _over_time(outcome: Outcome, groups: Objects, shown: Objects, stays: Sequence[Stay], colours: Colours) -> str:
    if not groups:
        return ""
    text = "Grey: waits. Pale: some pods run. Full: at least minCount run. Cross: evicted."
    picture = timeline(shown, stays, outcome.time_s, colours)
    numbers = ""
    if len(groups) >= MANY:
        numbers = numbers_picture(*groups_over_time(stays, groups), outcome.time_s)
        numbers = f'<p>Blue: how many groups run. Grey: how many wait.</p><div class="wide">{numbers}</div>'
    return f'{numbers}<p>{text}</p><div class="wide">{picture}</div>{_more(len(groups))}'


def _groups_table(groups: Objects, evictions: Objects, colours: Colours, views: Mapping[str, GroupView]) -> str:
    if not groups:
        return ""
    lost: dict[str, int] = {}
    for each in evictions:
        lost[each["group"] or ""] = lost.get(each["group"] or "", 0) + 1
    columns = (("Group", ""), ("State", ""), *((name, _RIGHT) for name in _NUMBERS), ("Topology", ""))
    head = "".join(f"<th{kind}>{name}</th>" for name, kind in columns)
    rows = "".join(_group_row(group, lost, colours, views.get(_name(group))) for group in groups)
    return f'<div class="rows"><table><tr>{head}</tr>{rows}</table></div>'


_NUMBERS = ("Scheduled", "Needs", "First scheduled", "Evicted")
_RIGHT = ' class="number"'


def _where(group: Object, view: GroupView | None) -> str:
    """The domains that a group is in; of the label that it must be in one domain of at least the name."""
    found = [f"{escape(_short(key))}: {escape(value)}" for key, value in sorted(group["topology"].items())]
    required = None if view is None else view.required_key
    if required is not None and required not in group["topology"]:
        found.insert(0, f'<span class="more">needs one {escape(_short(required))}</span>')
    return ", ".join(found)


def _name(group: Object) -> str:
    return f"{group['namespace']}/{group['name']}"


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _group_row(group: Object, lost: dict[str, int], colours: Colours, view: GroupView | None) -> str:
    name = _name(group)
    kind = "good" if group["state"] in _GOOD else _KINDS.get(group["state"], "")
    first = "" if group["first_scheduled_s"] is None else f"{group['first_scheduled_s']:g} s"
    numbers = (f"{group['scheduled']} of {group['members']}", str(group["min_count"]), first, str(lost.get(name, "")))
    key = f'<span class="key" style="background:{colours.of_group(name)}"></span>'
    cells = "".join(f'<td class="number">{escape(number)}</td>' for number in numbers)
    state = f'<td class="{kind}">{escape(group["state"])}</td>'
    return f"<tr><td>{key}{escape(name)}</td>{state}{cells}<td>{_where(group, view)}</td></tr>"


def _waiting(report: Object) -> str:
    """Groups that do not run with their explanation, those that wait for the same together; then other pods."""
    groups = [group for group in report["groups"] if group["state"] not in (*_GOOD, "Failed")]
    alike: dict[tuple[str, ...], Objects] = {}
    for group in groups:
        alike.setdefault(_question(group), []).append(group)
    parts = [_reason(each) for each in list(alike.values())[:MOST_ROWS]]
    pods = [pod for pod in report["pods"] if not pod["group"] and pod["node"] is None and pod["phase"] == "Pending"]
    parts += [
        f"<li><b>{escape(pod['namespace'])}/{escape(pod['name'])}</b>: {escape(pod['message'] or pod['reason'])}</li>"
        for pod in pods[:MOST_ROWS]
    ]
    if not parts:
        return "<p>Nothing.</p>"
    return f"<ul>{''.join(parts)}</ul>{_more(max(len(alike), len(pods)))}"


def _question(group: Object) -> tuple[str, ...]:
    """What groups have in common that wait for the same."""
    explanation = group["explanation"]
    if explanation is None:
        return group["state"], group["reason"], group["message"]
    return group["state"], explanation["summary"], *(change["text"] for change in explanation["changes"])


def _reason(groups: Objects) -> str:
    """Why the first of these groups waits; the others wait for the same."""
    group, explanation = groups[0], groups[0]["explanation"]
    said = group["message"] or group["reason"] or group["state"]
    names = ", ".join(f"<b>{escape(each['namespace'])}/{escape(each['name'])}</b>" for each in groups[:_MOST_NAMES])
    if len(groups) > _MOST_NAMES:
        names += f" and {len(groups) - _MOST_NAMES} more"
    parts = [f"{names} ({escape(group['state'])}): {escape(said)}"]
    if explanation is not None:
        parts.append(f"<br/>{escape(explanation['summary'])}")
        changes = "".join(f"<li>{escape(change['text'])}</li>" for change in explanation["changes"])
        parts.append(f"<br/>What would help:<ul>{changes}</ul>" if changes else "")
    return f"<li>{''.join(parts)}</li>"


_MOST_NAMES = 8


def _more(number: int, most: int | None = None) -> str:
    most = MOST_ROWS if most is None else most
    return f'<p class="more">{number - most} more are not shown.</p>' if number > most else ""
