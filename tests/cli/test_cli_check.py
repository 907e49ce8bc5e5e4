"""`muster check`: what each release makes of manifests, which Jobs are gangs, which gates that needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.api.codec import Object, loads
from muster.cli.main import main
from muster.testing import make_group, make_job, make_node, make_pod

EXAMPLE = Path(__file__).parents[2] / "examples/check/jobs.yaml"
NODES = ["--nodes", "count=2,cpu=8,memory=8Gi,nvidia.com/gpu=2"]


def checked(capsys: pytest.CaptureFixture[str], *arguments: str, want: int = 0) -> Object:
    assert main(["check", *arguments, "-o", "json"]) == want
    value: Object = loads(capsys.readouterr().out)
    return value


def checked_job(tmp_path: Path, capsys: pytest.CaptureFixture[str], job: Object, *arguments: str) -> dict[str, Object]:
    """What the releases say of one Job, by release."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    (group,) = checked(capsys, "-f", str(file), *arguments)["groups"]
    return {found["release"]: found for found in group["releases"]}


def gates(found: Object) -> list[str]:
    return [gate["name"] for gate in found["gates"]]


def test_example_is_a_gang_in_both_releases_and_needs_these_gates(capsys: pytest.CaptureFixture[str]) -> None:
    value = checked(capsys, "-f", str(EXAMPLE), *NODES)
    train, sweep = ({found["release"]: found for found in group["releases"]} for group in value["groups"])

    assert [train[release]["outcome"] for release in ("1.35", "1.36", "1.37")] == ["none", "gang", "gang"]
    assert gates(train["1.36"]) == ["GenericWorkload", "GangScheduling", "WorkloadWithJob"]
    assert gates(train["1.37"]) == ["GenericWorkload", "WorkloadWithJob"]
    assert [sweep[release]["outcome"] for release in ("1.36", "1.37")] == ["none", "basic"]
    assert train["1.37"]["kubeScheduler"] == {"state": "Placed", "placed": 4, "message": ""}


def test_field_that_a_release_does_not_know_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    value = checked(capsys, "-f", str(EXAMPLE))

    unknown = {found["release"]: found["unknown"] for found in value["objects"][0]["releases"]}
    assert unknown == {
        "1.35": ['unknown field "spec.scheduling"'],
        "1.36": ['unknown field "spec.scheduling"'],
        "1.37": [],
    }


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"parallelism": 1, "completions": 1}, "spec.parallelism is 1: must be greater than 1"),
        ({"completions": 8}, "spec.completions is 8: must equal parallelism (4)"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode is NonIndexed: must be Indexed"),
    ],
)
def test_condition_of_1_36_that_does_not_hold_is_named(
    change: Object, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job("t", parallelism=4, indexed=True, pod=make_pod(cpu="1"))
    job["spec"].update(change)

    found = checked_job(tmp_path, capsys, job)["1.36"]

    assert (found["outcome"], found["unmet"]) == ("none", [want])


def test_job_of_another_controller_makes_no_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job("t", parallelism=4, indexed=True, pod=make_pod(cpu="1"))
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    job["metadata"]["ownerReferences"] = [owner]

    found = checked_job(tmp_path, capsys, job)

    assert [found[release]["outcome"] for release in ("1.36", "1.37")] == ["none", "none"]
    assert "JobSet s owns the Job" in found["1.37"]["unmet"][0]


def test_manifest_that_no_release_takes_is_said_in_the_servers_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job("t", parallelism=-1, pod=make_pod(cpu="1"))
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))

    assert main(["check", "-f", str(file)]) == 1
    captured = capsys.readouterr()
    assert "spec.parallelism: Invalid value: -1: must be greater than or equal to 0" in captured.out
    assert captured.err == "muster: no release takes Job t\n"


def test_group_of_unlike_pods_that_greedy_misses_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first pod spreads to the empty larger node, on which the second alone would fit."""
    small, large = make_pod("a-small", group="g", cpu="2"), make_pod("b-large", group="g", cpu="4")
    nodes = [make_node("n0", cpu="2", memory="8Gi"), make_node("n1", cpu="4", memory="64Gi")]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*nodes, make_group("g", min_count=2), small, large]))

    (group,) = checked(capsys, "-f", str(file), "--release", "1.37")["groups"]

    assert (group["homogeneous"], group["kinds"], group["greedyIsEnough"]) == (False, 2, False)
    (found,) = group["releases"]
    assert (found["kubeScheduler"]["state"], found["muster"]["state"]) == ("Undecided", "Placed")


def test_rules_between_pods_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    job = make_job("t", parallelism=4, indexed=True, pod=make_pod(cpu="1"))
    job["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread]
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))

    (group,) = checked(capsys, "-f", str(file))["groups"]

    assert (group["rules"], group["greedyIsEnough"]) == (["topologySpreadConstraints"], False)


def test_table_names_gates_and_what_would_happen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-f", str(EXAMPLE), *NODES]) == 0
    out = capsys.readouterr().out
    for text in ("GenericWorkload: off (alpha)", "a gang of 4", "places 4 pods", "must be Indexed"):
        assert text in out


def test_group_of_a_deployment_is_tried_with_its_replicas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = make_pod(cpu="2", group="train")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "workers"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]},
        },
    }
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump_all([make_group("train", min_count=4, version="v1beta1"), deployment]))

    states = []
    for count in (3, 4):
        (group,) = checked(capsys, "-f", str(file), "--nodes", f"count={count},cpu=2")["groups"]
        states.append(next(found["muster"] for found in group["releases"] if found["release"] == "1.37"))

    assert [(each["state"], each["placed"]) for each in states] == [("Infeasible", 0), ("Placed", 4)]


_TREE = """
apiVersion: scheduling.k8s.io/v1alpha3
kind: Workload
metadata: {name: train, namespace: default}
spec:
  compositePodGroupTemplates:
    - name: all
      priorityClassName: high
      schedulingPolicy: {gang: {minGroupCount: 1}}
      podGroupTemplates:
        - {name: workers, priorityClassName: high, schedulingPolicy: {gang: {minCount: 2}}}
---
apiVersion: scheduling.k8s.io/v1alpha3
kind: CompositePodGroup
metadata: {name: train, namespace: default}
spec:
  priorityClassName: high
  workloadRef: {workloadName: train, templateName: all}
  schedulingPolicy: {gang: {minGroupCount: 1}}
---
apiVersion: scheduling.k8s.io/v1alpha3
kind: PodGroup
metadata: {name: workers, namespace: default}
spec:
  parentCompositePodGroupName: train
  priorityClassName: high
  workloadRef: {workloadName: train, templateName: workers}
  schedulingPolicy: {gang: {minCount: 2}}
"""


@pytest.mark.parametrize("root", ["PodGroup", "CompositePodGroup"])
def test_pods_of_another_priority_than_the_root_of_their_group_are_named(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kube-scheduler 1.37 refuses the whole group for it, with or without a tree."""
    classes: list[Object] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("high", 1000), ("low", 10))
    ]
    if root == "CompositePodGroup":
        groups = list(yaml.safe_load_all(_TREE))
    else:
        groups = [make_group("workers", min_count=2, priorityClassName="high")]
    same = make_pod("same", group="workers", cpu="1", spec={"priorityClassName": "high"})
    low = make_pod("low", group="workers", cpu="1", spec={"priorityClassName": "low"})
    job = make_job("plain", parallelism=2, pod=make_pod(cpu="1", group="workers"))
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*classes, *groups, same, low, job]))

    found = {each["object"]: each["releases"] for each in checked(capsys, "-f", str(file))["objects"]}

    name = "train" if root == "CompositePodGroup" else "workers"
    assert found["Pod same"][-1]["warnings"] == []
    for pods, start in (("Pod low", "its priority is 10"), ("Job plain", "its pods have priority 0")):
        (said,) = [each for each in found[pods][-1]["warnings"] if "priority" in each]
        assert said.startswith(f"{start}, but {root} {name} has 1000: ")
        assert not any("priority" in each for each in found[pods][1]["warnings"])  # 1.36 does not compare
