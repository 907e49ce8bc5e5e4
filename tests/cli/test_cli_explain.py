"""`muster explain` and `muster snapshot`: files, a live cluster, the schema, one clear line for what cannot be used."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from muster.api.codec import Object, dumps, loads
from muster.cli.main import main
from muster.client.kubeconfig import read_kubeconfig
from muster.testing import make_group, make_job, make_node, make_pod

ROOT = Path(__file__).parents[2]
SCHEMA: Object = loads((ROOT / "docs/explain-output.schema.json").read_bytes())
EXAMPLE = ROOT / "examples/explain"


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Object]:
    """What the command prints as JSON, checked against the schema."""
    assert main(["explain", *arguments, "-o", "json"]) == 0
    value: Object = loads(capsys.readouterr().out)
    jsonschema.validate(value, SCHEMA)
    found: list[Object] = value["explanations"]
    return found


def write(path: Path, *objects: Object) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_directory_of_manifests_is_explained_by_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    (train,) = explained(capsys, "-f", str(EXAMPLE))

    assert (train["kind"], train["name"], train["state"]) == ("PodGroup", "train", "Infeasible")
    assert [each["domain"] for each in train["domains"]] == ["r1", "r2"]
    assert train["holders"][0]["name"] == "default/nightly"
    assert {each["kind"] for each in train["changes"]} >= {"addNodes", "lowerRequest", "lowerMinCount"}
    assert all(each["minimal"] for each in train["changes"])


def test_table_says_why_who_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-f", str(EXAMPLE / "cluster.yaml"), str(EXAMPLE / "group.yaml")]
    assert main(["explain", "podgroup/train", *files]) == 0
    out = capsys.readouterr().out
    for text in ("does not fit (proved)", "PodGroup nightly", "Insufficient nvidia.com/gpu", "→", "nothing less"):
        assert text in out


@pytest.mark.parametrize("name", ["job/train", "jobs.batch/train", "pod/train-0", "podgroup/…"])
def test_a_job_and_its_pods_stand_for_their_gang(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job("train", parallelism=4, indexed=True, pod=make_pod(gpu=1))
    file = write(tmp_path / "all.yaml", make_node("n0", gpu=2), job)
    if name.startswith("podgroup/"):
        (found,) = explained(capsys, "-f", file)
        name = f"podgroup/{found['name']}"

    (found,) = explained(capsys, name, "-f", file)

    assert (found["kind"], found["state"], found["minCount"]) == ("PodGroup", "Infeasible", 4)


def test_group_that_fits_says_where_and_one_that_is_held_what_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [make_pod(f"a-{at}", group="whole", cpu="1") for at in range(2)]
    objects = [make_node("n0"), make_group("whole", min_count=2), make_group("short", min_count=3), *pods]
    file = write(tmp_path / "all.yaml", *objects, make_pod("b-0", group="short", cpu="1"))

    (whole,) = explained(capsys, "podgroup/whole", "-f", file)
    (short,) = explained(capsys, "podgroup/short", "-f", file)

    assert (whole["state"], [each["node"] for each in whole["placements"]]) == ("WouldBePlaced", ["n0", "n0"])
    assert short["state"] == "Waiting"
    assert "1 of 3 members exist" in short["summary"]
    assert [(each["kind"], each["to"]) for each in short["changes"]] == [("lowerMinCount", 1)]


def test_victims_of_a_preemption_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    urgent: Object = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    low, high = make_pod("low", cpu="2", node="n0"), make_pod("high", cpu="1")
    high["spec"]["priorityClassName"] = "urgent"
    file = write(tmp_path / "all.yaml", {**urgent, "value": 5}, make_node("n0", cpu="2"), low, high)

    (found,) = explained(capsys, "pod/high", "-f", file)

    assert found["preemption"]["helps"] is True
    assert [each["pod"] for each in found["preemption"]["victims"]] == ["default/low"]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["podgroup/none"], "there is no PodGroup 'none' in namespace 'default'"),
        (["deployment/web"], "must be one of pod/NAME"),
        (["train"], "must be one of pod/NAME"),
        (["--effort", "0"], "--effort 0: must be a positive number"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments, "-f", str(EXAMPLE)]) == 2
    err = capsys.readouterr().err
    assert want in err
    assert err.count("\n") == 1


def test_empty_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-f", str(tmp_path)]) == 2
    assert "there is no file *.yaml, *.yml, *.json in this directory" in capsys.readouterr().err


def test_cluster_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@contextlib.contextmanager
def live_cluster(nodes: int) -> Iterator[tuple[str, str]]:
    """A running cluster; the path of its kubeconfig, and its server."""
    command = [sys.executable, "-m", "muster.cli.main", "up", "--nodes", str(nodes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        kubeconfig = process.stdout.readline().strip()
        yield kubeconfig, read_kubeconfig(Path(kubeconfig)).server
    finally:
        process.kill()
        process.communicate()


def post(server: str, obj: Object) -> None:
    """Create an object of the default namespace."""
    group = obj["apiVersion"]
    prefix = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    url = f"{server}{prefix}/namespaces/default/{obj['kind'].lower()}s"
    request = urllib.request.Request(url, dumps(obj), {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 201


def test_live_cluster_is_explained_and_its_snapshot_says_the_same_and_goes_on_in_a_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "hunter2"}}
    env = [{"name": "TOKEN", "value": "hunter2"}]
    spec = {"containers": [{"name": "main", "image": "x", "env": env, "resources": {"requests": {"cpu": "20"}}}]}
    running = [make_pod(f"run-{at}", group="run", spec=spec) for at in range(2)]
    waiting = [make_pod(f"w-{at}", group="wait", spec=spec) for at in range(2)]
    file = tmp_path / "cluster.yaml"
    with live_cluster(2) as (kubeconfig, server):
        for obj in (secret, make_group("run", min_count=2), *running):
            post(server, obj)
        for _ in range(100):
            if all(each["node"] for each in listed(kubeconfig, capsys)):
                break
        for obj in (make_group("wait", min_count=2), *waiting):
            post(server, obj)
        (live,) = explained(capsys, "podgroup/wait", "--kubeconfig", kubeconfig)
        assert main(["snapshot", "--write", str(file), "--kubeconfig", kubeconfig]) == 0
        assert capsys.readouterr().out.startswith(f"{file}: 2 nodes, 2 pod groups, 4 pods")
        extra = write(tmp_path / "more.yaml", make_pod("big", cpu="64"))
        (besides,) = explained(capsys, "pod/big", "-f", extra, "--kubeconfig", kubeconfig)
    assert "hunter2" not in file.read_text()
    (copied,) = explained(capsys, "podgroup/wait", "-f", str(file))
    assert main(["simulate", "-f", str(file), extra, "-o", "json"]) == 0
    report = loads(capsys.readouterr().out)

    assert (live["state"], besides["state"]) == ("Infeasible", "Infeasible")
    assert [each["groups"] for each in live["changes"] if each["kind"] == "endGroups"] == [["default/run"]]
    assert copied == live
    assert report["invariants"]["violations"] == []
    assert {pod["name"]: pod["phase"] for pod in report["pods"]} == {
        "run-0": "Running",
        "run-1": "Running",
        "w-0": "Pending",
        "w-1": "Pending",
        "big": "Pending",
    }


def listed(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> list[Object]:
    """The pods of a cluster with their nodes, by way of a snapshot."""
    assert main(["snapshot", "--kubeconfig", kubeconfig]) == 0
    objects: list[Object] = yaml.safe_load(capsys.readouterr().out)["items"]
    return [{"node": obj["spec"].get("nodeName")} for obj in objects if obj["kind"] == "Pod"]


def test_name_may_come_after_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    (train,) = explained(capsys, "-f", str(EXAMPLE / "cluster.yaml"), str(EXAMPLE / "group.yaml"), "podgroup/train")

    assert train["name"] == "train"


@pytest.mark.parametrize(
    ("example", "name", "nodes"),
    [
        ("k-of-n", "search", "count=2,cpu=8,racks=2"),
        ("jobset", "", "count=1,cpu=8,nvidia.com/gpu=4"),
        ("leaderworkerset", "", "count=1,cpu=8,nvidia.com/gpu=2"),
    ],
)
def test_trees_are_explained_by_the_schema(
    example: str, name: str, nodes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / f"examples/composite/{example}.yaml")
    asked = [f"compositepodgroup/{name}"] if name else []

    found = explained(capsys, "-f", file, "--nodes", nodes, *asked)

    assert [each["kind"] for each in found] == ["CompositePodGroup"]
    assert len(found[0]["groups"]) > 1
    assert found[0]["changes"]


def test_group_without_pods_says_how_many_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.yaml", make_node(), make_group("g", min_count=3))

    (found,) = explained(capsys, "podgroup/g", "-f", file)

    want = "has no pods, and needs 3 pods that name it (spec.schedulingGroup.podGroupName: g)"
    assert found["summary"] == want


def test_deployment_stands_for_its_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": make_pod(cpu="3", group="g")["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    file = write(tmp_path / "x.yaml", make_node(cpu="6"), make_group("g", min_count=3), deployment)

    (found,) = explained(capsys, "-f", file)

    assert (found["name"], found["state"], found["members"]) == ("g", "Infeasible", 3)
