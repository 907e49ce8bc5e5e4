"""Pictures of a cluster and of its gangs over time, as SVG. Pure; equal input gives equal bytes.

A node is a cell; its main resource (a device, else cpu) is its width, filled from the left by the pods that are on it,
in the colours of their groups. In large clusters a cell stands for the nodes of a domain, some of them if it is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.api.quantity import format_units, resource_units
from muster.simulator.report_moments import Stay, domains_of, numbers_over_time

_ROW = 16
_LABEL_WIDTH = 220
_TIMELINE_WIDTH = 760
_CURVE = 90
_MOST_SLOTS = 16
_GOLDEN_ANGLE = 137.508


Step: TypeAlias = tuple[float, int]
"""A time in seconds, and a number from then on."""


class Colours(Struct, frozen=True):
    """A colour for each group, by its place; plain pods are grey."""

    places: Mapping[str, int]

    @classmethod
    def of(cls, groups: Iterable[str]) -> Colours:
        """Colours for these groups, in their order."""
        return cls({group: place for place, group in enumerate(dict.fromkeys(groups))})

    def of_group(self, group: str) -> str:
        """A colour as CSS; neighbours in the order are far apart."""
        place = self.places.get(group)
        if place is None:
            return "#8b949e"
        lightness = (52, 42, 62)[place // 12 % 3]
        return f"hsl({place * _GOLDEN_ANGLE % 360:.0f} 62% {lightness}%)"


def main_resource(nodes: Objects) -> str:
    """What the cells show: the device that most nodes have, else cpu."""
    numbers: dict[str, int] = {}
    for node in nodes:
        for name, amount in _allocatable(node).items():
            if "/" in name and not name.startswith("hugepages-") and amount != "0":
                numbers[name] = numbers.get(name, 0) + 1
    return min(numbers, key=lambda name: (-numbers[name], name), default="cpu")


class _Size(Struct, frozen=True):
    """How large nodes are drawn, in pixels."""

    width: int
    height: int
    gap: int
    has_slots: bool = True

    def place(self, at: int, number: int) -> tuple[int, int]:
        """Where the node of that number is drawn among so many of its domain."""
        columns = _columns(number)
        return at % columns * (self.width + self.gap), at // columns * (self.height + self.gap)

    def extent(self, number: int) -> tuple[int, int]:
        """Width and height of a domain of so many nodes, with half a pixel around for the lines."""
        columns = min(number, _columns(number))
        rows = -(-number // columns)
        return columns * (self.width + self.gap) - self.gap + 1, rows * (self.height + self.gap) - self.gap + 1


_LARGE, _SMALL, _MANY = _Size(56, 20, 4), _Size(18, 9, 2, has_slots=False), _Size(72, 20, 4, has_slots=False)
_MOST_LARGE = 400
"""Of more nodes than these only small pictures are drawn."""
_MOST_SMALL = 1_200
"""Of more nodes than these, those of a domain are drawn together."""
_TOGETHER = 64
"""So many nodes are drawn as one at most."""
_MOST_NAMED = 8
"""So many groups are named for a cell, those that hold most."""
_NARROWEST = 0.6
"""What is narrower on a cell, in pixels, is drawn together with the other such."""


def nodes_a_cell(nodes: Objects) -> int:
    """How many nodes a cell of a picture of all nodes stands for at most."""
    return _TOGETHER if len(nodes) > _MOST_SMALL else 1


def _columns(number: int) -> int:
    return 4 if number <= 16 else 10 if number <= 200 else 40


def cluster_picture(
    nodes: Objects, stays: Sequence[Stay], at_s: float, levels: tuple[str, ...], resource: str, colours: Colours
) -> str:
    """All nodes, arranged by domain, with what runs on them at that moment; "" if nothing does."""
    running: dict[str, list[Stay]] = {}
    for stay in stays:
        if stay.takes_room_at(at_s):
            running.setdefault(stay.node, []).append(stay)
    if not running:
        return ""
    together = nodes_a_cell(nodes)
    size = _MANY if together > 1 else _LARGE if len(nodes) <= _MOST_LARGE else _SMALL
    parts = []
    outer: tuple[str, ...] | None = None
    for values, members in domains_of(nodes, levels).items():
        if len(levels) > 1 and values[:-1] != outer:
            outer = values[:-1]
            parts.append(f"<h4>{escape(' / '.join(value or 'no label' for value in outer))}</h4>")
        title = values[-1] or "no label" if values else "nodes"
        shown = [members[start : start + together] for start in range(0, len(members), together)]
        width, height = size.extent(len(shown))
        cells = "".join(
            _cell(part, running, resource, colours, size, size.place(at, len(shown))) for at, part in enumerate(shown)
        )
        parts.append(
            f'<figure class="domain"><figcaption>{escape(title)}</figcaption>'
            f'<svg width="{width}" height="{height}" role="img">{cells}</svg></figure>'
        )
    return "".join(parts)


def _cell(
    nodes: Objects,
    running: Mapping[str, Sequence[Stay]],
    resource: str,
    colours: Colours,
    size: _Size,
    place: tuple[int, int],
) -> str:
    """One node, or several. Amounts are drawn to scale; of nodes that lack the resource cpu is shown."""
    allocatable = [_allocatable(node) for node in nodes]
    shown = resource if any(resource in each for each in allocatable) else "cpu"
    whole = sum(resource_units(shown, each.get(shown, "0")) for each in allocatable)
    stays = [stay for node in nodes for stay in running.get(name_of(node), ())]
    held: dict[str, int] = {}
    for stay in stays:
        held[stay.owner] = held.get(stay.owner, 0) + stay.amounts.get(shown, 0)
    used = sum(held.values())
    shapes = [f'<rect class="node" width="{size.width}" height="{size.height}"/>']
    shapes += _filled(held, whole, size, colours)
    if not used and stays:  # pods that ask for none of it
        shapes.append(f'<circle cx="{size.width / 2}" cy="{size.height / 2}" r="3" class="plain"/>')
    shapes += _slots(whole, size) if shown != "cpu" and size.has_slots else []
    said = f"{format_units(shown, used)} of {format_units(shown, whole)} {shown}, {len(stays)} pods"
    lines = [f"{_names(nodes)}: {said}", *_holders(held, shown)]
    return (
        f'<g transform="translate({place[0] + 0.5} {place[1] + 0.5})">'
        f"<title>{escape(chr(10).join(lines))}</title>{''.join(shapes)}</g>"
    )


def _names(nodes: Objects) -> str:
    first, last = name_of(nodes[0]), name_of(nodes[-1])
    return first if len(nodes) == 1 else f"{len(nodes)} nodes, {first} to {last}"


def _holders(held: Mapping[str, int], resource: str) -> list[str]:
    """What groups hold, a line each; those that hold most, if there are many."""
    largest = sorted(held, key=lambda owner: (-held[owner], owner))[:_MOST_NAMED]
    lines = [f"{owner or 'plain pods'}: {format_units(resource, held[owner])}" for owner in largest]
    return lines if len(held) <= _MOST_NAMED else [*lines, f"and {len(held) - _MOST_NAMED} more groups"]


def _filled(held: Mapping[str, int], whole: int, size: _Size, colours: Colours) -> list[str]:
    """The part of each group from the left; at last, in grey, that of all whose own would hardly be seen."""
    widths = {owner: size.width * amount / whole for owner, amount in sorted(held.items())} if whole else {}
    parts = [(width, colours.of_group(owner)) for owner, width in widths.items() if width >= _NARROWEST]
    parts.append((sum(width for width in widths.values() if width < _NARROWEST), colours.of_group("")))
    shapes, x = list[str](), 0.0
    for width, colour in parts:
        if width >= _FINEST:
            shapes.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{size.height}" fill="{colour}"/>')
        x += width
    return shapes


_FINEST = 0.05
"""Pixels are written with one digit."""


def _slots(whole: int, size: _Size) -> list[str]:
    """Lines between the single devices of a node."""
    if not 1 < whole <= _MOST_SLOTS:
        return []
    xs = (size.width * place / whole for place in range(1, whole))
    return [f'<path d="M{x:.1f} 0V{size.height}" class="slot"/>' for x in xs]


def numbers_picture(waiting: Sequence[Step], running: Sequence[Step], end_s: float) -> str:
    """How many groups waited and how many ran, over time; steps are (time, number from then on)."""
    span_s, most = max(end_s, 1.0), max((number for _, number in (*waiting, *running)), default=0)
    if not most:
        return ""
    curves = "".join(
        f'<path class="{kind}" d="{_stairs(steps, end_s, span_s, most)}"><title>{kind}: at most '
        f"{max(number for _, number in steps)} groups</title></path>"
        for kind, steps in (("some-wait", waiting), ("some-run", running))
        if steps
    )
    return (
        f'<svg class="timeline" width="{_LABEL_WIDTH + _TIMELINE_WIDTH + 20}" height="{_CURVE + 24}" role="img">'
        f"<title>How many groups waited and ran</title>"
        f'<text x="{_LABEL_WIDTH - 6}" y="12" text-anchor="end">{most} groups</text>'
        f"{curves}{_axis(span_s, _CURVE)}</svg>"
    )


def _stairs(steps: Sequence[Step], end_s: float, span_s: float, most: int) -> str:
    """The area below a curve that is level between steps; of steps at one pixel the last is drawn."""
    heights: dict[int, float] = {}
    for at_s, number in steps:
        if at_s <= end_s:
            heights[round(_x(at_s, span_s))] = _CURVE * (1 - number / most)
    edges = [f"M{min(heights, default=_LABEL_WIDTH)} {_CURVE}"]
    edges += [f"H{x}V{y:.1f}" for x, y in sorted(heights.items())]
    return f"{''.join(edges)}H{_x(end_s, span_s):.0f}V{_CURVE}Z"


def timeline(groups: Objects, stays: Sequence[Stay], end_s: float, colours: Colours) -> str:
    """A row a group: when its pods waited, when some ran, when enough did, and when any was evicted."""
    by_owner: dict[str, list[Stay]] = {}
    for stay in stays:
        by_owner.setdefault(stay.owner, []).append(stay)
    span_s = max(end_s, 1.0)
    rows = [
        _row(place, group, by_owner.get(f"{group['namespace']}/{group['name']}", []), end_s, span_s, colours)
        for place, group in enumerate(groups)
    ]
    height = _ROW * len(groups) + 24
    return (
        f'<svg class="timeline" width="{_LABEL_WIDTH + _TIMELINE_WIDTH + 20}" height="{height}" role="img">'
        f"<title>When each group waited and ran</title>{''.join(rows)}{_axis(span_s, _ROW * len(groups))}</svg>"
    )


def _row(place: int, group: Object, stays: Sequence[Stay], end_s: float, span_s: float, colours: Colours) -> str:
    name, y = f"{group['namespace']}/{group['name']}", place * _ROW
    label = _shortened(name.removeprefix("default/"), _LABEL_WIDTH - 8)
    parts = [f'<text x="0" y="{y + 12}"><title>{escape(name)}</title>{escape(label)}</text>']
    if not stays:
        return "".join(parts)
    first_s, last_s = min(stay.created_s for stay in stays), min(end_s, max(stay.end_s for stay in stays))
    parts.append(_bar(first_s, last_s, span_s, y, "waits", f"waits from {first_s:g} s"))
    steps = _as_seen(numbers_over_time(stays), span_s)
    for (from_s, number), (to_s, _) in zip(steps, [*steps[1:], (end_s, 0)], strict=False):
        if number and from_s < end_s:
            is_whole = number >= group["min_count"]
            text = f"{number} pods from {from_s:g} s to {min(to_s, end_s):g} s"
            style = f'fill="{colours.of_group(name)}" fill-opacity="{1 if is_whole else 0.35}"'
            parts.append(_bar(from_s, min(to_s, end_s), span_s, y, "", text, style))
    evicted = {round(_x(min(stay.end_s, end_s), span_s)) for stay in stays if stay.evicted and stay.start_s is not None}
    parts += [f'<path class="evicted" d="M{x - 4} {y + 3}l8 9m0 -9l-8 9"/>' for x in sorted(evicted)]
    return "".join(parts)


def _as_seen(steps: Sequence[Step], span_s: float) -> list[Step]:
    """The steps; of those at one pixel only the last, of equal neighbours only the first."""
    at_pixel = {round(_x(at_s, span_s)): (at_s, number) for at_s, number in steps}
    seen: list[Step] = []
    for step in at_pixel.values():
        if not seen or seen[-1][1] != step[1]:
            seen.append(step)
    return seen


_WIDE, _NARROW = frozenset("mwMW@%"), frozenset("ijlt.,:;|!'-/ ")


def text_width(text: str) -> float:
    """At most so many pixels a text of the timeline takes, in the usual fonts."""
    return sum(10.0 if each in _WIDE else 4.5 if each in _NARROW else 8.0 if each.isupper() else 7.0 for each in text)


def _shortened(text: str, width: float) -> str:
    """The text, or so much of its beginning and end that it is not wider."""
    if text_width(text) <= width:
        return text
    half = len(text) // 2
    while half and text_width(f"{text[:half]}…{text[-half:]}") > width:
        half -= 1
    return f"{text[:half]}…{text[-half:]}" if half else "…"


def _bar(from_s: float, to_s: float, span_s: float, y: int, kind: str, text: str, style: str = "") -> str:
    x = _x(from_s, span_s)
    width = max(1.0, _x(to_s, span_s) - x)
    name = f' class="{kind}"' if kind else ""
    return (
        f'<rect{name} x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{_ROW - 5}" {style}>'
        f"<title>{escape(text)}</title></rect>"
    )


def _x(time_s: float, span_s: float) -> float:
    return _LABEL_WIDTH + _TIMELINE_WIDTH * min(1.0, time_s / span_s)


def _axis(span_s: float, y: int) -> str:
    """Ticks at five equal steps."""
    ticks = []
    for step in range(6):
        at_s = span_s * step / 5
        x = _x(at_s, span_s)
        anchor = "end" if step == 5 else "middle"
        ticks.append(f'<path class="tick" d="M{x:.1f} 0V{y + 4}"/>')
        ticks.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="{anchor}">{_short(at_s)}</text>')
    return "".join(ticks)


def _short(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _allocatable(node: Object) -> dict[str, str]:
    found: dict[str, str] = {name: str(amount) for name, amount in (node["status"].get("allocatable") or {}).items()}
    return found
