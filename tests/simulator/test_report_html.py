"""The page of a simulation: one well-formed file, the same each time, with every node, group and reason in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from muster.api.codec import Object
from muster.cli.main import main
from muster.nodes.spec import parse_node_spec
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.report_html import html_report
from muster.simulator.report_moments import Stay, groups_over_time, moments_of, numbers_over_time
from muster.simulator.run import simulate
from muster.simulator.world import Outcome, manifests_of
from muster.testing import make_group, make_pod


def gang(name: str, size: int, priority: int) -> list[Object]:
    # The classes below give the numbers; the pods say the same.
    pods = [
        make_pod(f"{name}-{at}", gpu=8, group=name, spec={"priorityClassName": f"p{priority}"}) for at in range(size)
    ]
    return [make_group(name, min_count=size, priorityClassName=f"p{priority}"), *pods]


def outcome() -> Outcome:
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"p{value}"},
            "value": value,
        }
        for value in (1, 9)
    ]
    plain = make_pod("plain", gpu=2)
    first = [*classes, *gang("old", 3, 1), plain]
    later = [*gang("new", 3, 9), *gang("wide", 9, 1)]
    spec = parse_node_spec("count=4,cpu=8,nvidia.com/gpu=8,racks=2,zones=2")
    options = ClusterOptions(node_events=False)
    return simulate(
        manifests_of(first), timed=[(60.0, manifests_of(later))], nodes=[spec], options=options, until_s=600
    )


def test_the_page_is_one_file_with_everything_in_it() -> None:
    found = outcome()

    page = html_report(found, report(found))

    root = ElementTree.fromstring(page.removeprefix("<!doctype html>\n"))
    titles = Counter(
        (each.text or "").partition(":")[0] for each in root.iter("title") if (each.text or "").startswith("node-")
    )
    pictures = [each.text or "" for each in root.iter("h3")]
    assert set(titles) == {f"node-{at}" for at in range(4)}
    assert set(titles.values()) == {len(pictures)}
    assert pictures[0].startswith(("Before", "Busiest"))
    assert pictures[-1].startswith("At the end")
    assert [each.text for each in root.iter("h4")] == ["zone-0", "zone-1"] * len(pictures)
    text = " ".join(root.itertext())
    assert "default/wide (Unschedulable)" in " ".join(text.split())
    assert "by default/new" in text
    assert not any(word in page for word in ("http:", "https:", "<script", "<link", "@import", "url("))


def test_equal_runs_give_equal_pages() -> None:
    one, other = outcome(), outcome()

    assert html_report(one, report(one)) == html_report(other, report(other))


def test_names_cannot_break_the_page() -> None:
    found = outcome()
    shown = report(found)
    shown["groups"][0]["message"] = "<b>&\"'"
    shown["groups"][0]["state"] = "Unschedulable"

    page = html_report(found, shown)

    assert "&lt;b&gt;&amp;" in page
    assert ElementTree.fromstring(page.removeprefix("<!doctype html>\n")) is not None


def stay(start_s: float | None, end_s: float, created_s: float = 0.0) -> Stay:
    return Stay("default/p", "", "n", created_s, start_s, end_s, {}, evicted=False)


def test_moments_are_before_the_first_eviction_the_busiest_and_the_end() -> None:
    stays = [stay(0.0, 10.0), stay(5.0, 10.0), stay(None, 100.0, 20.0)]

    assert moments_of(stays, [8.0], 50.0) == [("busiest moment", 5.0), ("before", 7.999), ("at the end", 50.0)]
    assert moments_of(stays, [], 50.0)[1] == ("before", 19.999)
    assert moments_of([], [], 0.0) == [("before", 0.0)]
    assert numbers_over_time(stays) == [(0.0, 1), (5.0, 2), (10.0, 0)]


def test_a_simulation_without_nodes_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    examples = Path(__file__).parents[2] / "examples"

    assert main(["simulate", "-f", str(examples / "gang-pods.yaml"), "--report", str(file)]) == 0

    assert "What still waits, and why" in file.read_text()
    assert "After " in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = Path(__file__).parents[2] / "examples"

    code = main(["simulate", "-f", str(examples / "gang-pods.yaml"), "--report", str(tmp_path)])

    assert code == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_group_that_waits_says_which_domain_it_needs_and_one_that_runs_where_it_is() -> None:
    rack = {"topology": [{"key": "topology.kubernetes.io/rack"}]}
    groups = [make_group(name, min_count=3, schedulingConstraints=rack) for name in ("fits", "waits", "waits-too")]
    sizes = {"fits": 1, "waits": 8, "waits-too": 8}
    pods = [make_pod(f"{name}-{at}", gpu=gpu, group=name) for name, gpu in sizes.items() for at in range(3)]
    spec = parse_node_spec("count=4,cpu=8,nvidia.com/gpu=8,racks=2")
    found = simulate(manifests_of([*groups, *pods]), nodes=[spec], until_s=600)

    text = " ".join(" ".join(ElementTree.fromstring(html_report(found, report(found))[16:]).itertext()).split())

    assert "rack: rack-0" in text
    assert text.count("needs one rack") == 2
    assert "default/waits , default/waits-too (Unschedulable)" in text, "what waits for the same is told once"
    assert text.count("What would help:") == 1
    assert "Nothing runs." in text, "there is no picture of an empty cluster"


def test_groups_over_time_run_from_min_count_on_and_wait_before() -> None:
    pods = [(0.0, 5.0), (2.0, 9.0), (3.0, 7.0)]
    stays = [Stay(f"default/p{at}", "default/g", "n", 0.0, *span, {}, evicted=False) for at, span in enumerate(pods)]
    group = {"namespace": "default", "name": "g", "min_count": 2}

    waiting, running = groups_over_time(stays, [group, {**group, "name": "without-pods"}])

    assert running == [(2.0, 1), (7.0, 0)]
    assert waiting == [(0.0, 1), (2.0, 0), (7.0, 1), (9.0, 0)]


def test_nodes_of_a_domain_are_drawn_in_rows_without_touching() -> None:
    found = outcome()
    page = ElementTree.fromstring(html_report(found, report(found))[16:])
    for figure in page.iter("figure"):
        svg = figure.find("svg")
        assert svg is not None
        places = {each.attrib["transform"] for each in svg.iter("g")}
        assert len(places) == len(list(svg.iter("g"))) == 2


def test_of_many_groups_all_are_listed_and_the_most_telling_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.simulator.report_html.MOST_ROWS", 2)
    found = outcome()
    page = ElementTree.fromstring(html_report(found, report(found))[16:])
    sections = {each.findtext("h2"): each for each in page.iter("section")}
    listed = " ".join(sections["Groups"].itertext())
    assert all(f"default/{name}" in listed for name in ("old", "new", "wide"))
    drawn = " ".join(sections["Groups over time"].itertext())
    assert "default/wide" in drawn and "default/old" in drawn and "default/new" not in drawn
    assert "1 more are not shown." in drawn and "not shown" not in listed
