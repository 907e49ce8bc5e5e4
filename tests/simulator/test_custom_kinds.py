"""CustomResourceDefinitions and objects of the kinds they define in simulations; Kueue's Topology among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.api.codec import Object
from muster.api.manifests import ManifestError, parse, with_custom_kinds
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS
from muster.cli.main import main
from muster.testing.definitions import make_definition

EXAMPLE = Path(__file__).parents[2] / "examples/topology/kueue-topology.yaml"
DEFINITION, TOPOLOGY, GROUP, JOB = EXAMPLE.read_text().split("\n---\n")
NODES = "count=8,cpu=8,memory=32Gi,racks=4,zones=2"


def simulated(tmp_path: Path, *begin: str, later: dict[str, str] | None = None) -> tuple[int, Path]:
    """The exit code of a simulation of these texts, and the file with its report."""
    first, report = tmp_path / "first.yaml", tmp_path / "report.json"
    first.write_text("\n---\n".join(begin))
    steps = []
    for at, text in (later or {}).items():
        (tmp_path / f"{at}.yaml").write_text(text)
        steps += ["--at", f"{at}={tmp_path / at}.yaml"]
    arguments = ["simulate", "-f", str(first), "--nodes", NODES, *steps, "-o", "json", "--write", str(report)]
    return main([*arguments, "--until", "90s"]), report


def group_of(report: Path) -> Object:
    group: Object
    (group,) = json.loads(report.read_text())["groups"]
    return group


def test_the_levels_of_a_topology_object_are_those_of_its_gangs(tmp_path: Path) -> None:
    code, report = simulated(tmp_path, DEFINITION, TOPOLOGY, GROUP, JOB)
    assert (code, group_of(report)["state"]) == (0, "Running")
    assert group_of(report)["topology"] == {
        "topology.kubernetes.io/zone": "zone-0",
        "topology.kubernetes.io/rack": "rack-0",
    }


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"20s": TOPOLOGY}, id="the object comes later"),
        pytest.param({"20s": DEFINITION, "21s": TOPOLOGY}, id="its kind is defined later"),
    ],
)
def test_a_gang_waits_for_the_topology_that_it_names(later: dict[str, str], tmp_path: Path) -> None:
    begin = (GROUP, JOB) if "21s" in later else (GROUP, JOB, DEFINITION)
    code, report = simulated(tmp_path, *begin, later=later)
    assert code == 0
    assert group_of(report)["state"] == "Running"
    assert 20 <= group_of(report)["first_scheduled_s"] < 32


def test_an_object_changes_as_by_kubectl_apply(tmp_path: Path) -> None:
    wrong = TOPOLOGY.replace("topology.kubernetes.io/rack", "topology.kubernetes.io/row")
    code, report = simulated(tmp_path, DEFINITION, wrong, GROUP, JOB, later={"30s": TOPOLOGY})
    assert (code, group_of(report)["state"]) == (0, "Running")
    assert group_of(report)["first_scheduled_s"] >= 30


def test_an_object_that_its_definition_forbids_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = simulated(tmp_path, DEFINITION, TOPOLOGY.replace("levels:", "layers:"))
    assert code == 2
    assert "spec.levels: Required value" in capsys.readouterr().err


def test_a_kind_that_nobody_defines_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = simulated(tmp_path, TOPOLOGY)
    assert code == 2
    assert "together with the CustomResourceDefinition of its kind" in capsys.readouterr().err


def test_definitions_are_found_in_all_batches_and_objects_of_other_versions_are_not() -> None:
    definition = json.dumps(make_definition("Rack", {"type": "object"}, group="x.example.org", version="v1"))
    known = "{apiVersion: x.example.org/v1, kind: Rack, metadata: {name: r}}"
    first, later = with_custom_kinds([parse(known, any_kind=True), parse(definition, any_kind=True)])
    assert first[0].resource is not None and first[0].resource.plural == "racks"
    assert later[0].resource == CUSTOM_RESOURCE_DEFINITIONS
    with pytest.raises(ManifestError, match=r"no kind 'Rack' is known in x\.example\.org/v2"):
        with_custom_kinds([parse(known.replace("v1", "v2"), any_kind=True), parse(definition, any_kind=True)])
    broken = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: b}, spec: [1]}"
    ((manifest,),) = with_custom_kinds([parse(broken, any_kind=True)])
    assert manifest.resource == CUSTOM_RESOURCE_DEFINITIONS, "what is wrong with it, the server says"
