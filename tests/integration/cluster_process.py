"""A whole cluster as people start it: `muster up` in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def muster_up(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running `muster up` and its kubeconfig; killed at the end if it still runs."""
    command = [sys.executable, "-m", "muster.cli.main", "up", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline().strip()
        assert line, process.stderr.read()
        yield process, Path(line)
    finally:
        process.kill()
        process.communicate()
