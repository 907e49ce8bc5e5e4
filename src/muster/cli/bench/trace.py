"""`muster bench --trace NAME`: public cluster traces, placed by the engine alone. Users download their own copies."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from muster.api.codec import Objects
from muster.cli.errors import BadInput

TraceName: TypeAlias = Literal["openb", "dlrm"]
Advance: TypeAlias = Callable[[str, int, int], None]
"""Says what is being worked on, and how many of how many pieces are done."""

ABOUT: Mapping[TraceName, str] = {
    "openb": "a production GPU cluster (Alibaba, cluster-trace-gpu-v2023), by scoring strategy",
    "dlrm": "inference services of two roles that start together (Alibaba, cluster-trace-gpu-v2025)",
}
_FILES: Mapping[str, str] = {
    "openb_node_list_all_node.csv": "cluster-trace-gpu-v2023",
    "openb_pod_list_default.csv": "cluster-trace-gpu-v2023",
    "disaggregated_dlrm_2025.csv": "cluster-trace-gpu-v2025",
}
T = TypeVar("T")

SOURCE = "https://github.com/alibaba/clusterdata"


def run(name: TraceName, data: Path, advance: Advance) -> Objects:
    """The rows of a trace whose files are in the directory. Raises `BadInput` if they are not, or cannot be read."""
    from muster.cli.bench import dlrm, openb

    if name == "openb":
        nodes = read_table(data, "openb_node_list_all_node.csv", openb.Host.of)
        return openb.run(nodes, read_table(data, "openb_pod_list_default.csv", openb.Task.of), advance)
    return dlrm.run(read_table(data, "disaggregated_dlrm_2025.csv", dlrm.Instance.of), advance)


def dlrm_families(data: Path, advance: Advance) -> Objects:
    """The services of the trace as families of mixed groups. Raises as `run`."""
    from muster.cli.bench import dlrm

    return dlrm.families(read_table(data, "disaggregated_dlrm_2025.csv", dlrm.Instance.of), advance)


def read_table(data: Path, file: str, of: Callable[[Mapping[str, str]], T]) -> list[T]:
    """The rows of a file with a header line. Raises `BadInput` with the file, and the line that cannot be read."""
    path = data / file
    if not path.is_file():
        raise BadInput(f"{path}: not there; it is part of {_FILES[file]}, {SOURCE} (--data says where the files are)")
    found = []
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            try:
                found.append(of(row))
            except KeyError as error:
                raise BadInput(f"{path}: has no column {error}") from error
            except (TypeError, ValueError) as error:
                raise BadInput(f"{path}, line {number}: {error}") from error
    if not found:
        raise BadInput(f"{path}: has no rows")
    return found
