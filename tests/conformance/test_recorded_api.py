"""Recorded conversations with real API servers come out equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_api import KIND
from outcome import is_accepted, load_accepted
from run import main, read_lines

from muster.api.codec import Object
from muster.controllers.registry import CONTROLLERS

HERE = Path(__file__).parent
RELEASES = ("1.35", "1.36", "1.37")
SLICES = "endpointslice-controller"


def recording(release: str) -> Path:
    return HERE / "data" / f"api-{release}.jsonl.gz"


def scenarios() -> list[tuple[str, list[Object]]]:
    """Each scenario with its exchanges."""
    found: dict[str, list[Object]] = {}
    for release in RELEASES:
        for line in KIND.completes(read_lines(recording(release))):
            found.setdefault(f"{release} {line['scenario']}", []).append(line)
    return list(found.items())


@pytest.mark.parametrize(("name", "exchanges"), scenarios(), ids=lambda value: value if isinstance(value, str) else "")
def test_answers_are_those_that_were_recorded(name: str, exchanges: list[Object]) -> None:
    rules = load_accepted(HERE / "accepted.yaml")
    outcomes = [outcome for outcome in KIND.run(exchanges, None) if outcome.differences]
    if SLICES not in CONTROLLERS:
        outcomes = [outcome for outcome in outcomes if "/endpointslices" not in outcome.unit]
    assert [outcome for outcome in outcomes if not is_accepted(outcome, rules)] == []


def test_every_code_is_the_recorded_one() -> None:
    wrong = [
        outcome.unit
        for _, exchanges in scenarios()
        for outcome in KIND.run(exchanges, None)
        if any(difference.path.endswith(": code") for difference in outcome.differences)
    ]
    assert wrong == []


def test_the_release_is_known_even_if_one_scenario_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recording("1.37")), "--family", "composites", "--only", "composites"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("equal ")
