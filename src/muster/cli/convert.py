"""`muster convert`: manifests about groups in another version's or scheduler's words, and what is lost on the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from muster.api.codec import Objects
from muster.api.conversion import SHORT, TARGETS, Converted, Remark, convert
from muster.api.foreign import fault_of
from muster.api.meta import name_of
from muster.cli.errors import BadInput, CheckFailed
from muster.cli.inputs import read_manifests
from muster.cli.output import check_writable, render, warn, write_text
from muster.cli.terminal import error_console
from muster.simulator.notices import lines, repeated


def convert_manifests(
    *,
    file: Annotated[tuple[Path, ...], Parameter(name=["--file", "-f"], consume_multiple=1, negative="")],
    to: str,
    output: Annotated[Literal["yaml", "json"], Parameter(name=["--output", "-o"])] = "yaml",
    write: Path | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Convert manifests about groups of pods, and report what is lost.

    Between scheduling.k8s.io v1alpha1, v1alpha2, v1alpha3 and v1beta1, the custom resources of this project, and the
    PodGroups and pod marks of coscheduling, Volcano and KAI. Objects that have nothing to do with groups are passed
    on. Nothing is written to a cluster.

    Parameters
    ----------
    file
        Manifests or directories of them. Repeatable.
    to
        What to convert to: v1alpha1, v1alpha2, v1alpha3 or v1beta1 of scheduling.k8s.io, muster, coscheduling, volcano
        or kai; or an apiVersion, such as scheduling.k8s.io/v1beta1.
    output
        yaml: manifests, and the report beside it. json: one object with `objects` and `remarks`.
    write
        Write into this file. Default: standard output.
    strict
        Exit with 1 and write nothing if something would be lost.
    """
    target = SHORT.get(to, to)
    if target not in TARGETS:
        raise BadInput(f"--to {to!r}: must be one of {', '.join(TARGETS)}, or {', '.join(SHORT)} for short")
    check_writable(write)
    manifests = read_manifests(file, any_kind=True)
    warn(lines([said for each in manifests for said in repeated(each)]))
    for manifest in manifests:
        if fault := fault_of(manifest.object):
            raise BadInput(str(manifest.error(f"{manifest.object['kind']} {name_of(manifest.object)}: {fault}")))
    converted = convert([manifest.object for manifest in manifests], target)
    lost = sum(remark.lost for remark in converted.remarks)
    if output != "json":
        _report(converted.remarks)
    if strict and lost:
        raise CheckFailed(f"{lost} thing{'s' * (lost != 1)} would be lost: nothing is written")
    text = _text(converted, output)
    if write is None:
        sys.stdout.write(text)
    else:
        write_text(write, text)
    return 0


def _text(converted: Converted, output: str) -> str:
    if output == "json":
        remarks: Objects = [
            {"object": each.object, "path": each.path, "text": each.text, "lost": each.lost}
            for each in converted.remarks
        ]
        return render({"objects": converted.objects, "remarks": remarks}, "json", _no_table)
    return "---\n".join(render(obj, "yaml", _no_table) for obj in converted.objects)


def _report(remarks: list[Remark]) -> None:
    if not remarks:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "OBJECT", "FIELD", ""):
        table.add_column(title, overflow="fold")
    for remark in remarks:
        said = (escape(each) for each in (remark.object, remark.path, remark.text))
        table.add_row("[red]lost[/]" if remark.lost else "note", *said)
    error_console().print(table)


def _no_table(console: Console) -> None:
    raise AssertionError("manifests are no table")
