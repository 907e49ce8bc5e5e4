"""`muster migrate`: Workloads and PodGroups across an upgrade that drops their version (1.36 to 1.37: v1alpha2).

Upstream has no conversion between releases: objects of v1alpha2 must be deleted before the upgrade. Three steps, each
of which can be repeated until it is done: `export` writes every object into a file, `delete` deletes from the server
what is in the files, `restore` creates it after the upgrade in the version that the server has then.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import orjson
from cyclopts import Parameter

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.resource import COMPOSITE_POD_GROUPS, POD_GROUPS, WORKLOADS, Resource
from muster.api.versions import GROUP, from_hub, to_hub
from muster.cli.errors import BadInput, CheckFailed, CommandError
from muster.cli.live import find_connection
from muster.client.client import Client
from muster.client.connection import Connection, KubeconfigError
from muster.client.credentials import CredentialsError
from muster.client.http import HttpTransport
from muster.client.transport import ApiError, ClientError
from muster.clock import Clock, RealClock
from muster.scheduler.served import served

COMPLETE = "exported.json"
"""The file that says that all objects were written, and how many."""
KINDS = (WORKLOADS, COMPOSITE_POD_GROUPS, POD_GROUPS)
"""In the order in which they are created: owners first."""
FIRST_ANSWER_S = 30.0
PAGE_SIZE = 500
GONE_S = 120.0
"""How long the garbage collector may take with what was deleted."""
PROTECTION = "scheduling.k8s.io/podgroup-protection"
_NOT_RESTORED = frozenset({PROTECTION, "orphan", "foregroundDeletion"})
_OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


class Unfinished(CommandError):
    """The server did not answer or refused something. Repeating the step goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did: how many objects it wrote, deleted or created, and how many were so before."""

    done: int
    before: int = 0


def migrate(
    step: Literal["export", "delete", "restore"],
    directory: Path,
    *,
    kubeconfig: Path | None = None,
    context: Annotated[str, Parameter(show_default=False)] = "",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Take Workloads and PodGroups across an upgrade that drops their version, as 1.36 to 1.37 does.

    export, then delete, then upgrade the API server, then restore. A step that was interrupted is repeated. Pods that
    run go on; those that wait for their group wait until it is restored.

    Parameters
    ----------
    step
        export: write every object into a file. delete: delete from the server what is in the files, if nothing has
        changed since. restore: create it in the version that the server has.
    directory
        Where the files are, one an object. export makes it.
    kubeconfig
        How to reach the cluster. Default: as in a pod of the cluster, else what kubectl would use.
    context
        The context of the kubeconfig. Default: its current one.
    dry_run
        Say how many objects there are to write, delete or create, and change nothing.
    """
    if step != "export":
        read_export(directory)
    connection = find_connection(kubeconfig, context)
    try:
        outcome = asyncio.run(_connected(connection, step, directory, dry_run))
    except (KubeconfigError, CredentialsError) as error:
        raise BadInput(f"{connection.server}: {error}") from error
    would = "would be " if dry_run else ""
    words = {"export": "written", "delete": "deleted", "restore": "created"}
    before = f", {outcome.before} were so before" if outcome.before else ""
    sys.stdout.write(f"{outcome.done} objects {would}{words[step]}{before}\n")
    return 0


async def _connected(connection: Connection, step: str, directory: Path, dry_run: bool) -> Outcome:
    clock = RealClock()
    http = HttpTransport(connection, clock=clock, user_agent="muster-migrate")
    client = Client(http, user_agent="muster-migrate", page_size=PAGE_SIZE)
    try:
        answer = await asyncio.wait_for(http.request("GET", "/version"), FIRST_ANSWER_S)
        if answer.status in (401, 403):
            raise BadInput(f"{connection.server} does not accept the credentials: {answer.status}")
        return await {"export": export, "delete": delete, "restore": restore}[step](client, clock, directory, dry_run)
    except (ClientError, TimeoutError) as error:
        raise Unfinished(f"{connection.server}: {error or 'no answer'}; repeat this step") from error
    finally:
        await http.aclose()


# -- the steps -------------------------------------------------------------------------------------------------------


async def export(client: Client, clock: Clock, directory: Path, dry_run: bool = False) -> Outcome:
    """Write every object of the group API as the server has it.

    Raises `BadInput` if the directory holds a complete export: what was deleted by it exists nowhere else.
    """
    if (directory / COMPLETE).exists():
        raise BadInput(
            f"{directory}: holds a complete export; take another directory, or remove it if nothing needs it"
        )
    found = await _on_server(client, clock)
    if dry_run:
        return Outcome(len(found))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in directory.glob("*.json"):
            file.unlink()  # of an export that was interrupted
        for _, obj in found:
            _write(directory / f"{obj['kind'].lower()}.{namespace_of(obj)}.{name_of(obj)}.json", obj)
        _write(directory / COMPLETE, {"objects": len(found)})
    except OSError as error:
        raise BadInput(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return Outcome(len(found))


async def delete(client: Client, clock: Clock, directory: Path, dry_run: bool = False) -> Outcome:
    """Delete from the server what was exported; groups before the Workloads that own them.

    Raises `CheckFailed`, and deletes nothing, if the server has something that is not in the files as it is, or groups
    that share devices: their claims could not be given to what is created later. `Unfinished` if something stays.
    """
    exported = {_identity(obj): obj for obj in read_export(directory)}
    found = await _on_server(client, clock)
    changed = [_label(obj) for _, obj in found if not _is_same(obj, exported.get(_identity(obj)))]
    if changed:
        raise CheckFailed(f"{len(changed)} objects are not in {directory} as they are: export again", tuple(changed))
    sharing = [_label(obj) for _, obj in found if obj["spec"].get("resourceClaims")]
    if sharing:
        raise CheckFailed(f"{len(sharing)} groups share devices: let them end first", tuple(sharing))
    if not dry_run:
        for resource, obj in reversed(found):
            await _delete(client, resource, obj)
        await _until_gone(client, clock)
    return Outcome(len(found), len(exported) - len(found))


async def restore(client: Client, clock: Clock, directory: Path, dry_run: bool = False) -> Outcome:
    """Create what was exported in the version that the server has, its status included.

    What was being deleted before does not come back. Raises `CheckFailed` if an object of the same name says something
    else, or the server lacks its kind; all others are created before.
    """
    places = {resource.kind: await served(client, clock, resource) for resource in KINDS}
    uids: dict[str, str] = {}
    done = before = 0
    faults = []
    for obj in sorted(read_export(directory), key=_creation_order):
        if is_deleting(obj):
            continue
        place = places[obj["kind"]]
        label = _label(obj)
        if place is None or place.group != GROUP:
            faults.append(f"{label}: the server has no {obj['kind']} in {GROUP}")
            continue
        wanted = in_version(obj, place.version, uids)
        try:
            there = await _there(client, place, wanted)
            if there is None and not dry_run:
                there = await client.create(place, namespace_of(wanted), wanted)
                done += 1
            elif there is None:
                done += 1
                continue
            elif not _says(there["spec"], wanted["spec"]):
                faults.append(f"{label}: there is another one of this name")
                continue
            else:
                before += 1
            if not dry_run:
                await _restore_status(client, place, wanted, there)
        except ApiError as error:
            faults.append(f"{label}: {error}")
            continue
        uids[uid_of(obj)] = uid_of(there)
    if faults:
        raise CheckFailed(f"{len(faults)} objects were not restored ({done} created, {before} before)", tuple(faults))
    return Outcome(done, before)


# -- objects and files -----------------------------------------------------------------------------------------------


def read_export(directory: Path) -> Objects:
    """The objects of a complete export. Raises `BadInput`."""
    try:
        said = orjson.loads((directory / COMPLETE).read_bytes())
        files = sorted(file for file in directory.glob("*.json") if file.name != COMPLETE)
        objects: Objects = [orjson.loads(file.read_bytes()) for file in files]
    except FileNotFoundError as error:
        raise BadInput(f"{directory}: holds no complete export (no {COMPLETE}): run the step export first") from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise BadInput(f"{directory}: cannot be read: {error}") from error
    if len(objects) != said.get("objects"):
        raise BadInput(f"{directory}: has {len(objects)} objects, but {said.get('objects')} were exported")
    return objects


def in_version(obj: Object, version: str, uids: dict[str, str]) -> Object:
    """An exported object as it is to be created. `uids`: what became of the uids of its owners, where they changed."""
    hub = to_hub(obj, obj["apiVersion"].rpartition("/")[2])
    made = from_hub(hub, version)
    metadata = {key: value for key, value in made["metadata"].items() if key not in _OF_THE_SERVER}
    if kept := [each for each in metadata.pop("finalizers", ()) if each not in _NOT_RESTORED]:
        metadata["finalizers"] = kept
    if "ownerReferences" in metadata:
        owners = metadata["ownerReferences"]
        metadata["ownerReferences"] = [
            {**owner, "apiVersion": f"{GROUP}/{version}" if owner["uid"] in uids else owner["apiVersion"]}
            | {"uid": uids.get(owner["uid"], owner["uid"])}
            for owner in owners
        ]
    return {**made, "metadata": metadata}


def _write(path: Path, obj: Object) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(orjson.dumps(obj, option=orjson.OPT_INDENT_2))
    partial.replace(path)


def _label(obj: Object) -> str:
    return f"{obj['kind']} {namespace_of(obj)}/{name_of(obj)}"


def _identity(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], namespace_of(obj), name_of(obj)


def _creation_order(obj: Object) -> tuple[int, str, str, str]:
    kinds = [resource.kind for resource in KINDS]
    return kinds.index(obj["kind"]), str(obj["metadata"].get("creationTimestamp") or ""), *_identity(obj)[1:]


def _is_same(obj: Object, exported: Object | None) -> bool:
    """Whether the file has what the server has; status and finalizers may have changed, deletion may have begun."""
    return exported is not None and uid_of(obj) == uid_of(exported) and obj.get("spec") == exported.get("spec")


def _says(spec: Object, wanted: Object) -> bool:
    """Whether a spec says all that is wanted; the server adds defaults."""
    return all(spec.get(key) == value for key, value in wanted.items())


# -- the server ------------------------------------------------------------------------------------------------------


async def _on_server(client: Client, clock: Clock) -> list[tuple[Resource, Object]]:
    """Every object of Kubernetes' group API, owners first, as the server has it."""
    found: list[tuple[Resource, Object]] = []
    for resource in KINDS:
        place = await served(client, clock, resource)
        if place is not None and place.group == GROUP:
            kind = {"apiVersion": place.api_version, "kind": place.kind}
            found += [(place, {**obj, **kind}) for obj in (await client.list(place)).items]
    return found


async def _delete(client: Client, resource: Resource, obj: Object) -> None:
    """Delete one object though pods use it: they go on, and it is to come back. What it owns loses an owner."""
    namespace, name, metadata = namespace_of(obj), name_of(obj), obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    try:
        if PROTECTION in finalizers:
            kept = [each for each in finalizers if each != PROTECTION]
            same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            await client.patch(resource, namespace, name, {"metadata": {**same, "finalizers": kept}})
        if not is_deleting(obj):
            options: Object = {"propagationPolicy": "Orphan", "preconditions": {"uid": uid_of(obj)}}
            await client.delete(resource, namespace, name, options)
    except ApiError as error:
        if error.code != 404:
            raise


async def _until_gone(client: Client, clock: Clock) -> None:
    end_s = clock.now() + GONE_S
    while left := await _on_server(client, clock):
        if clock.now() >= end_s:
            names = tuple(f"{_label(obj)}: {', '.join(obj['metadata'].get('finalizers') or ())}" for _, obj in left)
            raise Unfinished(f"{len(left)} objects are not gone (these finalizers keep them): repeat this step", names)
        await clock.sleep(0.5)


async def _there(client: Client, place: Resource, wanted: Object) -> Object | None:
    try:
        return await client.get(place, namespace_of(wanted), name_of(wanted))
    except ApiError as error:
        if error.code == 404:
            return None
        raise


async def _restore_status(client: Client, place: Resource, wanted: Object, there: Object) -> None:
    """What the status said before, unless the scheduler has said something since."""
    if wanted.get("status") and not (there.get("status") or {}).get("conditions"):
        patch = {"status": wanted["status"]}
        await client.patch(place, namespace_of(wanted), name_of(wanted), patch, subresource="status")
