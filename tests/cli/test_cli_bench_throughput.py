"""`muster bench throughput`: the loads, and to whom processor time is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from muster.cli.bench.shares import LOOP, Place, part_of, percentages
from muster.cli.bench.throughput import Load


@pytest.mark.parametrize(
    ("stack", "want"),
    [
        pytest.param([("muster.api.codec", "dumps"), ("muster.apiserver.http", "encode")], "JSON", id="encoding"),
        pytest.param([("muster.api.codec", "copy"), ("muster.apiserver.verbs", "write")], "API server", id="copying"),
        pytest.param(
            [("muster.apiserver.store.index", "put"), ("muster.scheduler.binder", "_send")], "store", id="innermost"
        ),
        pytest.param([("msgspec", "x"), ("muster.engineer", "x"), ("aiohttp.web", "x")], "HTTP", id="whole-names"),
        pytest.param([("asyncio.runners", "run"), ("muster.cli.up", "up")], LOOP, id="nobody"),
    ],
)
def test_time_counts_for_the_innermost_part_that_is_known(stack: list[Place], want: str) -> None:
    assert part_of(stack) == want


def test_shares_are_percentages_the_largest_first() -> None:
    assert percentages(Counter({"HTTP": 1, "engine": 2, "JSON": 1})) == {"engine": 50.0, "HTTP": 25.0, "JSON": 25.0}


def test_gangs_of_a_load_are_bound_to_one_rack_each() -> None:
    load = Load(50, 8, 4, 5)
    groups, pods = load.groups(), load.members()
    assert load.name == "2 gangs of 4, each in one of 5 racks"
    assert [group["spec"]["schedulingConstraints"]["topology"][0]["key"] for group in groups] == [
        "topology.kubernetes.io/rack"
    ] * 2
    assert Counter(pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods) == {"gang-0": 4, "gang-1": 4}
