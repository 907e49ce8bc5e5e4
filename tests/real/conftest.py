"""Where the real binaries are: `KUBEBUILDER_ASSETS`, which `make test-real` sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder of the binaries; skips where there is none, unless MUSTER_REAL is set."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    missing = [name for name in PROGRAMS if not folder or not (Path(folder) / name).exists()]
    if missing:
        message = f"KUBEBUILDER_ASSETS has no {', '.join(missing)} (see hack/build-kube)"
        if os.environ.get("MUSTER_REAL"):
            pytest.fail(message)
        pytest.skip(message)
    return Path(folder)
