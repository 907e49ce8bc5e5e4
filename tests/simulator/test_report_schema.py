from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from muster.api.codec import Object, canonical
from muster.nodes.spec import parse_node_spec
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of
from muster.testing.builders import make_group, make_job, make_pod

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/simulate-output.schema.json").read_text(encoding="utf-8"))


def _result(seed: int) -> Object:
    objects = [make_group("gang", min_count=3), make_group("basic", min_count=None), make_group("big", min_count=9)]
    objects += [make_pod(f"g{index}", group="gang", gpu=1) for index in range(3)]
    objects += [make_pod(f"b{index}", group="basic", gpu=1) for index in range(3)]
    objects += [make_pod(f"x{index}", group="big", gpu=1) for index in range(9)]
    objects += [make_pod("lost", group="nowhere"), make_pod("plain"), make_job("job", parallelism=2)]
    nodes = [parse_node_spec("count=2,nvidia.com/gpu=2,zones=2")]
    return report(simulate(manifests_of(objects), nodes=nodes, seed=seed))


@pytest.fixture(scope="module")
def result() -> Object:
    return _result(0)


def test_report_is_as_its_schema_says(result: Object) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(result, SCHEMA)


def test_report_shows_every_part(result: Object) -> None:
    assert {group["state"] for group in result["groups"]} >= {"Running", "Unschedulable", "Gated"}
    assert all(result[part] for part in ("groups", "pods", "nodes", "events"))
    assert result["invariants"]["violations"] == []


def test_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_report_schema as t;"
        "from muster.api.codec import dumps; sys.stdout.buffer.write(dumps(t._result(7)))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    outputs = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]

    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["seed"] == 7


def test_another_seed_draws_other_times_but_decides_the_same(result: Object) -> None:
    other = _result(1)

    assert canonical(other) != canonical(result)
    where = [
        {pod["name"]: pod["node"] for pod in each["pods"] if not pod["name"].startswith("job-")}
        for each in (result, other)
    ]
    assert where[0] == where[1]
    assert [group["state"] for group in other["groups"]] == [group["state"] for group in result["groups"]]
