"""`muster up` as people run it: a process that says when it is ready, answers, keeps its state and stops cleanly."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.api.codec import JSON, loads
from muster.cli.main import main
from muster.client.kubeconfig import read_kubeconfig

STOP_LIMIT_S = 20


@contextlib.contextmanager
def up(*arguments: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A running `muster up` and its kubeconfig; killed at the end if it is still there."""
    command = [sys.executable, "-m", "muster.cli.main", "up", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.endswith("/kubeconfig\n"), process.communicate()[1]
        yield Path(line.strip()), process
    finally:
        process.kill()
        process.communicate()


def get(kubeconfig: Path, path: str) -> bytes:
    """The body of one GET."""
    with urllib.request.urlopen(read_kubeconfig(kubeconfig).server + path, timeout=10) as answer:
        body: bytes = answer.read()
        return body


def post(kubeconfig: Path, path: str, text: str) -> None:
    """Create an object from JSON text."""
    url = read_kubeconfig(kubeconfig).server + path
    request = urllib.request.Request(url, text.encode(), {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 201


def names(kubeconfig: Path, plural: str) -> list[str]:
    """The names of the objects of a collection of the core group."""
    listing: JSON = loads(get(kubeconfig, f"/api/v1/{plural}"))
    return [item["metadata"]["name"] for item in listing["items"]]


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[str, str]:
    """Stop the process; it must end by itself, with exit code 0. What it still said on both streams."""
    process.send_signal(number)
    out, err = process.communicate(timeout=STOP_LIMIT_S)
    assert process.returncode == 0, err
    return out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_one_line_answers_and_stops_cleanly(number: signal.Signals) -> None:
    with up("--nodes", "2") as (kubeconfig, process):
        assert get(kubeconfig, "/readyz") == b"ok"
        assert names(kubeconfig, "nodes") == ["node-0", "node-1"]
        out, err = stop(process, number)
    assert out == ""
    assert err == ""
    assert not kubeconfig.exists()


def test_up_with_data_goes_on_where_it_stopped(tmp_path: Path) -> None:
    claim = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept"},"data":{"a":"b"}}'
    with up("--data", str(tmp_path / "state"), "--nodes", "2") as (kubeconfig, process):
        post(kubeconfig, "/api/v1/namespaces/default/configmaps", claim)
        uids = get_uids(kubeconfig)
        stop(process)
    with up("--data", str(tmp_path / "state"), "--nodes", "2") as (kubeconfig, process):
        assert "kept" in names(kubeconfig, "configmaps")
        assert get_uids(kubeconfig) == uids
        stop(process)
    assert kubeconfig == tmp_path / "state" / "kubeconfig"


def get_uids(kubeconfig: Path) -> list[str]:
    """The uids of all nodes."""
    listing: JSON = loads(get(kubeconfig, "/api/v1/nodes"))
    return [item["metadata"]["uid"] for item in listing["items"]]


def test_up_writes_the_kubeconfig_where_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "here" / "kubeconfig"
    with up("--nodes", "1", "--write-kubeconfig", str(file)) as (kubeconfig, process):
        assert kubeconfig == file
        assert file.stat().st_mode & 0o077 == 0
        stop(process)
    assert file.exists()


def test_up_refuses_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["up", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"muster: --port {port}: is in use by another program\n"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--nodes", "count=many"], "count is 'many'"),
        (["--nodes", "4,gpu"], "'4' is neither a number nor key=value"),
        (["--port", "70000"], "--port 70000: must be a number from 0 to 65535"),
        (["--config", "missing.yaml"], "--config missing.yaml: cannot be read: No such file or directory"),
        (["--without", "job-controler"], "did you mean job-controller"),
    ],
)
def test_up_refuses_wrong_options_in_one_line(
    arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert want in captured.err


def test_up_refuses_a_directory_of_others_and_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["up", "--data", str(tmp_path)]) == 2
    assert "thesis.txt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
