"""What a snapshot says about devices: slices, classes, taint rules, claims and what they have; and a scratch on top.

Objects are parsed once for each change of their kind, and shared by all snapshots that see the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.api.codec import Object
from muster.engine.devices.allocated import Allocated, ClaimBook, keep_book
from muster.engine.devices.classes import ClassBook, class_book
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Inventory, take_stock
from muster.engine.devices.pools import Pool, pools_for
from muster.engine.devices.tolerations import TaintRule, taint_rules
from muster.engine.objects import DEVICE_CLASS, DEVICE_TAINT_RULE, RESOURCE_CLAIM, RESOURCE_SLICE, ObjectStore

IN_FLIGHT = "inFlight"
"""A member of claims in our store, not in the API: the allocation is decided and not written yet."""

_MEMO_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class View:
    """`claims`: those of the store; `decided`: allocations of claims, by key, that a scratch has decided."""

    inventory: Inventory
    classes: ClassBook
    rules: tuple[TaintRule, ...]
    claims: Mapping[str, Object]
    allocated: Allocated
    decided: Mapping[str, Object]

    def claim(self, key: str) -> Object | None:
        """The claim of a key."""
        return self.claims.get(key)

    def allocation(self, key: str) -> Object | None:
        """What a claim has been allocated."""
        found: Object | None = self.decided.get(key)
        if found is None:
            found = (self.claims.get(key, {}).get("status") or {}).get("allocation")
        return found or None

    def pools(self, labels: Mapping[str, str], node: str, features: Features) -> tuple[Pool, ...]:
        """The pools in reach of a node, worked out once an inventory and node."""
        memo = self.inventory.memo
        key = "pools", node, features
        known = memo.get(key)
        if isinstance(known, _Pools) and known.labels == labels:
            return known.pools
        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        pools = pools_for(self.inventory, labels, node, features)
        memo[key] = _Pools(labels, pools)
        return pools


@dataclass(frozen=True, slots=True)
class _Pools:
    labels: Mapping[str, str]
    pools: tuple[Pool, ...]


def view_of(
    objects: ObjectStore, allocated: Allocated | None = None, decided: Mapping[str, Object] | None = None
) -> View:
    """The view of these objects; `allocated` and `decided` in place of what claims have."""
    book = claim_book(objects)
    return View(
        inventory_of(objects),
        classes_of(objects),
        objects.derived(DEVICE_TAINT_RULE, lambda before: taint_rules(objects.all(DEVICE_TAINT_RULE).values())),
        objects.all(RESOURCE_CLAIM),
        book.allocated if allocated is None else allocated,
        {} if decided is None else decided,
    )


def inventory_of(objects: ObjectStore) -> Inventory:
    """The devices of all slices."""
    return objects.derived(RESOURCE_SLICE, lambda before: take_stock(objects.all(RESOURCE_SLICE).values(), before))


def classes_of(objects: ObjectStore) -> ClassBook:
    """All device classes."""
    return objects.derived(DEVICE_CLASS, lambda before: class_book(objects.all(DEVICE_CLASS).values()))


def claim_book(objects: ObjectStore) -> ClaimBook:
    """All claims with what they have."""
    return objects.derived(
        RESOURCE_CLAIM, lambda before: keep_book(objects.all(RESOURCE_CLAIM), before, objects.changed(RESOURCE_CLAIM))
    )
