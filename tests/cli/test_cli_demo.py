"""`muster demo`: the story holds with the seed that people get, and as JSON it is the reports of its three acts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from muster.api.codec import Object, Objects, loads
from muster.cli.demo import DEFAULT_SEED
from muster.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def acts(capsys: pytest.CaptureFixture[str]) -> Objects:
    assert main(["demo", "--output", "json"]) == 0
    found: Objects = loads(capsys.readouterr().out)["acts"]
    return found


def states(act: Object) -> list[str]:
    return [group["state"] for group in act["report"]["groups"]]


def test_pods_deadlock_gangs_do_not_and_what_cannot_fit_says_why(acts: Objects) -> None:
    pods, gangs, too_big = acts
    held = [group["scheduled"] for group in pods["report"]["groups"]]
    assert states(pods) == ["Unschedulable", "Unschedulable"], f"seed {DEFAULT_SEED} shows no deadlock any more"
    assert sum(held) == 4
    assert all(0 < count < 4 for count in held)
    assert states(gangs) == ["Succeeded", "Succeeded"]
    assert states(too_big) == ["Unschedulable"]
    changes = too_big["report"]["groups"][0]["explanation"]["changes"]
    assert {"addNodes", "lowerMinCount"} <= {change["kind"] for change in changes}
    assert all(change["verified"] for change in changes)


def test_each_act_is_the_simulation_that_its_command_runs(
    acts: Objects, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    for act in acts:
        program, *arguments = shlex.split(act["command"])
        assert program == "muster"
        assert main([*arguments, "-o", "json"]) == 0
        assert loads(capsys.readouterr().out) == act["report"]


def test_the_story_reads_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for text in ("deadlock", "red", "blue", "holds", "done", "green", "waits: ", "→"):
        assert text in out
