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

    assert capsys.readouterr().err.startswith("muster: --to 'v9': must be one of scheduling.k8s.io/v1alpha1, ")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "kind: PodGroup\napiVersion: scheduling.k8s.io/v1alpha2\nmetadata: {name: x}\nspec: []",
            "spec: must be an object",
        ),
        (
            "kind: PodGroup\napiVersion: scheduling.x-k8s.io/v1alpha1\nmetadata: {name: x}\nspec: {minMember: two}",
            "PodGroup x: spec.minMember: must be a whole number",
        ),
        (
            "kind: Workload\napiVersion: scheduling.k8s.io/v1alpha1\nmetadata: {name: x}\nspec: {podGroups: {a: b}}",
            "spec.podGroups: must be a list of objects",
        ),
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {name: x}\n"
            "spec: {template: {spec: {containers: [], schedulingGroup: g}}}",
            "Job x: spec.schedulingGroup: must be an object",
        ),
    ],
)
def test_objects_that_cannot_be_read_are_one_line(
    text: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert main(["convert", "-f", str(tmp_path / "a.yaml"), "--to", "v1beta1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"a.yaml:1: {want}" in said.err or (want in said.err and "a.yaml:1: " in said.err)
    assert said.err.count("\n") == 1


def test_lists_whose_items_do_not_say_what_they_are_and_short_names_are_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = {"metadata": {"name": "x"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    listed = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroupList", "items": [item]}
    (tmp_path / "a.json").write_text(json.dumps(listed))
    assert main(["convert", "-f", str(tmp_path / "a.json"), "--to", "kai", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["objects"]
    assert (found["apiVersion"], found["spec"]) == ("scheduling.run.ai/v2alpha2", {"minMember": 2})


def test_keys_in_brackets_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"kai.scheduler/queue": "q"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}}
    (tmp_path / "a.json").write_text(json.dumps({**pod, "spec": {"containers": [{"name": "m"}]}}))
    assert main(["convert", "-f", str(tmp_path / "a.json"), "--to", "v1beta1"]) == 0
    assert "labels[kai.scheduler/queue]" in capsys.readouterr().err
