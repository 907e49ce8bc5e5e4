"""A simulated world: an embedded cluster in virtual time, watched from its first write on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import asdict

from muster.api.codec import Object, Objects
from muster.api.manifests import Manifest, creation_order, is_from_cluster, resource_of
from muster.api.meta import name_of, namespace_of
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, RESOURCE_QUOTAS, Resource
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import object_of, warnings_of
from muster.client.transport import MERGE_PATCH, ApiError, Transport
from muster.clock import VirtualClock
from muster.controllers.runner import DEFAULT_BACKOFF
from muster.nodes.spec import NodeSpec, completed
from muster.scheduler.explaining.feed import in_stored_form
from muster.scheduler.watches import LOOK_AGAIN_S
from muster.simulator.embedded import EmbeddedCluster
from muster.simulator.faults import FaultyTransport, RequestFaults
from muster.simulator.forms import decoded, refusal
from muster.simulator.history import History
from muster.simulator.invariants import InvariantChecker, Violation
from muster.simulator.latency import LatencyTransport
from muster.simulator.notices import Notice, notices
from muster.simulator.observed import ObservedStore
from muster.simulator.options import ClusterOptions
from muster.simulator.refusals import standing_refusals

REPORTED = (
    *("nodes", "pods", "podgroups", "compositepodgroups", "workloads", "jobs", "topologies.kueue.x-k8s.io"),
    *("deviceclasses", "resourceslices", "resourceclaims"),
)
"""Collections of the store that an outcome holds."""

LEASE_S = 365 * 86_400
"""In virtual time no node dies unnoticed (a fault shortens its lease first), so nothing is spent on renewals."""


class Outcome(Struct, frozen=True):
    """What a simulation came to. `objects`: by plural, in stored form, in key order; they are shared: do not change.

    `is_quiet`: it ended because nothing was left to happen, not at a time limit.
    """

    time_s: float
    seed: int
    is_quiet: bool
    options: ClusterOptions
    objects: dict[str, Objects]
    history: History
    violations: tuple[Violation, ...]


RETRIED_WITHIN_S = 1.1 * DEFAULT_BACKOFF.limit_s
"""A controller tries again within that time, however often it has failed."""
_RULES = ("/resourcequotas/", "/limitranges/", "/priorityclasses/", "/runtimeclasses/")
"""What decides whether an object may be made, by the beginning of keys."""


@dataclass(slots=True)
class World:
    """One simulation. `seed` decides latencies, names and uids, hence the order of what happens at once."""

    clock: VirtualClock
    seed: int
    options: ClusterOptions = field(default_factory=ClusterOptions)
    request_faults: RequestFaults | None = None
    history: History = field(default_factory=History)
    said: list[Notice] = field(default_factory=list)
    """What is to be said about the manifests that were applied."""
    store: ObservedStore = field(init=False)
    cluster: EmbeddedCluster = field(init=False)
    checker: InvariantChecker = field(init=False)
    _namespaces: dict[str, None] = field(default_factory=dict)
    _eased_s: float = field(default=0.0)
    _defined_s: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.checker = InvariantChecker(self.options)
        self.store = ObservedStore(MemoryStore())
        self.store.observers.append(self._observe)
        rng = random.Random(self.seed)
        self.cluster = EmbeddedCluster(
            self.store, self.clock, rng, self.options, connect=self._connect, lease_s=LEASE_S
        )

    @property
    def time_s(self) -> float:
        """Seconds since the simulation began, to the microsecond."""
        return round(self.clock.elapsed_s, 6)

    async def run(self) -> None:
        """Run the cluster's components until cancelled."""
        await self.cluster.run()

    async def create_nodes(self, specs: Iterable[NodeSpec]) -> None:
        """Create the nodes of `--nodes`."""
        await self.cluster.create_nodes(specs)

    async def apply(self, manifests: Sequence[Manifest]) -> None:
        """Create the objects, what others refer to first; missing namespaces are made. It takes no time.

        Raises `ManifestError` for an object that the server refuses.
        """
        for manifest in creation_order(manifests):
            try:
                await self._create(manifest)
            except ApiError as error:
                raise manifest.refused(refusal(manifest, error)) from error

    async def change(self, manifest: Manifest, path: str, patch: Object) -> None:
        """Merge a patch into the object of a manifest. It takes no time. Raises `ApiError`."""
        await self._send(manifest, "PATCH", path, patch, {"Content-Type": MERGE_PATCH})

    async def _send(
        self,
        manifest: Manifest,
        method: str,
        path: str,
        body: Object,
        headers: Mapping[str, str] | None = None,
        unknown: Sequence[str] = (),
    ) -> None:
        """What is written for a manifest, and what is said about it. Raises `ApiError`."""
        response = await self.cluster.transport.request(
            method, path, headers={"User-Agent": "muster", **(headers or {})}, body=body
        )
        object_of(response)
        self.said += notices(manifest, (*unknown, *warnings_of(response)), self.options.emulate or "")

    def objects(self, plural: str) -> Objects:
        """The objects of a collection as they are now, in stored form and key order."""
        return self.store.list(f"/{plural}/").items

    def outcome(self, *, is_quiet: bool) -> Outcome:
        """The state of the world now; the invariants that hold at rest are checked if it is quiet."""
        objects = {plural: self.objects(plural) for plural in REPORTED}
        if is_quiet:
            self.checker.check_rest(objects, self.history, self.time_s)
        violations = tuple(self.checker.violations)
        return Outcome(self.time_s, self.seed, is_quiet, self.options, objects, self.history, violations)

    def awaits_retry(self) -> bool:
        """Whether something that could not be made, such as pods beyond a quota, may be made since then.

        What is refused again and again does not keep a simulation going; but whoever was refused must have tried again
        after what stood in the way may have gone.
        """
        if self.time_s >= self._eased_s + RETRIED_WITHIN_S:
            return False
        refusals = standing_refusals(asdict(event) for event in self.history.events)
        return any(refusal["time_s"] <= self._eased_s for refusal in refusals)

    def awaits_discovery(self) -> bool:
        """Whether a kind has been defined that the scheduler, which looks for new kinds now and then, may not know."""
        return self._defined_s > 0 and self.time_s <= self._defined_s + LOOK_AGAIN_S

    def _observe(self, key: str, value: Object | None, before: Object | None) -> None:
        time_s = self.time_s
        if key.startswith(_RULES) or (key.startswith("/pods/") and (value is None or _has_ended(value))):
            self._eased_s = time_s
        if key.startswith(f"/{CUSTOM_RESOURCE_DEFINITIONS.plural}/"):
            self._defined_s = time_s
        self.history.observe(key, value, before, time_s)
        self.checker.observe(key, value, before, time_s)

    def _connect(self, component: str, transport: Transport, rng: random.Random) -> Transport:
        slow: Transport = LatencyTransport(transport, self.clock, rng)
        if self.request_faults is None:
            return slow
        return FaultyTransport(slow, self.clock, random.Random(rng.getrandbits(64)), self.request_faults)

    async def _create(self, manifest: Manifest) -> None:
        obj = manifest.object
        if manifest.left_out:
            self.said.append(Notice(manifest, manifest.left_out))
            return
        resource = manifest.resource or resource_of(obj)
        assert resource is not None, "manifests are of known kinds"
        if manifest.resource is not None:
            await self._create_custom(manifest, resource)
            return
        if is_from_cluster(obj):
            self._take_over(obj, resource)
            return
        manifest, unknown = decoded(manifest, self.options.emulate or "")
        obj = manifest.object
        if resource.kind == NODES.kind and resource.group == NODES.group:
            obj = completed(obj, self.clock.now())
        namespace = (namespace_of(obj) or "default") if resource.namespaced else None
        if namespace is not None:
            await self._ensure_namespace(namespace)
        if resource.kind == NAMESPACES.kind and resource.group == NAMESPACES.group:
            await self._ensure_namespace(name_of(obj), obj)
            self.said += notices(manifest, unknown, self.options.emulate or "")
        else:
            await self._send(manifest, "POST", resource.path(namespace), obj, unknown=unknown)
        if resource.kind == RESOURCE_QUOTAS.kind and self.clock.elapsed_s == 0:
            await self._put_in_force(obj, namespace)

    async def _create_custom(self, manifest: Manifest, resource: Resource) -> None:
        """A definition of a kind, or an object of a kind that is defined: the server knows what belongs there."""
        namespace = (namespace_of(manifest.object) or "default") if resource.namespaced else None
        if namespace is not None:
            await self._ensure_namespace(namespace)
        await self._send(manifest, "POST", resource.path(namespace), manifest.object)

    async def _put_in_force(self, quota: Object, namespace: str | None) -> None:
        """A quota of the beginning counts from then on, as one that has been there for long (the server goes by its
        status, which the quota controller writes a moment later)."""
        hard = (quota.get("spec") or {}).get("hard") or {}
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        await self.cluster.client.patch(
            RESOURCE_QUOTAS, namespace, name_of(quota), {"status": status}, subresource="status"
        )

    def _take_over(self, obj: Object, resource: Resource) -> None:
        """An object of a snapshot of a cluster: it is there as it was, with its uid, status and node."""
        name = f"{namespace_of(obj) or 'default'}/{name_of(obj)}" if resource.namespaced else name_of(obj)
        if resource.kind == NAMESPACES.kind:
            self._namespaces[name] = None
        if self.store.get(f"/{resource.plural}/{name}") is None:
            self.store.put(f"/{resource.plural}/{name}", in_stored_form(obj))

    async def _ensure_namespace(self, name: str, obj: Object | None = None) -> None:
        if name in self._namespaces:
            return
        self._namespaces[name] = None
        plain = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await self.cluster.client.create(NAMESPACES, None, obj if obj is not None else plain)
        except ApiError as error:
            if not error.is_already_exists:
                raise


def manifests_of(objects: Iterable[Object]) -> list[Manifest]:
    """Objects made by a program as manifests; errors then name them by their number."""
    return [Manifest("<objects>", number, obj) for number, obj in enumerate(objects, start=1)]


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
