"""`muster explain`: why a group, Job or pod waits, what holds the room, and the smallest changes that would help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from muster.api.codec import Object
from muster.api.manifests import Manifest, ManifestError, is_from_cluster
from muster.cli.errors import BadInput
from muster.cli.explain_view import draw
from muster.cli.inputs import read_manifests, read_nodes
from muster.cli.options import INPUT_RANK, OUTPUT, NodeSpecs, Output, Write
from muster.cli.output import check_writable, emit
from muster.cli.terminal import error_console
from muster.scheduler.explaining.names import is_name

SOURCE = Group("Source", sort_key=INPUT_RANK)
DEFAULT_EFFORT = 8192
"""Units of work for the changes of one group; see docs/howto/why-it-waits.md."""


def explain(
    *names: Annotated[str, Parameter(show_default=False)],
    file: Annotated[
        tuple[Path, ...],
        Parameter(name=["--file", "-f"], consume_multiple=1, negative="", show_default=False, group=SOURCE),
    ] = (),
    kubeconfig: Annotated[Path | None, Parameter(group=SOURCE)] = None,
    context: Annotated[str, Parameter(show_default=False, group=SOURCE)] = "",
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = "default",
    nodes: NodeSpecs = (),
    effort: Annotated[int, Parameter(show_default=False)] = DEFAULT_EFFORT,
    output: Output = "table",
    write: Write = None,
    all_rows: Annotated[bool, Parameter(name="--all", negative="", show_default=False, group=OUTPUT)] = False,
) -> int:
    """Explain why pods and groups wait, who holds the room, and which smallest changes would let them run.

    Reads files (-f), or else the cluster of a kubeconfig; with both, the objects of the files are asked about as if
    they were in that cluster. Nothing is changed. Each group is explained as if it were next.

    Parameters
    ----------
    names
        What to explain: podgroup/NAME, job/NAME, pod/NAME, workload/NAME or compositepodgroup/NAME. Default: all that
        waits.
    file
        Manifests, snapshots (muster snapshot), or directories of them; - is standard input. Repeatable.
    kubeconfig
        How to reach the cluster. Default: as in a pod of the cluster, else what kubectl would use.
    context
        The context of the kubeconfig. Default: its current one.
    namespace
        The namespace of the names.
    nodes
        Nodes besides those of the files or the cluster, as in muster simulate. Repeatable.
    effort
        How much work to spend on looking for changes, for each group. Default: 8192.
    output
        How to print it; the form of the JSON is docs/explain-output.schema.json.
    write
        Write it into this file instead.
    all_rows
        Show all nodes, holders and placements in the table, however many.
    """
    if effort < 1:
        raise BadInput(f"--effort {effort}: must be a positive number")
    check_writable(write)
    file, names = _apart(file, (*names, *filter(is_name, nodes)))
    more = read_nodes(tuple(each for each in nodes if not is_name(each)))
    objects, asked = _sources(file, kubeconfig, context)
    objects = [*more, *objects]
    with error_console().status("Deciding"):
        found = explanations(objects, asked, names, namespace, effort)
    value = {"explanations": found}
    given = [each.object for each in (*objects, *asked)]
    emit(value, output, write, lambda console: draw(value, console, everything=all_rows, objects=given))
    return 0


def _apart(files: tuple[Path, ...], names: tuple[str, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files and the names: an option takes all that follows it, so that names may come among the files.

    Raises `BadInput` for a file among the names.
    """
    for name in names:
        if not is_name(name) and Path(name).exists():
            raise BadInput(f"{name!r} is a file: files are given with -f")
    meant = [str(path) for path in files if not path.exists() and _is_meant_as_name(str(path), files)]
    return tuple(path for path in files if str(path) not in meant), (*names, *meant)


def _is_meant_as_name(text: str, files: tuple[Path, ...]) -> bool:
    """Whether something that is no file is a name, or a mistyped one after the files."""
    is_plain = not Path(text).suffix and not text.startswith("http")
    return is_name(text) or (is_plain and any(path.exists() for path in files))


def explanations(
    objects: list[Manifest], asked: list[Manifest], names: tuple[str, ...], namespace: str, effort: int
) -> list[Object]:
    """The explanations of what is named, else of what waits, in the cluster of these objects. Raises `BadInput`."""
    from muster.cli.manifest_warnings import manifest_warnings
    from muster.cluster import Cluster
    from muster.scheduler.explaining.names import UnknownName

    try:
        with manifest_warnings():
            cluster = Cluster.load(objects) if objects else Cluster()
            return list(cluster.explain(asked or None, *names, namespace=namespace, effort=effort))
    except (ManifestError, UnknownName) as error:
        raise BadInput(str(error)) from error


def _sources(files: tuple[Path, ...], kubeconfig: Path | None, context: str) -> tuple[list[Manifest], list[Manifest]]:
    """The objects of the cluster, and those that are asked about besides. Raises `BadInput`."""
    manifests = read_manifests(files)
    if manifests and kubeconfig is None and not context:
        return manifests, []
    if any(is_from_cluster(manifest.object) for manifest in manifests):
        raise BadInput("a snapshot of a cluster and --kubeconfig cannot be combined: the snapshot is the cluster")
    from muster.cli.live import read_live
    from muster.simulator.world import manifests_of

    with error_console().status("Reading the cluster"):
        return manifests_of(read_live(kubeconfig, context).objects), manifests
