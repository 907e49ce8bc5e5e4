"""The pictures of a report by their numbers: nothing outside of its picture, no text over another, and not too much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from muster.api.codec import Objects
from muster.simulator.report_moments import LEVELS, Stay, levels_of
from muster.simulator.report_pictures import Colours, cluster_picture, numbers_picture, text_width, timeline
from muster.testing import make_node

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def svgs(page: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(f"<div>{page}</div>").iter("svg"))


def boxes(svg: ElementTree.Element) -> Iterator[tuple[str, Box]]:
    """What each rectangle, circle, path and text of a picture takes, by its tag."""

    def walk(element: ElementTree.Element, x: float, y: float) -> Iterator[tuple[str, Box]]:
        for each in element:
            own = {name: each.attrib.get(name, "0") for name in ("x", "y", "width", "height", "cx", "cy", "r")}
            at = {name: float(value) for name, value in own.items()}
            if each.tag == "g":
                dx, dy = each.attrib["transform"].removeprefix("translate(").removesuffix(")").split()
                yield from walk(each, x + float(dx), y + float(dy))
            elif each.tag == "rect":
                left, top = x + at["x"], y + at["y"]
                yield "rect", (left, top, left + at["width"], top + at["height"])
            elif each.tag == "circle":
                yield (
                    "circle",
                    (
                        *(x + at["cx"] - at["r"], y + at["cy"] - at["r"]),
                        *(x + at["cx"] + at["r"], y + at["cy"] + at["r"]),
                    ),
                )
            elif each.tag == "text":
                said = (each.text or "") + "".join(inner.tail or "" for inner in each)
                anchor = {"end": 1.0, "middle": 0.5}.get(each.attrib.get("text-anchor", ""), 0.0)
                left = x + at["x"] - anchor * text_width(said)
                yield "text", (left, y + at["y"] - 9, left + text_width(said), y + at["y"] + 3)
            elif each.tag == "path":
                yield "path", path_box(each.attrib["d"], x, y)

    yield from walk(svg, 0.0, 0.0)


def path_box(d: str, x: float, y: float) -> Box:
    """Paths here are of M, H and V with absolute numbers, of l and m with relative ones, and of Z."""
    points: list[tuple[float, float]] = []
    for letter, numbers in re.findall(r"([MHVlm])([^MHVlmZ]*)", d):
        values = [float(each) for each in re.findall(r"-?[\d.]+", numbers)]
        if letter == "H":
            points.append((values[0], points[-1][1]))
        elif letter == "V":
            points.append((points[-1][0], values[0]))
        else:
            base = (0.0, 0.0) if letter == "M" else points[-1]
            points.append((base[0] + values[0], base[1] + values[1]))
    xs, ys = zip(*points, strict=True)
    return x + min(xs), y + min(ys), x + max(xs), y + max(ys)


def judge(svg: ElementTree.Element) -> None:
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    found = list(boxes(svg))
    for tag, (left, top, right, bottom) in found:
        assert left >= -0.01 and top >= -0.01, (tag, left, top)
        assert right <= width + 0.01 and bottom <= height + 0.01, (tag, right, bottom, width, height)
    texts = sorted(box for tag, box in found if tag == "text")
    for at, one in enumerate(texts):
        for other in texts[at + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, (one, other)


def cluster(number: int, racks: int, gpus: int) -> Objects:
    nodes = []
    for at in range(number):
        labels = {LEVELS[0]: f"zone-{at % racks % 3}", LEVELS[2]: f"rack-{at % racks}"} if racks else {}
        nodes.append(make_node(f"node-{at}", cpu="64", gpu=gpus, labels=labels))
    return nodes


def stays_on(nodes: Objects, pods: int, groups: int) -> list[Stay]:
    """Pods of groups on nodes that are then full, and some that came late or were evicted."""
    random, found = Random(1), list[Stay]()
    for node in nodes:
        for at in range(pods):
            begin = float(random.randrange(100))
            found.append(
                Stay(
                    f"default/p{len(found)}",
                    f"default/g{random.randrange(groups)}" if at else "",
                    node["metadata"]["name"],
                    begin,
                    begin + 1,
                    begin + random.randrange(2, 900),
                    {"cpu": 64_000 // pods, "nvidia.com/gpu": 8 // pods},
                    evicted=random.random() < 0.1,
                )
            )
    return found


@pytest.mark.parametrize("racks", [0, 7])
@pytest.mark.parametrize(("number", "gpus"), [(1, 8), (40, 8), (500, 0), (1_300, 0)])
def test_nodes_are_drawn_inside_of_their_pictures_without_touching(number: int, gpus: int, racks: int) -> None:
    nodes = cluster(number, racks, gpus)
    stays, resource = stays_on(nodes, 4, 9), "nvidia.com/gpu" if gpus else "cpu"
    colours = Colours.of(f"default/g{at}" for at in range(9))
    pictures = svgs(cluster_picture(nodes, stays, 101.0, levels_of(nodes, ()), resource, colours))
    assert pictures
    for svg in pictures:
        judge(svg)
        frames = []
        for cell in svg.iter("g"):
            frame = ElementTree.Element("svg", {"width": "9999", "height": "9999"})
            frame.append(cell)
            frames.append(next(box for tag, box in boxes(frame) if tag == "rect"))
            assert all(box[2] <= frames[-1][2] + 0.06 for _, box in boxes(frame)), "pods are within their cell"
        for one, other in pairwise(sorted(frames, key=lambda box: (box[1], box[0]))):
            assert one[2] < other[0] or one[3] < other[1]


def groups_of(number: int, name: str = "g") -> Objects:
    return [{"namespace": "default", "name": f"{name}{at}", "min_count": 2} for at in range(number)]


@pytest.mark.parametrize("name", ["g", "training-of-the-largest-model-we-have-ever-seen-", "m" * 60])
def test_rows_of_the_timeline_are_below_each_other_and_names_beside_them(name: str) -> None:
    stays = stays_on(cluster(30, 3, 0), 4, 20)
    stays = [replace(each, owner=each.owner.replace("default/g", f"default/{name}")) for each in stays]
    colours = Colours.of(f"default/{name}{at}" for at in range(20))
    (svg,) = svgs(timeline(groups_of(20, name), stays, 500.0, colours))
    judge(svg)
    found = list(boxes(svg))
    beside = max(box[2] for tag, box in found if tag == "text" and box[0] == 0.0)
    assert beside < min(box[0] for tag, box in found if tag == "rect")


@pytest.mark.parametrize("end_s", [0.0, 0.4, 59.0, 86_400.0, 31_536_000.0])
def test_curves_and_their_axis_are_inside_of_the_picture(end_s: float) -> None:
    (svg,) = svgs(numbers_picture([(0.0, 2_000), (end_s / 2, 0)], [(end_s / 3, 1_234)], end_s))
    judge(svg)


def test_many_nodes_are_drawn_by_domain() -> None:
    nodes = cluster(5_000, 250, 0)
    stays = stays_on(nodes, 4, 2_000)
    picture = cluster_picture(nodes, stays, 101.0, levels_of(nodes, ()), "cpu", Colours.of(()))
    titles = [each.text or "" for svg in svgs(picture) for each in svg.iter("title")]
    assert len(titles) == 250
    assert all(title.startswith("20 nodes, node-") for title in titles)
    assert all(len(title.splitlines()) <= 10 for title in titles)
    assert len(picture) < 1_000_000


def test_what_happens_within_a_pixel_is_drawn_once() -> None:
    group = groups_of(1)
    stays = [
        Stay("default/p", "default/g0", "n", 0.0, at / 100, at / 100 + 0.001, {}, evicted=True) for at in range(999)
    ]
    (svg,) = svgs(timeline(group, stays, 1_000.0, Colours.of(())))
    assert len(list(svg.iter("rect"))) + len([p for p in svg.iter("path") if p.attrib["class"] == "evicted"]) < 40
