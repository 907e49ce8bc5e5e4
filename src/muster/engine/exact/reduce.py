"""From a snapshot and shapes to the problem in numbers: only what can bind is left, and equal nodes are one class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.axis import PODS
from muster.engine.between import Between, on, rules_between
from muster.engine.exact.local import on_nodes
from muster.engine.exact.problem import Problem
from muster.engine.mixed import Demand, binding
from muster.engine.plugins.node_resources_fit import NodeResourcesFit, delegated
from muster.engine.ports import ANY
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot


class Reduced(Struct, frozen=True):
    """The problem, and for each class the rows of its nodes in the table, ascending.

    `between`: all rules between members, over nodes; `rules`: those over classes that the problem does not have.
    """

    problem: Problem
    rows: tuple[Ints, ...]
    between: tuple[Between, ...] = ()
    rules: tuple[Between, ...] = ()


def reduce(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> Reduced:
    """The problem of placing these members. `caps` are what the rules of the profile allow of each shape alone.

    Where members have rules about each other, these are in the limits of nodes, or left over as `rules` over classes.
    """
    demand = np.array([len(each.places) for each in demands], dtype=np.int64)
    coupled = binding(profile, snapshot, demands)
    count = profile.ceiling if coupled else profile.count
    counts = np.array([count(each.shape, snapshot) for each in demands], dtype=np.int64).T
    caps = np.minimum(counts, demand)
    rows = np.flatnonzero(caps.any(axis=1))
    requests, free, names = _resources(profile, snapshot, demands, rows)
    ports, port_names = _port_resources(demands)
    caps = caps[rows]
    between = rules_between(profile, [each.shape for each in demands], snapshot) if coupled else []
    local = on_nodes([on(rule, rows) for rule in between], caps, demand)
    requests = np.hstack([requests, ports, local.requests])
    free = np.hstack([free, np.ones((len(rows), ports.shape[1]), dtype=np.int64), local.free])
    names = (*names, *port_names, *local.names)
    grid = np.gcd.reduce(requests, axis=0)
    requests, free = requests // grid, free // grid
    free = np.minimum(free, caps @ requests)
    modes = () if local.modes is None else tuple(local.modes)
    keys = np.hstack([free, caps, local.domains, *modes])
    _, first, classes, nodes = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    classes = classes.reshape(-1)
    members = np.split(rows[np.argsort(classes, kind="stable")], np.cumsum(nodes)[:-1]) if len(rows) else []
    none_first = np.zeros_like(demand)
    kept = None if local.modes is None else local.modes[:, first]
    problem = Problem(requests, demand, free[first], caps[first], nodes.astype(np.int64), none_first, names, modes=kept)
    rules = tuple(on(rule, first) for rule in local.rest)
    return Reduced(problem, tuple(members), tuple(between), rules)


def _resources(
    profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], rows: Ints
) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Requests [G, R] and what is free [N, R] of the resources that the profile tests and some shape requests."""
    fits = [plugin for plugin in profile.filters if isinstance(plugin, NodeResourcesFit)]
    asked = dict.fromkeys(name for each in demands for name, amount in each.shape.usage.requests if amount > 0)
    by_devices = frozenset[str]().union(*(delegated(each.shape) for each in demands))
    tested = [
        name
        for name in asked
        if name not in by_devices and any(plugin.tests(name) for plugin in fits) and name in snapshot.axis.columns
    ]
    columns = [PODS, *(snapshot.axis.columns[name] for name in tested)] if fits else []
    vectors = [snapshot.axis.vector(each.shape.usage.requests, pods=1)[columns] for each in demands]
    requests = np.array(vectors, dtype=np.int64).reshape(len(demands), len(columns))
    if not fits:  # nothing but the counts limits: every pod takes one of as many slots as all counts allow
        return np.ones((len(demands), 1), dtype=np.int64), np.full((len(rows), 1), 2**40, dtype=np.int64), ("pods",)
    # A node that is overcommitted in a resource still takes pods that do not request it.
    return requests, np.maximum(snapshot.free()[rows][:, columns], 0), ("pods", *tested)


def _port_resources(demands: Sequence[Demand]) -> tuple[Ints, tuple[str, ...]]:
    """Host ports as resources of which a node has one: shapes that want a port on the same or on any address share it.

    int64[G, P], and the names.
    """
    wanted = dict.fromkeys(port for each in demands for port in each.shape.usage.ports)
    on_one = {(protocol, number) for ip, protocol, number in wanted if ip != ANY}
    columns, names = [], []
    for ip, protocol, number in wanted:
        if ip == ANY and (protocol, number) in on_one:
            continue  # who wants it on any address shares it with those on one address, and so with all like itself
        sharing = {(ip, protocol, number), (ANY, protocol, number)}
        columns.append([int(any(port in sharing for port in each.shape.usage.ports)) for each in demands])
        names.append(f"host port {number}")
    return np.array(columns, dtype=np.int64).reshape(len(columns), len(demands)).T, tuple(names)
