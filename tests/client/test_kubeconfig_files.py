"""Kubeconfig files of many shapes, and service accounts."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from muster.api.codec import JSON, Object
from muster.client.connection import Connection, KubeconfigError, in_cluster
from muster.client.kubeconfig import default_paths, read_kubeconfig, read_kubeconfigs


def config(user: JSON = None, cluster: JSON = None, **others: JSON) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "nobody", "context": {"cluster": "c"}},
        ],
        "current-context": "x",
        **others,
    }


def write(path: Path, value: Object) -> Path:
    path.write_text(yaml.safe_dump(value))
    return path


def test_everything_a_user_and_a_cluster_can_say_is_read(tmp_path: Path) -> None:
    pem = base64.b64encode(b"PEM").decode()
    (tmp_path / "ca.pem").write_text("CA")
    user = {"client-certificate-data": pem, "client-key-data": pem, "username": "n", "password": "p"}
    cluster = {"certificate-authority": "ca.pem", "tls-server-name": "inner", "proxy-url": "http://proxy:3128"}
    found = read_kubeconfig(write(tmp_path / "config", config(user, cluster)))
    assert found == Connection(
        "https://one:6443",
        ca="CA",
        client_certificate="PEM",
        client_key="PEM",
        tls_server_name="inner",
        namespace="team",
        username="n",
        password="p",
        proxy="http://proxy:3128",
    )


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/login", "args": ["a"]}
    path = write(tmp_path / "config", config({"tokenFile": "token", "exec": plugin}))
    found = read_kubeconfig(path)
    assert found.token_file == str(tmp_path / "token")
    assert found.exec_plugin is not None and found.exec_plugin.command == str(tmp_path / "bin" / "login")


def test_first_file_that_says_something_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"kind": "Config", "current-context": "nobody"})
    second = write(tmp_path / "second", config({"token": "t"}))
    paths = default_paths({"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"})
    assert read_kubeconfigs(paths).token == ""
    assert read_kubeconfigs(paths, "x").token == "t"


@pytest.mark.parametrize(
    ("user", "cluster", "others", "want"),
    [
        ({"token": 5}, {}, {}, "users[0].user.token: must be a text"),
        ({"client-certificate-data": "%"}, {}, {}, "users[0].user.client-certificate-data: is not base64"),
        ({"tokenFile": "none"}, {}, {}, "users[0].user.tokenFile: "),
        ({"exec": {"command": "c"}}, {}, {}, "users[0].user.exec.apiVersion: is missing"),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "c"}},
            {},
            {},
            "users[0].user.exec.apiVersion: 'client.authentication.k8s.io/v1alpha1': must be",
        ),
        ({"auth-provider": {"name": "gcp"}}, {}, {}, "users[0].user.auth-provider: is not supported"),
        ({}, {"server": None}, {}, "clusters[0].cluster.server: is missing"),
        ({}, {"insecure-skip-tls-verify": "yes"}, {}, "clusters[0].cluster.insecure-skip-tls-verify: must be true"),
        ({}, {"proxy-url": "socks5://x"}, {}, "clusters[0].cluster.proxy-url: "),
        ({}, {}, {"current-context": "y"}, "contexts: there is no context named 'y'"),
        ({}, {}, {"current-context": ""}, "current-context: is not set"),
        ({}, {}, {"users": [{"name": "other"}]}, "users: there is no user named 'u'"),
        ({}, {}, {"clusters": {"a": 1}}, "clusters: must be a list"),
    ],
)
def test_fault_names_the_file_and_the_field(
    tmp_path: Path, user: Object, cluster: Object, others: Object, want: str
) -> None:
    path = write(tmp_path / "config", config(user, cluster, **others))
    with pytest.raises(KubeconfigError) as caught:
        read_kubeconfig(path)
    assert str(caught.value).startswith(f"{path}: {want}")


def test_certificate_that_is_none_names_where_it_is_said(tmp_path: Path) -> None:
    pem = base64.b64encode(b"no certificate").decode()
    path = write(tmp_path / "config", config({"client-certificate-data": pem, "client-key-data": pem}))
    with pytest.raises(KubeconfigError, match=r"config: users\[0\]\.user: certificates for https://one:6443"):
        read_kubeconfig(path).ssl_context()


def test_pod_reaches_its_cluster_by_its_service_account(tmp_path: Path) -> None:
    for name, text in {"token": "t", "ca.crt": "CA", "namespace": "muster-system"}.items():
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(environment, tmp_path)
    assert found == Connection(
        "https://[fd00::1]:443", ca="CA", token_file=str(tmp_path / "token"), namespace="muster-system"
    )
    assert in_cluster({}, tmp_path) is None
