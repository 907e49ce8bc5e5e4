"""What commands read from the command line and files; a fault in it becomes a `BadInput` that names its place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from muster.api.manifests import Manifest, ManifestError, load
from muster.cli.durations import parse_duration
from muster.cli.errors import BadInput
from muster.nodes.spec import NodeSpec, NodeSpecError, parse_node_spec


def read_manifests(files: Iterable[Path]) -> list[Manifest]:
    """The objects of all files in order. Raises `BadInput`."""
    try:
        return [manifest for file in files for manifest in load(file)]
    except ManifestError as error:
        raise BadInput(str(error)) from error


def read_timed(entries: Iterable[str]) -> list[tuple[float, list[Manifest]]]:
    """The objects of each `TIME=FILE` of `--at`, with the time in seconds. Raises `BadInput`."""
    timed = []
    for entry in entries:
        moment, equals, file = entry.partition("=")
        if not equals or not file:
            raise BadInput(f"--at {entry!r}: must be TIME=FILE, as in --at 30s=more.yaml")
        timed.append((read_duration("--at", moment), read_manifests([Path(file)])))
    return sorted(timed, key=lambda pair: pair[0])


def read_node_specs(texts: Iterable[str]) -> list[NodeSpec]:
    """What the texts of `--nodes` ask for. Raises `BadInput`."""
    try:
        return [parse_node_spec(text) for text in texts]
    except NodeSpecError as error:
        raise BadInput(str(error)) from error


def read_duration(option: str, text: str) -> float:
    """The seconds of an option's duration. Raises `BadInput`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
