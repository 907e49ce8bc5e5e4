"""`muster convert` on the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from muster.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_example_becomes_manifests_that_we_take(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "native.yaml"
    arguments = ["--to", "scheduling.k8s.io/v1alpha3", "--write", str(target)]
    assert main(["convert", "-f", str(EXAMPLES / "convert/coscheduling.yaml"), *arguments]) == 0

    assert "spec.scheduleTimeoutSeconds" in capsys.readouterr().err
    group, job = yaml.safe_load_all(target.read_text())
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 4}}}
    assert job["spec"]["template"]["spec"]["schedulingGroup"] == {"podGroupName": "train"}
    assert main(["simulate", "-f", str(target), "--nodes", "count=4,nvidia.com/gpu=1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["state"] == "Succeeded"


def test_json_has_objects_and_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "convert/volcano.yaml")
    assert main(["convert", "-f", file, "--to", "scheduling.k8s.io/v1alpha2", "-o", "json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert [obj["kind"] for obj in answer["objects"]] == ["PodGroup", "Pod"]
    assert {"object": "PodGroup render", "path": "spec.queue", "lost": True}.items() <= answer["remarks"][0].items()


def test_strict_writes_nothing_that_says_less(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out.yaml"
    file = str(EXAMPLES / "convert/volcano.yaml")
    assert main(["convert", "-f", file, "--to", "scheduling.k8s.io/v1beta1", "--strict", "--write", str(target)]) == 1

    assert "would be lost" in capsys.readouterr().err
    assert not target.exists()


def test_an_unknown_target_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "-f", str(EXAMPLES / "convert/volcano.yaml"), "--to", "v9"]) == 2

    assert capsys.readouterr().err.startswith("muster: --to v9: must be one of scheduling.k8s.io/v1alpha1, ")
