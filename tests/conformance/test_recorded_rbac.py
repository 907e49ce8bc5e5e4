"""What real servers allowed by roles and bindings, and which roles they make, comes out equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_rbac import BOOTSTRAP, KIND
from outcome import is_accepted, load_accepted
from run import read_lines

from muster.api.codec import Object

HERE = Path(__file__).parent
WORLDS = read_lines(HERE / "data" / "rbac-1.36.jsonl.gz")


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: str(world["id"]))
def test_checks_come_out_as_recorded(world: Object) -> None:
    rules = load_accepted(HERE / "accepted.yaml")
    outcomes = [outcome for outcome in KIND.run([world], None) if outcome.differences]
    assert [outcome for outcome in outcomes if not is_accepted(outcome, rules)] == []


def test_a_fresh_server_has_the_recorded_roles() -> None:
    lines = read_lines(HERE / "data" / "rbac-bootstrap-1.36.json.gz")
    assert [outcome for outcome in BOOTSTRAP.run(lines, None) if outcome.differences] == []
