"""`muster bench --trace`: what is read of the traces, what becomes of it, and what is said of files that are no use."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.codec import Objects, loads
from muster.cli.bench.trace import dlrm_families
from muster.cli.main import main

NODES = "openb_node_list_all_node.csv"
PODS = "openb_pod_list_default.csv"
NODE_LINES = ("sn,cpu_milli,memory_mib,gpu,model", "n0,32000,65536,2,T4", "n1,32000,65536,1,G2", "n2,8000,16384,0,")
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)


def write_openb(directory: Path, *pods: str) -> None:
    (directory / NODES).write_text("\n".join(NODE_LINES))
    (directory / PODS).write_text("\n".join([POD_HEADER, *pods]))


def rows_of(directory: Path, capsys: pytest.CaptureFixture[str], trace: str = "openb") -> Objects:
    assert main(["bench", "--trace", trace, "--data", str(directory), "-o", "json"]) == 0
    (bench,) = loads(capsys.readouterr().out)["benches"]
    rows: Objects = bench["rows"]
    return rows


def test_shares_take_whole_gpus_or_thousandths_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = [f"p{at},1000,1024,1,600,,LS,Running,{at},,{at}" for at in range(5)]
    write_openb(tmp_path, *shares)
    rows = rows_of(tmp_path, capsys)
    placed = {row["what"]: (row["placed"], row["split"]) for row in rows}
    assert {value for what, value in placed.items() if what.startswith("a share takes")} == {(3, None)}
    # n0 takes 3 of 600 in its 2000 thousandths, of which one is on two devices
    assert {value for what, value in placed.items() if what.startswith("shares")} == {(4, 1)}


def test_pods_keep_to_the_models_that_they_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_openb(tmp_path, *(f"p{at},1000,1024,1,1000,T4|P100,LS,Running,{at},,{at}" for at in range(3)))
    assert {row["placed"] for row in rows_of(tmp_path, capsys)} == {2}


def test_free_gpus_on_nodes_that_are_full_otherwise_are_fragments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_openb(tmp_path, "big,32000,1024,1,1000,T4,LS,Running,0,,0", "small,1000,1024,1,1000,G2,LS,Running,1,,1")
    row = rows_of(tmp_path, capsys)[0]
    assert (row["gpus_given_percent"], row["fragmented_percent"]) == (66.67, 33.33)


def test_services_of_two_roles_are_placed_on_the_first_cluster_that_holds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,"
    header += "memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node"
    lines = [
        header,
        *(f"i{at},CN,app,64,64,0,0,10,10,128,128,100,100,1" for at in range(2)),
        "g,HN,app,8,8,1,1,10,10,64,64,9,9,-1",
    ]
    (tmp_path / "disaggregated_dlrm_2025.csv").write_text("\n".join(lines))
    first, last = rows_of(tmp_path, capsys, "dlrm")
    assert (first["services"], first["proved_impossible"], last["placed"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / PODS).unlink(), "not there; it is part of cluster-trace-gpu-v2023"),
        (lambda path: (path / PODS).write_text(POD_HEADER), "has no rows"),
        (
            lambda path: (path / PODS).write_text(f"{POD_HEADER}\np,many,1,0,0,,LS,Running,0,,0"),
            "line 2: invalid literal",
        ),
        (lambda path: (path / NODES).write_text("sn,cpu\nn,1"), "has no column 'cpu_milli'"),
    ],
    ids=["missing", "empty", "no number", "another table"],
)
def test_files_that_are_no_use_are_named_in_one_line(
    spoil: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_openb(tmp_path, "p,1000,1024,0,0,,LS,Running,0,,0")
    assert callable(spoil)
    spoil(tmp_path)
    assert main(["bench", "--trace", "openb", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("arguments", [["gangs", "--trace", "openb"], ["--data", "."]])
def test_options_that_do_not_go_together_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2


def test_services_of_a_trace_are_a_family_of_mixed_groups_beside_what_others_place(tmp_path: Path) -> None:
    header = "role,app_name,cpu_request,gpu_request,rdma_request,memory_request,disk_request,max_instance_per_node"
    lines = [header, *(["CN,app,64,0,10,128,100,1"] * 2), "HN,app,8,1,10,64,9,-1"]
    (tmp_path / "disaggregated_dlrm_2025.csv").write_text("\n".join(lines))

    tightest, first = dlrm_families(tmp_path, lambda what, done, total: None)

    assert (tightest["instances"], tightest["proved"], tightest["wrong"]) == (1, 1, 0)
    assert (first["placed"], first["ffd_places"], first["upstream_places"], first["wrong"]) == (1, 1, 1, 0)
