"""ClusterState: the engine's picture of the cluster, kept up to date by events, from which snapshots are taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from muster.api.codec import Object, canonical
from muster.api.meta import is_deleting, namespace_of
from muster.api.selectors import LabelSelector, SelectorError
from muster.engine.arrays import frozen, zeros
from muster.engine.axis import ResourceAxis, widened
from muster.engine.devices.demand import DeviceDemand, claims_held, demand_of
from muster.engine.devices.features import OURS, Features
from muster.engine.devices.reserving import DeviceLedger, DeviceReservation, Wanting, assumed
from muster.engine.devices.view import classes_of
from muster.engine.identity import NO_TERMS, Identity, PodTerms, SelectedKeys, has_terms, parse_terms
from muster.engine.nodes import NodeRecord, NodeTable, build_table, parse_node
from muster.engine.objects import RESOURCE_CLAIM, ObjectStore, relevant, selectors_of
from muster.engine.pod_book import OwnPodBook, PodBook
from muster.engine.ports import PortTable
from muster.engine.requests import Usage, usage_of
from muster.engine.shape import IdentityKey, Shape, parse_shape, shape_key, usage_key
from muster.engine.snapshot import Nomination, Snapshot, add_presence, add_usage, add_usages, moved_usage, spots_of
from muster.engine.spreading import parse_spread
from muster.engine.storage.reserving import Reservation, Reservations, reservation_at

_CACHE_LIMIT = 20_000
_FEW = 16
"""So many changes of pods are counted faster one by one than by kind."""

K = TypeVar("K")
V = TypeVar("V")


class ClusterState:
    """Nodes, assigned pods and other objects that rules look at, mutable. Not for use from several threads.

    Events are cheap: a pod costs a few microseconds, a changed node marks the table, which is rebuilt at the next
    `snapshot()`. All methods are idempotent. A pod on a node that is not known is kept and counts once it appears.
    `book`: where the owner looks up pods, if he keeps them anyway; what it says must not change before the state is
    told. `features`: which parts of dynamic resource allocation are on.
    """

    def __init__(self, book: PodBook | None = None, features: Features = OURS) -> None:
        self._features = features
        self._records: dict[str, NodeRecord] = {}
        self._axis = ResourceAxis()
        self._placed: dict[str, dict[str, Usage]] = {}
        self._own: set[str] = set()  # nodes whose dict in _placed no snapshot shares
        own = OwnPodBook()
        self._book: PodBook = own if book is None else book
        self._own_book = own if book is None else None
        self._stale = False
        self._last: Snapshot | None = None
        self._shapes: dict[tuple[bytes, DeviceDemand | None], Shape] = {}
        self._interned: dict[Shape, Shape] = {}
        self._usages: dict[bytes, Usage] = {}
        self._pending: list[tuple[int, Usage, int]] = []  # (row, usage, sign): not yet in the arrays of _live
        self._selected = SelectedKeys()
        self._terms: dict[bytes, PodTerms] = {}
        self._unprojected = False  # whether identities of placed pods lack labels that somebody selects by now
        self._nominated: dict[str, tuple[str, Nomination]] = {}
        self._reservations = Reservations()
        self.devices = DeviceLedger()
        self.objects = ObjectStore()
        table = build_table((), self._axis)
        self._live = Snapshot(table, zeros(0, len(self._axis)), zeros(0, 2), PortTable(0), self._placed)

    # -- nodes

    def set_node(self, node: Object) -> bool:
        """Adds or replaces a node; returns whether anything changed that matters here. Raises QuantityError."""
        record = parse_node(node)
        if self._records.get(record.name) == record:
            return False
        self._records[record.name] = record
        self._extend(resource for resource, _ in record.allocatable)
        self._stale = True
        return True

    def remove_node(self, name: str) -> None:
        """Forgets a node; its pods are kept and count again if it comes back."""
        if self._records.pop(name, None) is not None:
            self._stale = True

    # -- pods

    def add_pod(self, key: str, pod: Object, node_name: str) -> Identity | None:
        """Counts a pod (assigned or assumed) on a node, in place of what was known of that key.

        Who it is to others; None while there are no rules between pods.
        """
        usage = self._usage(pod)
        before = self.node_of(key)
        if before is not None:
            if before == node_name and self._placed[node_name][key] == usage:
                self._note(key, node_name, pod)
                return usage.identity
            self._take_away(key, before)
        self._note(key, node_name, pod)
        self._pods_of(node_name)[key] = usage
        self._count(node_name, usage, 1)
        return usage.identity

    def _note(self, key: str, node_name: str, pod: Object) -> None:
        if self._own_book is not None:
            self._own_book.note(key, node_name, pod["metadata"])

    def remove_pod(self, key: str) -> None:
        """Forgets a pod; unknown keys are ignored."""
        node_name = self.node_of(key)
        if node_name is not None:
            self._take_away(key, node_name)
            if self._own_book is not None:
                self._own_book.forget(key)

    def _take_away(self, key: str, node_name: str) -> None:
        pods = self._pods_of(node_name)
        self._count(node_name, pods.pop(key), -1)
        if not pods:
            del self._placed[node_name]

    def node_of(self, key: str) -> str | None:
        """The node on which a pod is counted."""
        node_name = self._book.node_of(key)
        return node_name if node_name and key in self._placed.get(node_name, ()) else None

    def shape_of(self, pod: Object) -> Shape:
        """The shape of a pod; equal shapes are the same object. Raises QuantityError or SelectorError."""
        identity_key, terms = self._identity_key(pod)
        devices = self.devices_of(pod)
        raw = shape_key(pod, identity_key), devices
        shape = self._shapes.get(raw)
        if shape is None:
            parsed = parse_shape(pod, _identity(identity_key, terms), devices)
            shape = _remember(self._shapes, raw, _remember(self._interned, parsed, self._interned.get(parsed, parsed)))
        return shape

    def devices_of(self, pod: Object) -> DeviceDemand | None:
        """What a pending pod asks of devices, with the claims and classes of this moment."""
        return self._demand(pod)

    def _demand(self, pod: Object, *, by_name: bool = False) -> DeviceDemand | None:
        objects = self.objects
        return demand_of(
            pod, lambda key: objects.get(RESOURCE_CLAIM, key), classes_of(objects), self._features, by_name=by_name
        )

    def assume_allocation(self, key: str, allocation: Object) -> None:
        """Count devices for a claim that are decided and not written yet; an unknown claim is ignored."""
        claim = self.objects.get(RESOURCE_CLAIM, key)
        if claim is not None:
            self.objects.set(RESOURCE_CLAIM, assumed(claim, allocation))
            self._last = None

    def note_rules(self, pod: Object) -> None:
        """Takes note of whom a pending pod selects by its rules: shapes and usages made from then on keep those labels.

        To be told of all pods of a group before the shape of the first of them is asked for. What cannot be parsed is
        ignored here.
        """
        if _has_rules(pod["spec"]):
            with suppress(SelectorError):
                self._own_rules(pod)

    def shapes_of(self, pods: Sequence[Object]) -> list[Shape]:
        """The shapes of pods that are decided together. Raises as `shape_of`."""
        for pod in pods:
            self.note_rules(pod)
        return [self.shape_of(pod) for pod in pods]

    def nominate(self, key: str, pod: Object, node_name: str | None) -> None:
        """Notes that room was made on a node for a pending pod, or with None that it is not nominated any more."""
        if node_name is None:
            if self._nominated.pop(key, None) is not None:
                self._last = None
            return
        nomination = Nomination(key, int(pod["spec"].get("priority") or 0), self._usage(pod))
        if self._nominated.get(key) != (node_name, nomination):
            self._nominated[key] = (node_name, nomination)
            self._last = None

    def _usage(self, pod: Object) -> Usage:
        identity_key, terms = self._identity_key(pod)
        raw = usage_key(pod, identity_key)
        usage = self._usages.get(raw)
        if usage is None:
            usage = _remember(self._usages, raw, usage_of(pod, _identity(identity_key, terms)))
            self._extend(name for name, _ in usage.requests)
        if pod["spec"].get("resourceClaims"):
            return replace(usage, devices=claims_held(pod))
        return usage

    def _extend(self, resources: Iterable[str]) -> None:
        """Give the axis these resources; the table follows with the next snapshot."""
        axis = self._axis.extended(resources)
        if axis is not self._axis:
            self._axis = axis
            self._stale = True

    # -- who pods are to each other

    def _identity_key(self, pod: Object) -> tuple[IdentityKey, PodTerms]:
        """What other pods see of the pod (None while there are no rules between pods), and its own terms."""
        terms = self._own_rules(pod) if _has_rules(pod["spec"]) else NO_TERMS
        selected = self._selected
        if not selected.active:
            return None, terms
        labels = pod["metadata"].get("labels") or {}
        return (namespace_of(pod), selected.kept(labels), is_deleting(pod)), terms

    def _own_rules(self, pod: Object) -> PodTerms:
        """The pod's terms; the keys of its selectors are noted."""
        spec = pod["spec"]
        labels = pod["metadata"].get("labels")
        raw = canonical([namespace_of(pod), labels, spec.get("affinity"), spec.get("topologySpreadConstraints")])
        terms = self._terms.get(raw)
        if terms is None:
            terms = _remember(self._terms, raw, parse_terms(pod))
            self._select([*terms.selectors(), *(rule.selector for rule in parse_spread(pod))])
        return terms

    def _select(self, selectors: list[LabelSelector]) -> None:
        if self._selected.add(selectors):
            self._unprojected = True

    def _project(self) -> None:
        """Gives the placed pods the labels that somebody selects by since they were counted."""
        known: dict[tuple[Usage, IdentityKey], Usage] = {}
        counted = [(node, key, usage) for node, pods in self._placed.items() for key, usage in pods.items()]
        for node_name, key, usage in counted:
            seen = {"metadata": self._book.metadata_of(key), "spec": {}}
            identity_key, _ = self._identity_key(seen)
            terms = NO_TERMS if usage.identity is None else usage.identity.terms
            new = known.get((usage, identity_key))
            if new is None:
                new = known[usage, identity_key] = replace(usage, identity=_identity(identity_key, terms))
            if new != usage:
                self._pods_of(node_name)[key] = new
                add_presence(self._live, node_name, replace(usage, volumes=()), -1)
                add_presence(self._live, node_name, replace(new, volumes=()), 1)
        self._unprojected = False
        self._last = None

    # -- other objects

    def set_object(self, kind: str, obj: Object) -> bool:
        """Adds or replaces an object of one of `objects.KINDS`; whether it is a different one now."""
        shown = self._reservations.seen(kind, relevant(kind, obj), self.objects)
        if kind == RESOURCE_CLAIM:
            shown = self.devices.seen(shown)
        if not self.objects.set(kind, shown):
            return False
        self._last = None
        self._select(list(selectors_of(kind, obj)))
        return True

    def remove_object(self, kind: str, key: str) -> bool:
        """Forgets an object by its key (`namespace/name`, or the name); whether it was known."""
        self._reservations.gone(kind, key)
        if kind == RESOURCE_CLAIM:
            self.devices.gone(key)
        if not self.objects.remove(kind, key):
            return False
        self._last = None
        return True

    @property
    def table(self) -> NodeTable:
        """The nodes as they are now."""
        if self._stale:
            self._rebuild()
        return self._live.table

    # -- volumes

    def reserve_volumes(self, key: str, pod: Object, node_name: str) -> Reservation | None:
        """Assume the volumes that a pod's claims are to have on a node; None if they need none.

        `release_volumes` undoes it. Of a reservation to which something is `missing`, the rest is assumed.
        """
        uses = self._usage(pod).volumes if pod["spec"].get("volumes") else ()
        if not any(use.is_claim for use in uses):
            return None
        table = self.table
        row = table.index.get(node_name)
        if row is None:
            return None
        reservation = reservation_at(uses, row, table, self.objects)
        if not reservation:
            return None
        self._reservations.add(key, reservation, self.objects)
        self._last = None
        return reservation

    def release_volumes(self, key: str) -> bool:
        """Assume nothing more for a pod; whether volumes or claims are free again by that. Idempotent."""
        if not self._reservations.remove(key, self.objects):
            return False
        self._last = None
        return True

    def own_object(self, kind: str, key: str) -> Object | None:
        """An object as the API shows it, also while something of it is assumed."""
        return self._reservations.own(kind, key, self.objects)

    def reservation(self, key: str) -> Reservation | None:
        """What is assumed for a pod."""
        return self._reservations.by_pod.get(key)

    # -- devices

    def reserve_devices(self, pods: Sequence[tuple[str, Object, str]]) -> str:
        """Assume the devices that pods (key, pod, node) are to have; the key of the first that finds none, or "".

        `release_devices` undoes it for each.
        """
        table = self.table
        spots = spots_of(table)
        wanting = [Wanting(key, pod, spots[table.index[node]]) for key, pod, node in pods if node in table.index]
        failed = self.devices.reserve(wanting, lambda pod: self._demand(pod, by_name=True), self.objects)
        self._last = None
        return failed

    def release_devices(self, key: str) -> bool:
        """Assume nothing more for a pod; whether something was. Idempotent."""
        if not self.devices.release(key, self.objects):
            return False
        self._last = None
        return True

    def device_reservation(self, key: str) -> DeviceReservation | None:
        """What is assumed for a pod."""
        return self.devices.by_pod.get(key)

    # -- snapshots

    def snapshot(self) -> Snapshot:
        """The cluster now. The same object is returned while nothing changed; else it costs one copy of the arrays."""
        if self._pending:
            self._count_pending()
        if self._stale:
            self._rebuild()
        if self._unprojected:
            self._project()
        if self._last is None:
            live = self._live
            requested, scored = live.requested.copy(order="K"), live.scored.copy(order="K")
            frozen(requested)
            frozen(scored)
            self._own.clear()
            self._last = Snapshot(
                live.table,
                requested,
                scored,
                live.ports.copy(),
                dict(self._placed),
                population=live.population.copy(),
                uses=live.uses.copy(),
                objects=self.objects.copy(),
                nominated=self._nominations(),
            )
        return self._last

    def _rebuild(self) -> None:
        table = build_table(self._records.values(), self._axis, self._live.table)
        requested, scored, ports = moved_usage(self._live, table)
        population, uses = self._live.population.copy(table.index), self._live.uses.copy(table.index)
        self._live = Snapshot(table, requested, scored, ports, self._placed, population=population, uses=uses)
        self._stale = False
        self._last = None

    def _nominations(self) -> dict[str, tuple[Nomination, ...]]:
        by_node: dict[str, tuple[Nomination, ...]] = {}
        for key, (node_name, nomination) in sorted(self._nominated.items()):
            if self.node_of(key) is None:
                by_node[node_name] = (*by_node.get(node_name, ()), nomination)
        return by_node

    def _pods_of(self, node_name: str) -> dict[str, Usage]:
        """The pods of a node, not shared with a snapshot."""
        found = self._placed.get(node_name)
        if found is None or node_name not in self._own:
            found = self._placed[node_name] = dict(found or ())
            self._own.add(node_name)
        return found

    def _count(self, node_name: str, usage: Usage, sign: int) -> None:
        self._last = None
        if usage.identity is not None or usage.volumes:
            add_presence(self._live, node_name, usage, sign)
        row = self._live.table.index.get(node_name)
        if row is not None:
            self._pending.append((row, usage, sign))

    def _count_pending(self) -> None:
        """Put what came and went into the arrays: many at once by kind, few one by one."""
        pending, self._pending = self._pending, []
        live, axis = self._live, self._axis
        live.requested = widened(live.requested, len(axis))
        alike: dict[int, tuple[Usage, list[int], list[int]]] = {}
        for row, usage, sign in pending:
            _, rows, signs = alike.setdefault(id(usage), (usage, [], []))
            rows.append(row)
            signs.append(sign)
        for usage, rows, signs in alike.values():
            if len(rows) > _FEW:
                add_usages(axis, live, usage, rows, signs)
                continue
            for row, sign in zip(rows, signs, strict=True):
                add_usage(axis, live.requested, live.scored, live.ports, row, usage, sign)


def _has_rules(spec: Object) -> bool:
    """Whether a pod selects other pods by rules of its own."""
    return ("affinity" in spec or "topologySpreadConstraints" in spec) and (
        bool(spec.get("topologySpreadConstraints")) or has_terms(spec)
    )


def _identity(key: IdentityKey, terms: PodTerms) -> Identity | None:
    return None if key is None else Identity(key[0], key[1], terms, key[2])


def _remember(cache: dict[K, V], key: K, value: V) -> V:
    """Puts the value into a cache that is emptied when it is full, and returns it."""
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    cache[key] = value
    return value
