"""Which parts of dynamic resource allocation are on: upstream's feature gates, and whether its errors are copied."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Features(Struct, frozen=True):
    """The gates as kube-scheduler 1.36 has them by default.

    `upstream`: do as kube-scheduler 1.36 does where it errs (see `docs/reference/devices.md`): a fault on one node ends
    the whole attempt, counters are kept by pool name alone, `distinctAttribute` remembers one value a request.
    """

    admin_access: bool = True
    prioritised_list: bool = True
    partitionable: bool = True
    taints: bool = True
    taint_rules: bool = False
    consumable_capacity: bool = True
    binding_conditions: bool = True
    extended_resources: bool = True
    list_attributes: bool = False
    upstream: bool = False


OURS = Features(taint_rules=True, list_attributes=True)
"""Everything that objects in the API ask for is done, and done right."""

_GATES = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritised_list",
    "DRAPartitionableDevices": "partitionable",
    "DRADeviceTaints": "taints",
    "DRADeviceTaintRules": "taint_rules",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRADeviceBindingConditions": "binding_conditions",
    "DRAExtendedResource": "extended_resources",
    "DRAListTypeAttributes": "list_attributes",
}


def upstream_features(gates: Mapping[str, bool] | None = None) -> Features:
    """As kube-scheduler 1.36 with these gates set differently; gates of other parts are ignored."""
    chosen = {_GATES[name]: value for name, value in (gates or {}).items() if name in _GATES}
    return Features(upstream=True, **chosen)
