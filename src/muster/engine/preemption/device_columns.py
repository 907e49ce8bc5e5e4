"""Devices as resources of the victim problem: how many a pod needs, how many are free on each node, and who holds some.

A column for each shape that needs devices counts those that its requests may take. That is what the pods ask at least;
which devices go together is left to the check of the finished plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.devices.inventory import DeviceId
from muster.engine.devices.rooms import free_on, least_of
from muster.engine.devices.scratch import Scratch
from muster.engine.plugins.dynamic_resources import answers_of
from muster.engine.requests import Usage
from muster.engine.shape import Shape
from muster.engine.snapshot import Trial


class DeviceColumns(Struct, frozen=True):
    """`requests` [G, K], `free` [N, K] and `releases` [E, K] of K columns, as the victim problem has them."""

    requests: Ints
    free: Ints
    releases: Ints


def device_columns(
    base: Trial, gone: Trial, shapes: Sequence[Shape], usages: Sequence[Usage], takers: Sequence[tuple[int, list[int]]]
) -> DeviceColumns:
    """The columns of these shapes. `base`: with every unit in place, `gone`: without any; `takers`: for each entry its
    row, and the places in `usages` of what its pods take."""
    requests, free, releases = list[Ints](), list[Ints](), list[Ints]()
    held = Scratch.over(base.objects)
    taken = [
        frozenset[DeviceId]()
        if usage.devices is None
        else frozenset(use.device for use in held.released_by(usage.devices))
        for usage in usages
    ]
    for at, shape in enumerate(shapes):
        if shape.usage.devices is None:
            continue
        before, after = answers_of(shape, base), answers_of(shape, gone)
        number = 0 if before.plan.problem else least_of(before.plan)
        then = [free_on(after.plan, spot, after.view) for spot in after.spots] if number else [None]
        now = [free_on(before.plan, spot, before.view) for spot in before.spots] if number else [None]
        if any(each is None for each in (*then, *now)):
            continue  # some can be shared: their number is no limit
        names = [frozenset(device.id for device in each or ()) for each in then]
        requests.append(np.array([number * (other == at) for other in range(len(shapes))], dtype=np.int64))
        free.append(np.array([len(each or ()) for each in now], dtype=np.int64))
        freed = [frozenset[DeviceId]().union(*(taken[usage] for usage in own)) & names[row] for row, own in takers]
        releases.append(np.array([len(each) for each in freed], dtype=np.int64))
    return DeviceColumns(
        np.array(requests, dtype=np.int64).reshape(len(requests), len(shapes)).T,
        np.array(free, dtype=np.int64).reshape(len(free), len(base)).T,
        np.array(releases, dtype=np.int64).reshape(len(releases), len(takers)).T,
    )
