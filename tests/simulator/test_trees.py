"""Trees of groups on the embedded cluster: what their objects say in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.groups import COMPOSITE_INITIALLY_SCHEDULED, INITIALLY_SCHEDULED
from muster.api.manifests import load
from muster.api.meta import condition, name_of
from muster.nodes.spec import parse_node_spec
from muster.simulator.options import ClusterOptions
from muster.simulator.run import simulate
from muster.simulator.world import Outcome

EXAMPLE = Path(__file__).parents[2] / "examples" / "composite" / "leaderworkerset.yaml"


def outcome(nodes: int, options: ClusterOptions | None = None) -> Outcome:
    return simulate(load(EXAMPLE), nodes=[parse_node_spec(f"count={nodes},nvidia.com/gpu=4")], options=options)


def said(found: Outcome, plural: str, type_: str) -> dict[str, str]:
    """Status and reason of a condition, by name."""
    entries = {name_of(obj): condition(obj, type_) for obj in found.objects[plural]}
    return {name: f"{entry['status']}/{entry['reason']}" for name, entry in entries.items() if entry is not None}


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        (3, {"serving": "T", "serving-0": "T", "serving-1": "T", "serving-2": "T"}),
        (2, {"serving": "T", "serving-0": "T", "serving-1": "T", "serving-2": "F"}),
        (1, {"serving": "F", "serving-0": "F", "serving-1": "F", "serving-2": "F"}),
    ],
)
def test_composite_groups_say_whether_they_were_scheduled(nodes: int, want: dict[str, str]) -> None:
    words = {"T": "True/Scheduled", "F": "False/Unschedulable"}
    found = said(outcome(nodes), "compositepodgroups", COMPOSITE_INITIALLY_SCHEDULED)
    assert found == {name: words[each] for name, each in want.items()}


def test_an_emulated_release_says_nothing_about_composite_groups() -> None:
    found = outcome(3, ClusterOptions(emulate="1.37"))
    assert said(found, "compositepodgroups", COMPOSITE_INITIALLY_SCHEDULED) == {}
    assert set(said(found, "podgroups", INITIALLY_SCHEDULED).values()) == {"True/Scheduled"}
