"""`--config`: a file changes placements, and what is wrong with a file is said line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.codec import Object, loads
from muster.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SIMULATE = ["simulate", "-f", str(EXAMPLES / "scoring-pods.yaml"), "--nodes", "count=4,nvidia.com/gpu=8"]


def nodes_used(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    assert main([*SIMULATE, *arguments, "-o", "json"]) == 0
    value: Object = loads(capsys.readouterr().out)
    return {pod["node"] for pod in value["pods"]}


def test_a_scoring_strategy_in_a_file_changes_placements(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(nodes_used(capsys)) == 4
    assert len(nodes_used(capsys, "--config", str(EXAMPLES / "scheduler-configuration.yaml"))) == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "--config {file}: there is nothing in it"),
        ("a: ]", "--config {file}:1: not YAML: "),
        ("kind: A\n---\nkind: B", "--config {file}:3: there must be only one document in it"),
        ("kind: A", "--config {file}: 2 errors:\n  apiVersion: "),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: 1",
            "--config {file}: profiles: must be a list, is 1\n",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(
    text: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    assert main([*SIMULATE, "--config", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"muster: {want.format(file=file)}")
