"""A server for real clients, and kubectl on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_clients import Kubectl, ServerThread

from muster.client.kubeconfig import kubeconfig, write_kubeconfig


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(server: ServerThread, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    program = shutil.which("kubectl")
    if program is None:
        message = "kubectl is not on the PATH"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    home: Path = tmp_path_factory.mktemp("home")
    write_kubeconfig(home / "config", kubeconfig(server.url))
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(home / "config")}
    return Kubectl(program, environment)
