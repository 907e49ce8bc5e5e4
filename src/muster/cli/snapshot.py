"""`muster snapshot`: what the scheduler reads of a live cluster, in one file for `explain -f` and `simulate -f`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import orjson
from cyclopts import Parameter

from muster.api.codec import Object, Objects
from muster.cli.live import read_live
from muster.cli.output import check_writable, write_text
from muster.cli.terminal import error_console


def snapshot(
    *,
    write: Annotated[Path | None, Parameter(name="--write")] = None,
    kubeconfig: Path | None = None,
    context: Annotated[str, Parameter(show_default=False)] = "",
) -> int:
    """Write what the scheduler reads of a cluster into a file: nodes, pods, groups, volumes, budgets; no secrets.

    Nothing is written to the cluster. The file can be given to muster explain and muster simulate.

    Parameters
    ----------
    write
        The file (YAML, or JSON if it ends in .json, which is read faster). Default: standard output.
    kubeconfig
        How to reach the cluster. Default: as in a pod of the cluster, else what kubectl would use.
    context
        The context of the kubeconfig. Default: its current one.
    """
    check_writable(write)
    with error_console().status("Reading the cluster"):
        cluster = read_live(kubeconfig, context)
    text = snapshot_text(cluster.objects, as_json=write is not None and write.suffix == ".json")
    if write is None:
        sys.stdout.write(text)
    else:
        write_text(write, text)
    _tell(cluster.objects, cluster.refused, write, len(text))
    return 0


def snapshot_text(objects: Objects, *, as_json: bool) -> str:
    """A List with an object a line: JSON, or YAML whose items are JSON, which is as compact and read by anything."""
    lines = [orjson.dumps(obj).decode() for obj in objects]
    if as_json:
        return '{"apiVersion": "v1", "kind": "List", "items": [\n' + ",\n".join(lines) + "\n]}\n"
    items = "\n".join(f"- {line}" for line in lines)
    return f"apiVersion: v1\nkind: List\nitems:\n{items}\n" if lines else "apiVersion: v1\nkind: List\nitems: []\n"


def _tell(objects: Objects, refused: tuple[str, ...], write: Path | None, size: int) -> None:
    counts: dict[str, int] = {}
    for obj in objects:
        counts[_plural(obj)] = counts.get(_plural(obj), 0) + 1
    said = ", ".join(f"{number} {name}" for name, number in counts.items() if name in _TOLD)
    if write is not None:
        print(f"{write}: {said or 'nothing'} ({size / 1e6:.1f} MB)")
    if refused:
        print(f"not readable or not served, left out: {', '.join(refused)}", file=sys.stderr)


_TOLD = ("nodes", "pods", "jobs", "pod groups", "composite pod groups")


def _plural(obj: Object) -> str:
    names = {"PodGroup": "pod groups", "CompositePodGroup": "composite pod groups"}
    return names.get(obj["kind"], f"{obj['kind'].lower()}s")
