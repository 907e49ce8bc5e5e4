"""The steps of deploy/Containerfile, in a virtual environment in a clean directory: no container tool is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_servers import find_assets

pytestmark = pytest.mark.real

TOP = Path(__file__).parents[2]
STEPS = (TOP / "deploy" / "Containerfile").read_text().splitlines()


def steps(instruction: str) -> list[str]:
    return [line.removeprefix(f"{instruction} ") for line in STEPS if line.startswith(f"{instruction} ")]


def test_the_image_has_all_that_the_scheduler_needs(tmp_path: Path) -> None:
    find_assets()  # with them, the network is at hand, too
    for *sources, target in map(str.split, steps("COPY")):
        for source in sources:
            place = tmp_path / target.strip("/")
            if (TOP / source).is_dir():
                shutil.copytree(TOP / source, place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                place.mkdir(exist_ok=True)
                shutil.copy(TOP / source, place)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"

    def run(command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    for command in steps("RUN"):
        done = run(command.replace("/src", str(tmp_path / "src")))
        assert done.returncode == 0, done.stderr[-2000:]
    compared = run(f"python -c '{COMPARE}' {TOP / 'src' / 'muster'}")
    assert (compared.returncode, compared.stdout, compared.stderr) == (0, "", "")
    assert "/nowhere: cannot be read" in run("muster scheduler --kubeconfig /nowhere").stderr


COMPARE = """
import pathlib, sys, muster
here, there = pathlib.Path(muster.__file__).parent, pathlib.Path(sys.argv[1])
for path in there.rglob("*"):
    if path.is_file() and path.suffix not in (".pyc", ".md") and not (here / path.relative_to(there)).exists():
        print(path.relative_to(there))
"""
