"""A real kube-apiserver with etcd to measure beside ours, where `KUBEBUILDER_ASSETS` has their binaries."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.cli.bench.server import START_LIMIT_S, Server
from muster.client.kubeconfig import write_kubeconfig

TOKEN = "bench"


def assets() -> Path | None:
    """The folder with the binaries, None if there is none."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    found = Path(folder) if folder else None
    return found if found is not None and all((found / name).exists() for name in ("etcd", "kube-apiserver")) else None


@contextlib.contextmanager
def running_real(folder: Path, further: Sequence[str] = ()) -> Iterator[Server]:
    """etcd and kube-apiserver, ready, on this machine only; the process of the result is kube-apiserver.

    `further`: options of kube-apiserver.

    Raises RuntimeError with the end of its log if it does not start.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        etcd, port = f"http://127.0.0.1:{_free_port()}", _free_port()
        peer = f"http://127.0.0.1:{_free_port()}"
        _write_secrets(directory, port)
        started_at = time.perf_counter()
        store = [f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--data-dir={directory / 'etcd'}"]
        store += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        stack.enter_context(_process([str(folder / "etcd"), *store, f"--initial-cluster=default={peer}"], directory))
        options = [f"--etcd-servers={etcd}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
        options += ["--endpoint-reconciler-type=none", f"--cert-dir={directory}", "--token-auth-file=tokens.csv"]
        options += ["--service-account-issuer=https://localhost", "--service-account-key-file=key.pub"]
        options += ["--service-account-signing-key-file=key.pem", "--authorization-mode=AlwaysAllow"]
        options += ["--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/16"]
        options += ["--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000"]
        process = stack.enter_context(_process([str(folder / "kube-apiserver"), *options, *further], directory))
        _wait(process, port, directory)
        yield Server(process, directory / "kubeconfig", time.perf_counter() - started_at, started_at)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _write_secrets(directory: Path, port: int) -> None:
    for command in (
        ["openssl", "genrsa", "-out", "key.pem", "2048"],
        ["openssl", "rsa", "-in", "key.pem", "-pubout", "-out", "key.pub"],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    (directory / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "real", "user": {"token": TOKEN}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        "current-context": "real",
    }
    write_kubeconfig(directory / "kubeconfig", config)


@contextlib.contextmanager
def _process(command: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    with (directory / f"{Path(command[0]).name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[str], port: int, directory: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    end = time.perf_counter() + START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(request, context=context, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.perf_counter() > end:
                text = (directory / "kube-apiserver.log").read_text()[-1000:]
                raise RuntimeError(f"kube-apiserver did not start: {text}") from None
        time.sleep(0.05)
