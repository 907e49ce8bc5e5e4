"""The examples do what their texts say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from muster.api.codec import Object, dumps, loads
from muster.api.manifests import load, with_custom_kinds
from muster.apiserver.authentication.configuration import decode_configuration
from muster.apiserver.authentication.validation import check_configuration
from muster.cli.main import main
from muster.testing import make_pod

EXAMPLES = Path(__file__).parents[2] / "examples"
FOREIGN = (
    "kubescheduler.config.k8s.io",
    "apiserver.config.k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.volcano.sh",
)
"""API groups of other files: of configurations, and of groups of other schedulers (for `muster convert`)."""
MANIFESTS = [
    file for file in sorted(EXAMPLES.rglob("*.yaml")) if not any(group in file.read_text() for group in FOREIGN)
]


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_example_is_a_manifest(file: Path) -> None:
    assert all(with_custom_kinds([load(file, any_kind=True)]))


@pytest.mark.parametrize("name", ["gang-job.yaml", "gang-pods.yaml"])
def test_how_to_examples_are_gangs_that_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / "nodes.yaml"), str(EXAMPLES / name)]
    assert main(["simulate", "-f", *files, "--fail-unschedulable", "-o", "json"]) == 0
    (group,) = loads(capsys.readouterr().out)["groups"]
    assert group["state"] in ("Running", "Succeeded")
    assert group["min_count"] == group["members"] > 1


def test_the_notebook_runs_from_top_to_bottom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES)
    notebook: Object = loads((EXAMPLES / "gangs.ipynb").read_bytes())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("Placed\ndefault/train-0 → ")
    assert "Infeasible\n" in out
    assert names["largest"] == {2: 6, 4: 12, 8: 24}


def test_the_gang_of_the_article_runs_in_one_rack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod(f"w-{at}", group="topology-aware-workers-pg", cpu="4") for at in range(4)]
    (tmp_path / "pods.json").write_bytes(dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    files = [str(EXAMPLES / "article" / "podgroup-topology.yaml"), str(tmp_path / "pods.json")]
    assert main(["simulate", "-f", *files, "--nodes", "count=8,cpu=8,memory=32Gi,racks=4", "-o", "json"]) == 0
    (group,) = loads(capsys.readouterr().out)["groups"]
    assert (group["state"], group["topology"]) == ("Running", {"topology.kubernetes.io/rack": "rack-0"})


@pytest.mark.parametrize(("cpu", "want"), [(8, "Running"), (6, "Unschedulable")])
def test_gangs_of_the_topology_example_run_in_a_rack_each_or_not_at_all(
    cpu: int, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(EXAMPLES / "topology" / "racks.yaml")
    assert main(["simulate", "-f", file, "--nodes", f"count=8,cpu={cpu},memory=32Gi,racks=4", "-o", "json"]) == 0
    report: Object = loads(capsys.readouterr().out)
    assert {group["state"] for group in report["groups"]} == {want}
    racks = [group["topology"].get("topology.kubernetes.io/rack") for group in report["groups"]]
    assert racks == (["rack-0", "rack-1"] if want == "Running" else [None, None])
    assert not report["invariants"]["violations"]


@pytest.mark.parametrize(
    ("name", "nodes", "want"),
    [
        ("jobset", 4, {"Succeeded": 3}),
        ("jobset", 3, {"Unschedulable": 3}),
        ("leaderworkerset", 3, {"Running": 6}),
        ("leaderworkerset", 2, {"Running": 4, "Unschedulable": 2}),
        ("leaderworkerset", 1, {"Unschedulable": 6}),
    ],
)
def test_trees_of_groups_run_as_their_examples_say(
    name: str, nodes: int, want: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(EXAMPLES / "composite" / f"{name}.yaml")
    assert main(["simulate", "-f", file, "--nodes", f"count={nodes},cpu=8,nvidia.com/gpu=4", "-o", "json"]) == 0
    report: Object = loads(capsys.readouterr().out)
    assert Counter(group["state"] for group in report["groups"]) == want
    assert not report["invariants"]["violations"]


def test_the_example_of_structured_authentication_is_right() -> None:
    config = decode_configuration((EXAMPLES / "authentication/github-actions.yaml").read_text(encoding="utf-8"))
    assert check_configuration(config)[1] == []
