"""Runs `muster up` as a process of its own, so that it is measured as people run it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""With it, Python compiles everything at every start, which takes as long as all else."""
START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0
SETTLE_S = 0.25
SETTLE_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running `muster up`."""

    process: subprocess.Popen[str]
    kubeconfig: Path
    ready_s: float
    """Seconds from the start of the process to the line that says it is ready."""
    started_at: float
    """`time.perf_counter()` at the start of the process."""

    def cpu_s(self) -> float:
        """The processor seconds that the process has used, or 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> int:
        """The most memory that the process has had, in MB, or 0 where the system does not tell."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        match = re.search(r"VmHWM:\s*(\d+) kB", status)
        return round(int(match[1]) / 1024) if match else 0

    def settle(self) -> None:
        """Wait until the server has little to do: nodes have their leases and are told of."""
        for _ in range(round(SETTLE_LIMIT_S / SETTLE_S)):
            before_s = self.cpu_s()
            time.sleep(SETTLE_S)
            if self.cpu_s() - before_s < SETTLE_S / 4:
                return

    def begin_shares(self) -> None:
        """Where the shares are written: count from here on."""
        self.process.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def running(arguments: Sequence[str], shares: Path | None = None) -> Iterator[Server]:
    """Start `muster up` with these arguments, wait until it is ready, and stop it at the end.

    `shares`: the file for what it spent its processor time on (see `muster.cli.bench.shares`). Raises RuntimeError with
    what it said if it does not start.
    """
    started_at = time.perf_counter()
    program = ["muster.cli.main"] if shares is None else ["muster.cli.bench.shares", str(shares)]
    process = subprocess.Popen(
        [sys.executable, "-m", *program, "up", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != _NO_BYTECODE},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            _, errors = process.communicate(timeout=START_LIMIT_S)
            raise RuntimeError(f"muster up did not start: {errors.strip()}")
        yield Server(process, Path(line), time.perf_counter() - started_at, started_at)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
