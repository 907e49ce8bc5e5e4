"""`muster simulate`: the report as `simulate()` gives it, exit codes, one clear line for what cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from muster.api.codec import Object, dumps, loads
from muster.api.manifests import load
from muster.cli.main import main
from muster.nodes.spec import parse_node_spec
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.testing import make_job, make_node, make_pod

DAY_S = 86400.0


@pytest.fixture
def gang_file(tmp_path: Path) -> Path:
    """A gang of 4 workers with a GPU each."""
    job = make_job("train", parallelism=4, indexed=True, pod=make_pod(gpu=1))
    return write(tmp_path / "job.yaml", job)


def write(path: Path, *objects: Object) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str], want_code: int = 0) -> Object:
    assert main([*arguments, "-o", "json"]) == want_code
    value: Object = loads(capsys.readouterr().out)
    return value


def test_json_output_is_the_report_of_simulate(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "count=2,nvidia.com/gpu=2"
    found = run_json(["simulate", "-f", str(gang_file), "--nodes", nodes, "--seed", "3"], capsys)
    want = report(simulate(load(gang_file), nodes=[parse_node_spec(nodes)], until_s=DAY_S, seed=3))
    assert dumps(found) == dumps(loads(dumps(want)))
    assert [group["state"] for group in found["groups"]] == ["Succeeded"]


def test_yaml_output_says_the_same_as_json(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "-f", str(gang_file), "--nodes", "count=2,nvidia.com/gpu=2"]
    want = run_json(arguments, capsys)
    assert main([*arguments, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == want


def test_table_names_groups_pods_and_nodes(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "-f", str(gang_file), "--nodes", "count=2,nvidia.com/gpu=2", "--events"]) == 0
    captured = capsys.readouterr()
    for text in ("1 Succeeded", "4 of 4", "train-0-", "node-1", "Scheduled"):
        assert text in captured.out
    assert captured.err == ""


def test_report_goes_into_a_file(gang_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert main(["simulate", "-f", str(gang_file), "--nodes", "2", "-o", "json", "--write", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert loads(out.read_bytes())["groups"][0]["state"] == "Unschedulable"


def test_what_waits_fails_only_if_asked_for(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "-f", str(gang_file), "--nodes", "count=1,nvidia.com/gpu=2"]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "--fail-unschedulable"]) == 1
    captured = capsys.readouterr()
    assert "1 Unschedulable" in captured.out
    assert captured.err.startswith("muster: not scheduled: train-")


def test_objects_of_a_later_time_come_then(gang_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = write(tmp_path / "later.yaml", make_node("big", gpu=4))
    found = run_json(["simulate", "-f", str(gang_file), "--nodes", "1", "--at", f"90s={later}"], capsys)
    group = found["groups"][0]
    assert group["state"] == "Succeeded"
    assert 90 < group["first_scheduled_s"] < 120


def test_a_gang_evicts_those_whose_devices_it_needs_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    dra = Path(__file__).parents[2] / "examples" / "dra"
    files = [f"{dra}/gpus.yaml", f"{dra}/gang.yaml"]
    found = run_json(["simulate", "--nodes", "2", "-f", *files, "--at", f"5s={dra}/urgent.yaml"], capsys)
    # Each node has two pairs of GPUs of a NUMA node; the first gang has three of them.
    assert [each["by"] for each in found["evictions"]] == ["default/urgent"] * 2
    running = [pod["name"] for pod in found["pods"] if pod["phase"] == "Running"]
    assert sorted(name.rpartition("-")[0] for name in running) == ["train", "urgent", "urgent", "urgent"]


def test_a_pod_leaves_a_broken_device_and_its_job_goes_on_with_another(capsys: pytest.CaptureFixture[str]) -> None:
    dra = Path(__file__).parents[2] / "examples" / "dra"
    files = [f"{dra}/gpus.yaml", f"{dra}/job.yaml"]
    found = run_json(["simulate", "--nodes", "2", "-f", *files, "--at", f"5s={dra}/broken.yaml"], capsys)
    assert [(each["by"], each["pod"][:15]) for each in found["evictions"]] == [
        ("DeletionByDeviceTaintManager", "default/train-0")
    ]
    assert {pod["phase"] for pod in found["pods"]} == {"Succeeded"}
    assert len(found["pods"]) == 3


def test_until_ends_the_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = make_pod("long", annotations={"sim.muster-k8s.dev/run-seconds": "600"})
    file = write(tmp_path / "pod.yaml", pod)
    found = run_json(["simulate", "-f", str(file), "--nodes", "1", "--until", "1m30s"], capsys)
    assert found["time_s"] == 90
    assert found["pods"][0]["phase"] == "Running"


def test_pods_without_the_scheduler_stay_where_they_are(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "-f", str(gang_file), "--nodes", "count=4,nvidia.com/gpu=2", "--without", "scheduler"]
    assert {pod["node"] for pod in run_json(arguments, capsys)["pods"]} == {None}


def test_manifests_come_from_standard_input_too(gang_file: Path) -> None:
    command = [sys.executable, "-m", "muster.cli.main", "simulate", "-f", "-", "--nodes", "1", "-o", "json"]
    with gang_file.open() as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert loads(done.stdout)["groups"][0]["members"] == 4


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [1\nb: 2\n", "in.yaml:2: not YAML", id="not YAML"),
        pytest.param("", "in.yaml: there is no object in it", id="empty file"),
        pytest.param("# nothing\n---\n", "in.yaml: there is no object in it", id="only comments"),
        pytest.param("just words\n", "in.yaml:1: this is not an object", id="not an object"),
        pytest.param(
            "apiVersion: v1\nkind: Pot\nmetadata: {name: x}\n",
            "in.yaml:1: no kind 'Pot' is known in v1",
            id="unknown kind",
        ),
        pytest.param(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {name: ok}\nspec: {containers: [{name: a, image: b}]}\n"
            "---\nkind: Pod\nmetadata: {name: x}\n",
            "in.yaml:7: apiVersion is missing",
            id="second document",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n",
            "in.yaml:1: ",
            id="refused by the server",
        ),
        pytest.param(
            "apiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nmetadata: {name: x}\n"
            "spec: {schedulingPolicy: {gang: {minCount: 0}}}\n",
            "spec.schedulingPolicy.gang.minCount",
            id="field path",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_place(
    text: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(text)
    out = tmp_path / "report.json"
    assert main(["simulate", "-f", str(file), "--nodes", "1", "-o", "json", "--write", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "in.yaml" in captured.err
    assert want in captured.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["-f", "missing.yaml"], "missing.yaml: cannot be read: No such file", id="missing file"),
        pytest.param(
            ["-f", "docs/decisions"],
            "docs/decisions: there is no file *.yaml, *.yml, *.json in this directory",
            id="directory",
        ),
        pytest.param(["--nodes", "cpu=lots"], "cpu is 'lots', but must be a quantity", id="nodes"),
        pytest.param(["--until", "soon"], "--until: 'soon' is not a duration", id="until"),
        pytest.param(["--at", "30s"], "--at '30s': must be TIME=WHAT", id="at without a file"),
        pytest.param(["--at", "soon=x.yaml"], "--at: 'soon' is not a duration", id="at"),
        pytest.param(["--seed", "x"], "--seed", id="seed"),
        pytest.param(["--without", "brain"], "--without: there is no component 'brain'", id="without"),
        pytest.param(["--emulate", "1.20"], "1.20", id="emulate"),
    ],
)
def test_a_bad_option_is_one_line(
    arguments: list[str], want: str, gang_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "-f", str(gang_file), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("muster: ")
    assert captured.err.count("\n") == 1
    assert want in captured.err


def test_a_controller_that_we_do_not_have_can_be_left_out(gang_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["simulate", "-f", str(gang_file), "--without", "ttl-controller,horizontal-pod-autoscaler-controller"])
        == 0
    )
