"""Structured authentication as people use it: an issuer over TLS, tokens, roles, kubectl."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from cluster_process import muster_up

from muster.api.codec import Object
from muster.client.kubeconfig import read_kubeconfig

if TYPE_CHECKING:
    from real_clients import Kubectl

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "authentication"


@pytest.fixture
def issuer(issuing: tuple[Path, subprocess.Popen[str]]) -> Path:
    """The folder of a running token issuer."""
    return issuing[0]


@pytest.fixture
def issuing(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The folder of a token issuer, and its process."""
    folder = tmp_path / "issuer"
    command = [sys.executable, str(EXAMPLE / "issuer.py"), "serve", str(folder), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == str(folder / "authentication.yaml")
        yield folder, process
    finally:
        process.kill()
        process.communicate()


def token_for(folder: Path, *who: str) -> str:
    command = [sys.executable, str(EXAMPLE / "issuer.py"), "token", str(folder), *who]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def ask(kubeconfig: Path, path: str, token: str | None = None, method: str = "GET") -> tuple[int, Object]:
    """What the server answers to a bearer of a token."""
    connection = read_kubeconfig(kubeconfig)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(connection.server + path, headers=headers, method=method)
    context = ssl.create_default_context(cadata=connection.ca)
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_token_of_an_issuer_gives_the_rights_of_its_groups(kubectl: Kubectl, issuer: Path) -> None:
    configuration = issuer / "authentication.yaml"
    options = ("--authorization-mode", "RBAC", "--authentication-config", str(configuration))
    with muster_up("--nodes", "1", "--without", "scheduler", *options) as (_, config):
        admin = replace(kubectl, environment={**kubectl.environment, "KUBECONFIG": str(config)})
        admin("apply", "-f", str(EXAMPLE / "roles.yaml"))
        jane = token_for(issuer, "jane", "research")
        code, pods = ask(config, "/api/v1/namespaces/research/pods", jane)
        assert (code, pods["kind"]) == (200, "PodList")
        code, refused = ask(config, "/api/v1/namespaces/research/secrets", jane)
        assert code == 403
        assert refused["message"].startswith('secrets is forbidden: User "jane" cannot list resource "secrets"')
        assert ask(config, "/version", "nonsense")[0] == 401
        assert ask(config, "/version", token_for(issuer, "system:admin"))[0] == 401
        assert ask(config, "/api/v1/nodes")[1]["message"].startswith('nodes is forbidden: User "system:anonymous"')
        admin("create", "serviceaccount", "robot")
        robot = admin("create", "token", "robot").strip()
        assert 'User "system:serviceaccount:default:robot"' in ask(config, "/api/v1/nodes", robot)[1]["message"]
        assert "no" in admin("auth", "can-i", "list", "nodes", "--as", "jane", want=1)


def test_a_slow_issuer_is_waited_for(issuing: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, issuer = issuing
    options = ("--nodes", "1", "--without", "scheduler,nodes", "--authentication-config")
    jane = token_for(folder, "jane")
    issuer.send_signal(signal.SIGSTOP)
    threading.Timer(2.0, issuer.send_signal, [signal.SIGCONT]).start()
    with muster_up(*options, str(folder / "authentication.yaml")) as (_, config):
        assert ask(config, "/api/v1/nodes", jane)[0] == 200


def test_an_issuer_that_is_away_does_not_hold_the_start_for_ever(issuing: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, issuer = issuing
    options = ("--nodes", "1", "--without", "scheduler,nodes", "--authentication-config")
    jane = token_for(folder, "jane")
    issuer.send_signal(signal.SIGSTOP)
    with muster_up(*options, str(folder / "authentication.yaml")) as (_, config):
        code, answer = ask(config, "/api/v1/nodes", jane)
        assert (code, answer["reason"]) == (401, "Unauthorized")


def test_a_changed_file_is_taken_over_and_a_bad_one_is_not(issuer: Path) -> None:
    configuration = issuer / "authentication.yaml"
    good = configuration.read_text()
    options = ("--nodes", "1", "--without", "scheduler,nodes", "--authentication-config", str(configuration))
    jane = token_for(issuer, "jane")
    with muster_up(*options) as (process, config):
        assert ask(config, "/api/v1/nodes", jane)[0] == 200
        assert process.stderr is not None
        configuration.write_text("nonsense: [")
        wait_for(process, "failed to reload")
        assert ask(config, "/api/v1/nodes", jane)[0] == 200
        configuration.write_text(good.replace("- muster", "- others"))
        assert any(ask(config, "/api/v1/nodes", jane)[0] == 401 for _ in tries())


def test_scheduler_ends_at_once_where_the_server_is_not_the_one_that_is_meant(tmp_path: Path) -> None:
    options = ("--nodes", "1", "--without", "scheduler,nodes", "--authorization-mode", "RBAC")
    with muster_up(*options) as (_, config):
        meant = yaml.safe_load(config.read_text())
        meant["clusters"][0]["cluster"]["tls-server-name"] = "other.example"
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(meant))
        command = [sys.executable, "-m", "muster.cli.main", "scheduler", "--kubeconfig", str(path), "--port", "0"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert "the certificate of the server is not trusted: Hostname mismatch" in last, found.stderr


def tries() -> Iterator[int]:
    """So many looks, with pauses, that what has to happen has happened."""
    for number in range(200):
        yield number
        time.sleep(0.2)


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read the log until a line says this."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"jwt": [{"issuer": {"url": "http://a.test", "audiences": ["a"]}}]}, "jwt[0].issuer.url: Invalid value"),
        ({"webhook": {}}, 'strict decoding error: unknown field "webhook"'),
    ],
)
def test_a_file_that_is_not_right_is_refused_at_the_start(change: Object, want: str, tmp_path: Path) -> None:
    path = tmp_path / "authn.yaml"
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    path.write_text(yaml.safe_dump({**head, **change}))
    command = [sys.executable, "-m", "muster.cli.main", "up", "--authentication-config", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, want in found.stderr) == (2, True), found.stderr
