"""Manifests: YAML or JSON files with one or many objects, checked as far as that is possible without a server.

Rules as in kubectl: documents are separated by `---`, empty ones are skipped, `kind: List` (or `…List`) stands for its
items, timestamps stay text. Errors name the file and the line.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api import codec
from muster.api.codec import JSON, Object
from muster.api.dialects import DIALECTS
from muster.api.foreign import owner_of, without_bearing
from muster.api.quantity import QuantityError, parse_quantity
from muster.api.repeated_fields import YamlLoader, repeated_in_json
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, KUEUE_TOPOLOGIES, Resource


class ManifestError(ValueError):
    """A manifest that cannot be used. Not retryable.

    `file` is the name given, `line` counts from 1 (0: the file as a whole), `message` says what is wrong.
    """

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}:{line}: {message}" if line else f"{file}: {message}")
        self.file = file
        self.line = line
        self.message = message


class Manifest(Struct, frozen=True):
    """An object and the place where it was written.

    `repeated`: the paths of fields that are written twice there. `left_out`: why the object is not looked at, "" for
    one that is. `resource`: that of a definition of a kind, or of an object of a kind that is defined beside it.
    """

    file: str
    line: int
    object: Object
    repeated: tuple[str, ...] = ()
    left_out: str = ""
    resource: Resource | None = None

    def error(self, message: str) -> ManifestError:
        """An error about this object."""
        return ManifestError(self.file, self.line, message)

    def refused(self, message: str) -> ManifestError:
        """An error with what the API server says; the field is added where the server leaves it out."""
        found = next(_bad_quantities(self.object, ""), "") if "quantities must match" in message else ""
        return self.error(f"{found} is no quantity such as 32, 500m or 256Gi: {message}" if found else message)


STDIN = "/dev/stdin"
SUFFIXES = (".yaml", ".yml", ".json")
"""Of the files that are read in a directory."""

SNAPSHOT_KEY = "sim.muster-k8s.dev/snapshot"
"""Annotation of an object that `muster snapshot` has read from a cluster: it is taken over as it is, uid and status
included, where a simulation or an explanation reads it."""


def is_from_cluster(obj: Object) -> bool:
    """Whether the object is part of a snapshot of a cluster."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations")
    return bool(metadata.get("uid")) and isinstance(annotations, dict) and SNAPSHOT_KEY in annotations


def load(path: str | Path, *, any_kind: bool = False) -> list[Manifest]:
    """The objects of a file, in file order; of a directory, those of all manifests in and below it, sorted by path.

    `any_kind`: kinds that we do not know are let through, too. Raises `ManifestError`.
    """
    if not Path(path).is_dir():
        return parse(_read_text(path), _name_of(path), any_kind=any_kind)
    try:
        files = sorted(each for each in Path(path).rglob("*") if each.suffix in SUFFIXES and each.is_file())
    except OSError as error:
        raise ManifestError(_name_of(path), 0, f"cannot be read: {error.strerror or error}") from error
    if not files:
        raise ManifestError(_name_of(path), 0, f"there is no file *{', *'.join(SUFFIXES)} in this directory")
    return [manifest for file in files for manifest in parse(_read_text(file), _name_of(file), any_kind=any_kind)]


def load_value(path: str | Path) -> JSON:
    """The only document of a YAML or JSON file that need not be a manifest. Raises `ManifestError`."""
    name = _name_of(path)
    found = list(_documents(_read_text(path), name))
    if not found:
        raise ManifestError(name, 0, "there is nothing in it")
    if len(found) > 1:
        raise ManifestError(name, found[1][0], "there must be only one document in it")
    _, value, repeated = found[0]
    if repeated:
        raise ManifestError(name, 0, f'duplicate field "{repeated[0]}"')
    return value.value if isinstance(value, _Located) else value


def _name_of(path: str | Path) -> str:
    """How a file is called in messages, whatever bytes its name has."""
    if str(path) == STDIN:
        return "standard input"
    # a path has lost one of the slashes of a URL
    return re.sub(r"^(https?:)/(?!/)", r"\1//", os.fsencode(path).decode(errors="replace"))


def _read_text(path: str | Path) -> str:
    name = _name_of(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        if name.startswith(("http://", "https://")):
            raise ManifestError(name, 0, "URLs are not read: download it, or pipe it into -f -") from error
        raise ManifestError(name, 0, f"cannot be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(name, data[: error.start].count(b"\n") + 1, "is not UTF-8 text") from error


def parse(text: str, file: str = "<text>", *, any_kind: bool = False) -> list[Manifest]:
    """The objects of a text, in order; at least one. `any_kind` as for `load`. Raises `ManifestError`."""
    found = [
        checked(Manifest(file, line, item, _within(repeated, at)), at, any_kind=any_kind)
        for line, value, repeated in _documents(text, file)
        for line, item, at in _items(value, file, line)
    ]
    if not found:
        raise ManifestError(file, 0, "there is no object in it")
    return found


def checked(manifest: Manifest, at: str = "", *, any_kind: bool = False) -> Manifest:
    """The manifest, if it says what it is and has a name. Raises `ManifestError`.

    `at`: where in its document it is; `any_kind` as for `load`.
    """
    obj = manifest.object
    if not isinstance(obj, dict):
        raise manifest.error(f"{at}this is not an object with apiVersion, kind and metadata")
    for name in ("apiVersion", "kind"):
        if not obj.get(name):
            raise manifest.error(f"{at}{name} is missing")
        if not isinstance(obj[name], str):
            raise manifest.error(f"{at}{name} must be text, not {obj[name]!r}")
    if not any_kind and resource_of(obj) is None:
        reason = without_bearing(obj)
        if not reason:
            raise manifest.error(f"{at}no kind {obj['kind']!r} is known in {obj['apiVersion']}{_hint(obj)}")
        manifest = replace(manifest, left_out=reason)
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise manifest.error(f"{at}{obj['kind']} has no metadata.name")
    if not isinstance(metadata.get("name", ""), str):
        raise manifest.error(f"{at}metadata.name of a {obj['kind']} must be text: write it in quotes")
    return manifest


def resource_of(obj: Object) -> Resource | None:
    """The resource under which an object of a known kind is created, or None."""
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    known = _KINDS.get((group, str(obj.get("kind", ""))))
    if known is None:
        return None
    plural, namespaced, _ = known
    return Resource(group, version, plural, str(obj["kind"]), namespaced)


def with_custom_kinds(batches: Iterable[Sequence[Manifest]]) -> list[list[Manifest]]:
    """Manifests read with `any_kind`, in batches that belong together: kinds that one of them defines are known.

    Definitions and objects of these kinds get their resource; all others are checked. Raises `ManifestError`.
    """
    batches = [list(batch) for batch in batches]
    kinds = {(each.api_version, each.kind): each for batch in batches for one in batch for each in _defined(one.object)}
    return [[_of_kinds(manifest, kinds) for manifest in batch] for batch in batches]


def _of_kinds(manifest: Manifest, kinds: Mapping[tuple[str, str], Resource]) -> Manifest:
    resource = kinds.get((manifest.object["apiVersion"], manifest.object["kind"]))
    return checked(manifest) if resource is None else replace(manifest, resource=resource)


def _defined(obj: Object) -> Iterator[Resource]:
    """The kinds that an object defines, itself included; whether it may do so, a server says."""
    if (obj["apiVersion"], obj["kind"]) != (CUSTOM_RESOURCE_DEFINITIONS.api_version, CUSTOM_RESOURCE_DEFINITIONS.kind):
        return
    yield CUSTOM_RESOURCE_DEFINITIONS
    spec = obj.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(names, dict):
        return
    for version in spec.get("versions") or ():
        if isinstance(version, dict):
            texts = (spec.get("group"), version.get("name"), names.get("plural"), names.get("kind"))
            group, name, plural, kind = map(str, texts)
            yield Resource(group, name, plural, kind, namespaced=spec.get("scope") == "Namespaced")


_AMOUNTS = ("requests", "limits", "allocatable", "capacity", "hard", "podFixed", "min", "max", "default")
"""Maps of resources to quantities."""


def _bad_quantities(value: JSON, path: str) -> Iterator[str]:
    """Each amount of a resource that is no quantity, with its path."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _bad_quantities(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            at = f"{path}.{key}" if path else str(key)
            if path.rpartition(".")[2] in _AMOUNTS and not isinstance(item, (dict, list)):
                if not _is_quantity(item):
                    yield f"{path}[{key}]: {item!r}"
            else:
                yield from _bad_quantities(item, at)


def _is_quantity(value: JSON) -> bool:
    try:
        parse_quantity(value)
    except QuantityError:
        return False
    return True


def creation_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The manifests with what others refer to first; otherwise the order stays."""
    return sorted(manifests, key=_rank)


def _rank(manifest: Manifest) -> int:
    obj = manifest.object
    if manifest.resource is not None:
        return _DEFINITIONS_RANK if manifest.resource == CUSTOM_RESOURCE_DEFINITIONS else _CUSTOM_RANK
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    known = _KINDS.get((group, str(obj.get("kind", ""))))
    return known[2] if known else len(_RANKS)


# (group, kind) → plural, namespaced; one line for each rank of the order of creation.
_RANKS: tuple[dict[tuple[str, str], tuple[str, bool]], ...] = (
    {("", "Namespace"): ("namespaces", False)},
    {
        ("scheduling.k8s.io", "PriorityClass"): ("priorityclasses", False),
        ("resource.k8s.io", "DeviceClass"): ("deviceclasses", False),
        ("storage.k8s.io", "StorageClass"): ("storageclasses", False),
        ("node.k8s.io", "RuntimeClass"): ("runtimeclasses", False),
    },
    {("", "Node"): ("nodes", False)},
    {
        ("", "ConfigMap"): ("configmaps", True),
        ("", "Secret"): ("secrets", True),
        ("", "ServiceAccount"): ("serviceaccounts", True),
        ("", "Service"): ("services", True),
        ("", "Event"): ("events", True),
        ("", "LimitRange"): ("limitranges", True),
        ("", "ResourceQuota"): ("resourcequotas", True),
        ("", "PersistentVolume"): ("persistentvolumes", False),
        ("", "PersistentVolumeClaim"): ("persistentvolumeclaims", True),
        ("coordination.k8s.io", "Lease"): ("leases", True),
        ("policy", "PodDisruptionBudget"): ("poddisruptionbudgets", True),
        ("resource.k8s.io", "ResourceSlice"): ("resourceslices", False),
        ("resource.k8s.io", "ResourceClaimTemplate"): ("resourceclaimtemplates", True),
        ("resource.k8s.io", "ResourceClaim"): ("resourceclaims", True),
        ("storage.k8s.io", "CSINode"): ("csinodes", False),
        ("storage.k8s.io", "CSIDriver"): ("csidrivers", False),
        ("storage.k8s.io", "CSIStorageCapacity"): ("csistoragecapacities", True),
    },
    {("scheduling.k8s.io", "Workload"): ("workloads", True)},
    {("scheduling.k8s.io", "CompositePodGroup"): ("compositepodgroups", True)},
    {("scheduling.k8s.io", "PodGroup"): ("podgroups", True)},
    {
        ("batch", "Job"): ("jobs", True),
        ("batch", "CronJob"): ("cronjobs", True),
        ("apps", "Deployment"): ("deployments", True),
        ("apps", "ReplicaSet"): ("replicasets", True),
        ("apps", "StatefulSet"): ("statefulsets", True),
        ("apps", "DaemonSet"): ("daemonsets", True),
        ("", "ReplicationController"): ("replicationcontrollers", True),
    },
    {("", "Pod"): ("pods", True)},
)
_DEFINITIONS_RANK, _CUSTOM_RANK = 0, 3
"""Definitions come with the namespaces, objects of their kinds before workloads."""
_KINDS = {key: (*names, rank) for rank, kinds in enumerate(_RANKS) for key, names in kinds.items()}


def _items(value: JSON, file: str, line: int) -> Iterator[tuple[int, JSON, str]]:
    """The objects that a document stands for: (line, object, where in the document)."""
    lines: list[int] = []
    if isinstance(value, _Located):
        lines, value = value.lines, value.value
    if not (isinstance(value, dict) and str(value.get("kind", "")).endswith("List")):
        yield line, value, ""
        return
    items = value.get("items")
    if not isinstance(items, list):
        raise ManifestError(file, line, f"{value['kind']} has no list of items")
    kind = value["kind"].removesuffix("List")
    for index, item in enumerate(items):
        if kind and isinstance(item, dict):  # items of a PodList need not say what they are
            item = {"apiVersion": value.get("apiVersion"), "kind": kind, **item}
        yield lines[index] if index < len(lines) else line, item, f"items[{index}]: "


def _within(repeated: Iterable[str], at: str) -> tuple[str, ...]:
    """Of the fields that a document gives twice those of the object there."""
    if not at:
        return tuple(repeated)
    start = f"{at.removesuffix(': ')}."
    return tuple(path.removeprefix(start) for path in repeated if path.startswith(start))


def _hint(obj: Object) -> str:
    if obj["kind"] == "PodGroup" and obj["apiVersion"] in DIALECTS:
        return ": muster convert --to scheduling.k8s.io/v1beta1 turns it into a PodGroup that is"
    groups = sorted({group or "v1" for group, kind in _KINDS if kind == obj["kind"]})
    if groups and not owner_of(obj):
        return f" (it is a kind of {', '.join(groups)})"
    if (obj["kind"], obj["apiVersion"].partition("/")[0]) == (KUEUE_TOPOLOGIES.kind, KUEUE_TOPOLOGIES.group):
        return ": muster simulate takes it together with the CustomResourceDefinition of its kind"
    if "." in obj["apiVersion"].partition("/")[0]:
        return ": its controller does not run here, so give the pods or Jobs that it would make"
    lower = {kind.lower(): kind for _, kind in _KINDS}
    close = difflib.get_close_matches(obj["kind"].lower(), lower, n=1, cutoff=0.75)
    return f" (did you mean {lower[close[0]]}?)" if close else ""


class _Located(Struct, frozen=True):
    """A list object of a YAML document with the lines of its items."""

    value: Object
    lines: list[int]


_Document: TypeAlias = tuple[int, JSON, Sequence[str]]
"""The line on which a document starts, its value, and the paths of what it gives twice."""


def _documents(text: str, file: str) -> Iterator[_Document]:
    """Each document that is not empty."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = codec.loads(text)
        except ValueError as error:
            found = list(_json_stream(text))
            if found:
                yield from found
                return
            if file.endswith(".json"):
                yield from _json_or_flow(text, file, error)
                return
            # YAML in flow style, or neither: the YAML parser says what is wrong
        else:
            if isinstance(value, list):
                yield from ((1, item, ()) for item in value)
            else:
                yield 1, value, _repeated(text)
            return
    if text.startswith(SNAPSHOT_HEAD):
        try:
            found = [codec.loads(line.removeprefix("- ")) for line in text.splitlines()[3:] if line]
        except ValueError:
            pass  # edited by hand
        else:
            yield 1, _Located({"kind": "List", "items": found}, list(range(4, 4 + len(found)))), ()
            return
    yield from _yaml_documents(text, file)


MOST_WRITTEN = 1_000_000
"""Characters of a JSON text that a person may have written; longer ones are not searched for what is there twice."""


def _repeated(text: str) -> list[str]:
    return repeated_in_json(text) if len(text) <= MOST_WRITTEN else []


def _json_or_flow(text: str, file: str, error: ValueError) -> Iterator[_Document]:
    """YAML in flow style in a file that is called JSON; if it is not even that, what is wrong with the JSON."""
    try:
        yield from _yaml_documents(text, file)
    except ManifestError:
        why = getattr(error, "msg", str(error))
        raise ManifestError(file, getattr(error, "lineno", 0), f"not JSON: {why}") from error


def _json_stream(text: str) -> Iterator[_Document]:
    """JSON documents one after the other, each with its line, as kubectl takes them; none if the text is not that."""
    decoder = json.JSONDecoder()
    found: list[_Document] = []
    at, line = 0, 1
    while True:
        start = at + len(text[at:]) - len(text[at:].lstrip())
        line += text.count("\n", at, start)
        if start >= len(text):
            break
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return
        found.append((line, value, _repeated(text[start:at])))
        line += text.count("\n", start, at)
    yield from found


SNAPSHOT_HEAD = "apiVersion: v1\nkind: List\nitems:\n- {"
"""How the YAML of a snapshot begins: its items are JSON, one a line, which is read much faster as that."""


def _yaml_documents(text: str, file: str) -> Iterator[_Document]:
    try:
        loader = YamlLoader(text)
    except yaml.YAMLError as error:
        raise _yaml_error(error, file) from error
    try:
        while loader.check_node():
            node = loader.get_node()
            value = _Plain(file, node.start_mark.line + 1, most=len(text) + MOST_ALIASED).value(
                loader.construct_document(node)
            )
            if value is not None:
                lines = _lines_of_items(node)
                yield node.start_mark.line + 1, _Located(value, lines) if lines else value, loader.repeated(node)
    except yaml.YAMLError as error:
        raise _yaml_error(error, file) from error
    finally:
        loader.dispose()


def _yaml_error(error: yaml.YAMLError, file: str) -> ManifestError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        is_tab = "cannot start any token" in str(error.problem)
        hint = " (a tab? indent with spaces)" if is_tab else ""
        return ManifestError(file, error.problem_mark.line + 1, f"not YAML: {error.problem}{hint}")
    return ManifestError(file, 0, f"not YAML: {str(error).splitlines()[0]}")


def _lines_of_items(node: yaml.Node) -> list[int]:
    if not isinstance(node, yaml.MappingNode):
        return []
    for key, value in node.value:
        if key.value == "items" and isinstance(value, yaml.SequenceNode):
            return [item.start_mark.line + 1 for item in value.value]
    return []


MOST_ALIASED = 1_000_000
"""Of how many values more than it has characters a document may consist: aliases repeat what they stand for."""


class _Plain:
    """Makes values out of what YAML gives: only what JSON has; keys become text, as in kubectl."""

    def __init__(self, file: str, line: int, most: int) -> None:
        self._file = file
        self._line = line
        self._left = most

    def value(self, value: JSON) -> JSON:
        """The document. Raises `ManifestError`, also where it holds itself or grows beyond measure by aliases."""
        try:
            return self._plain(value)
        except RecursionError:
            raise self._error("an alias (*) stands inside what it refers to, or it is nested too deeply") from None

    def _plain(self, value: JSON) -> JSON:
        self._left -= 1
        if self._left < 0:
            raise self._error("its aliases (*) stand for too much")
        if isinstance(value, dict):
            return {self._key(key): self._plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise self._error(f"a value of type {type(value).__name__} cannot be written as JSON")

    def _key(self, key: JSON) -> str:
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, (str, int, float)):
            return str(key)
        raise self._error(f"a key must be text, not {type(key).__name__}")

    def _error(self, message: str) -> ManifestError:
        return ManifestError(self._file, self._line, message)
