"""Recorded runs of the real controllers come out equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from kind_controllers import KIND
from outcome import is_accepted, load_accepted
from run import main, read_lines

from muster.api.codec import Object

HERE = Path(__file__).parent
RECORDING = HERE / "data" / "controllers-1.36.jsonl.gz"
FAMILIES = (
    "cronjob",
    "daemonset",
    "deployment",
    "endpointslice",
    "gc",
    "job",
    "job-gang",
    "namespace",
    "node",
    "pdb",
    "quota",
    "replicaset",
    "statefulset",
)
SCENARIOS = [line for line in read_lines(RECORDING) if line["family"] in FAMILIES]


@pytest.mark.parametrize("seed", [None, 1], ids=["as recorded", "renamed"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario["id"]))
def test_controllers_do_what_was_recorded(scenario: Object, seed: int | None) -> None:
    rules = load_accepted(HERE / "accepted.yaml")
    (outcome,) = KIND.run([scenario], seed)
    assert not outcome.differences or is_accepted(outcome, rules), outcome.differences


def test_runner_ends_with_the_number_of_equal_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(RECORDING), "--family", "job", "--only", "job-zero"]) == 0
    assert capsys.readouterr().out.splitlines() == ["job  1 of 1", "equal 1 of 1"]


def test_runner_cannot_run_a_file_that_is_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"a": 1}\n')
    assert main([str(file)]) == 2
    assert main([str(tmp_path / "missing")]) == 2
