"""What commands read from the command line and files; a fault in it becomes a `BadInput` that names its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.api.manifests import STDIN, Manifest, ManifestError, load, load_value, with_custom_kinds
from muster.cli.durations import parse_duration
from muster.cli.errors import BadInput
from muster.clock import SIMULATION_EPOCH_S
from muster.nodes.spec import NodeSpec, NodeSpecError, make_nodes, parse_node_spec

if TYPE_CHECKING:
    from muster.scheduler.options import SchedulerOptions
    from muster.simulator.run import Timed


def read_manifests(files: Iterable[Path], *, any_kind: bool = False) -> list[Manifest]:
    """The objects of all files in order. `any_kind`: also those of kinds that we do not know. Raises `BadInput`."""
    files = list(files)
    if files.count(Path(STDIN)) > 1:
        raise BadInput("-f -: standard input can be read only once")
    try:
        return [manifest for file in files for manifest in load(file, any_kind=any_kind)]
    except ManifestError as error:
        raise BadInput(str(error)) from error


def read_simulation(files: Iterable[Path], entries: Iterable[str]) -> tuple[list[Manifest], list[Timed]]:
    """The objects of the beginning, and what happens later (`read_timed`); kinds that some of them define are known.

    Raises `BadInput`.
    """
    manifests, timed = read_manifests(files, any_kind=True), read_timed(entries, any_kind=True)
    later = {at: what for at, (_, what) in enumerate(timed) if isinstance(what, Sequence)}
    try:
        manifests, *batches = with_custom_kinds([manifests, *later.values()])
    except ManifestError as error:
        raise BadInput(str(error)) from error
    for at, batch in zip(later, batches, strict=True):
        timed[at] = timed[at][0], batch
    return manifests, timed


def read_timed(entries: Iterable[str], *, any_kind: bool = False) -> list[Timed]:
    """The objects or the step of each `TIME=…` of `--at`, by time, with the time in seconds; `any_kind` as above.

    Raises `BadInput`.
    """
    from muster.simulator.steps import FORMS, StepError, is_step, read_step

    timed: list[Timed] = []
    for entry in entries:
        moment, equals, what = entry.partition("=")
        if not equals or not what.strip():
            forms = ", ".join(FORMS)
            raise BadInput(f"--at {entry!r}: must be TIME=WHAT, as in --at 30s=more.yaml; WHAT is one of {forms}")
        at_s = read_duration("--at", moment)
        try:
            timed.append((at_s, read_step(what) if is_step(what) else load(Path(what), any_kind=any_kind)))
        except (StepError, ManifestError) as error:
            raise BadInput(f"--at {moment}={error}") from error
    return sorted(timed, key=lambda pair: pair[0])


def read_node_specs(texts: Iterable[str]) -> list[NodeSpec]:
    """What the texts of `--nodes` ask for. Raises `BadInput`."""
    try:
        return [parse_node_spec(text) for text in texts]
    except NodeSpecError as error:
        raise BadInput(str(error)) from error


def read_nodes(texts: Iterable[str]) -> list[Manifest]:
    """The Nodes of the texts of `--nodes`. Raises `BadInput`."""
    nodes = make_nodes(read_node_specs(texts), SIMULATION_EPOCH_S)
    return [Manifest("--nodes", 0, node) for node in nodes]


def read_scheduler_options(config: Path | None) -> SchedulerOptions:
    """The options of the scheduler by a KubeSchedulerConfiguration, the defaults without one. Raises `BadInput`."""
    from muster.scheduler.configuration.reading import read_configuration
    from muster.scheduler.errors import ConfigurationError
    from muster.scheduler.options import SchedulerOptions

    if config is None:
        return SchedulerOptions()
    try:
        return SchedulerOptions().with_configuration(read_configuration(load_value(config)))
    except ManifestError as error:
        raise BadInput(f"--config {error}") from error
    except ConfigurationError as error:
        faults = tuple(str(fault) for fault in error.faults)
        if len(faults) == 1:
            raise BadInput(f"--config {config}: {faults[0]}") from error
        raise BadInput(f"--config {config}: {len(faults)} errors:", faults) from error


def read_duration(option: str, text: str) -> float:
    """The seconds of an option's duration. Raises `BadInput`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
