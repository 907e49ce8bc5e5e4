"""Devices for claims by brute force, straight from the rules: a plain reading of JSON, one loop a rule, no state.

It knows what `random_devices` makes: devices of one node in slices as listed, counts, alternatives, constraints,
shared counters, shared devices with capacity, and what is allocated. Every way to choose is judged as a whole.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from muster.api.codec import Object, Objects
from muster.testing.devices import DRIVER, make_claim, make_request, make_slice

Choice = tuple[str, Object, tuple[str, ...]]
"""The name of a request, the request, and the devices (pool/name) chosen for it."""


def first_solution(slices: Objects, taken: frozenset[str], claims: Sequence[Object]) -> list[list[Choice]] | None:
    """The first way to meet all claims in the order of trying; None if there is none. `taken`: devices of others."""
    devices = {
        f"{each['spec']['pool']['name']}/{device['name']}": device
        for each in sorted(slices, key=lambda each: str(each["spec"]["pool"]["name"]))
        for device in each["spec"].get("devices") or ()
    }
    for solution in _ways(devices, taken, claims):
        if _holds(slices, devices, taken, claims, solution):
            return solution
    return None


class TooManyWays(Exception):
    """Brute force would take too long."""


def can_all_be_seated(
    slices: Objects, taken: frozenset[str], claims: Sequence[tuple[Object, frozenset[str]]], most: int = 20_000
) -> bool:
    """Whether all claims, each for pods on these nodes, can have devices that all its nodes reach.

    Raises TooManyWays after looking at more than `most`.
    """
    looks = itertools.count()
    devices: dict[str, Object] = {}
    reached: dict[str, str] = {}
    for each in slices:
        for device in each["spec"].get("devices") or ():
            name = f"{each['spec']['pool']['name']}/{device['name']}"
            devices[name], reached[name] = device, each["spec"].get("nodeName") or ""

    def seat(at: int, solution: list[list[Choice]]) -> bool:
        if at == len(claims):
            return True
        claim, nodes = claims[at]
        open_ = {each: device for each, device in devices.items() if not reached[each] or nodes == {reached[each]}}
        for way in _ways_of_claim(open_, taken, claim["spec"]["devices"]["requests"]):
            if next(looks) > most:
                raise TooManyWays
            more = [*solution, way]
            if _holds(slices, devices, taken, [each for each, _ in claims[: at + 1]], more) and seat(at + 1, more):
                return True
        return False

    return seat(0, [])


def _ways(devices: dict[str, Object], taken: frozenset[str], claims: Sequence[Object]) -> Iterator[list[list[Choice]]]:
    if not claims:
        yield []
        return
    for first in _ways_of_claim(devices, taken, claims[0]["spec"]["devices"]["requests"]):
        for rest in _ways(devices, taken, claims[1:]):
            yield [first, *rest]


def _ways_of_claim(devices: dict[str, Object], taken: frozenset[str], entries: Objects) -> Iterator[list[Choice]]:
    if not entries:
        yield []
        return
    for name, request in _alternatives(entries[0]):
        open_ = [
            each
            for each, device in devices.items()
            if (each not in taken or device.get("allowMultipleAllocations")) and _selects(request, device)
        ]
        for chosen in itertools.combinations(open_, request["count"]):
            for rest in _ways_of_claim(devices, taken, entries[1:]):
                yield [(name, request, chosen), *rest]


def _alternatives(entry: Object) -> Iterator[tuple[str, Object]]:
    if "exactly" in entry:
        yield entry["name"], entry["exactly"]
    for each in entry.get("firstAvailable") or ():
        yield f"{entry['name']}/{each['name']}", each


def _selects(request: Object, device: Object) -> bool:
    """Of selectors only `device.attributes[…].kind == "x"` is known. Who asks for capacity needs a device with some."""
    if request.get("capacity") and not device.get("capacity"):
        return False
    wanted = [each["cel"]["expression"].split('"')[-2] for each in request.get("selectors") or ()]
    return all(device["attributes"]["kind"]["string"] == kind for kind in wanted)


def _holds(
    slices: Objects,
    devices: dict[str, Object],
    taken: frozenset[str],
    claims: Sequence[Object],
    solution: list[list[Choice]],
) -> bool:
    uses = [(request, each) for choices in solution for _, request, chosen in choices for each in chosen]
    number = Counter(each for _, each in uses)
    if any(count > 1 and not devices[each].get("allowMultipleAllocations") for each, count in number.items()):
        return False
    return (
        _counters_suffice(slices, devices, set(number), taken)
        and _capacity_suffices(devices, uses)
        and all(map(_constraints_hold, [devices] * len(claims), claims, solution))
    )


def _counters_suffice(slices: Objects, devices: dict[str, Object], used: set[str], taken: frozenset[str]) -> bool:
    """Counters that others overdrew matter to those alone who use them."""
    left: Counter[tuple[str, str]] = Counter()
    for each in slices:
        for shared in each["spec"].get("sharedCounters") or ():
            left[each["spec"]["pool"]["name"], shared["name"]] += int(shared["counters"]["units"]["value"])
    asked: set[tuple[str, str]] = set()
    for device in used | taken:
        for entry in devices[device].get("consumesCounters") or ():
            key = device.partition("/")[0], entry["counterSet"]
            left[key] -= int(entry["counters"]["units"]["value"])
            if device in used:
                asked.add(key)
    return all(left[key] >= 0 for key in asked)


def _capacity_suffices(devices: dict[str, Object], uses: list[tuple[Object, str]]) -> bool:
    taken: Counter[str] = Counter()
    for request, each in uses:
        if devices[each].get("allowMultipleAllocations"):
            whole = devices[each]["capacity"]["memory"]["value"]
            taken[each] += int(((request.get("capacity") or {}).get("requests") or {}).get("memory", whole))
    return all(amount <= int(devices[each]["capacity"]["memory"]["value"]) for each, amount in taken.items())


def _constraints_hold(devices: dict[str, Object], claim: Object, choices: list[Choice]) -> bool:
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        values = [devices[each]["attributes"]["numa"]["int"] for _, _, chosen in choices for each in chosen]
        if "matchAttribute" in constraint and len(set(values)) > 1:
            return False
        if "distinctAttribute" in constraint and len(set(values)) < len(values):
            return False
    return True


def random_devices(rng: random.Random, node: str) -> Objects:
    """One or two pools of a node: plain devices, devices that share counters, or devices that are shared."""
    slices: Objects = []
    for pool in ("a", "b")[: rng.randint(1, 2)]:
        kind = rng.choice(("plain", "counters", "shared"))
        found = make_slice(node, rng.randint(1, 4), name=f"{node}-{pool}", pool=f"{node}-{pool}", prefix=pool)
        for device in found["spec"]["devices"]:
            device["attributes"] = {"kind": {"string": rng.choice("xy")}, "numa": {"int": rng.randint(0, 1)}}
            if kind == "counters":
                units = {"units": {"value": str(rng.randint(1, 3))}}
                device["consumesCounters"] = [{"counterSet": "set", "counters": units}]
            elif kind == "shared":
                device |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(rng.randint(2, 5))}}}
        slices.append(found)
        if kind == "counters":
            shared = make_slice(node, 0, name=f"{node}-{pool}-counters", pool=f"{node}-{pool}")
            shared["spec"]["sharedCounters"] = [
                {"name": "set", "counters": {"units": {"value": str(rng.randint(2, 6))}}}
            ]
            for each in (found, shared):
                each["spec"]["pool"]["resourceSliceCount"] = 2
            slices.append(shared)
    return slices


def random_claims(rng: random.Random) -> list[Object]:
    """One or two claims for few devices."""
    return [_random_claim(rng, f"c{at}") for at in range(rng.randint(1, 2))]


def _random_claim(rng: random.Random, name: str) -> Object:
    entries = [_random_entry(rng, f"r{at}") for at in range(rng.randint(1, 2))]
    kind = rng.choice((None, None, "matchAttribute", "distinctAttribute"))
    return make_claim(name, *entries, constraints=[{kind: f"{DRIVER}/numa"}] if kind else [])


def _random_entry(rng: random.Random, name: str) -> Object:
    if rng.random() < 0.3:
        choices = [{"name": each, **_random_request(rng, each)["exactly"]} for each in ("p", "q")]
        return {"name": name, "firstAvailable": choices}
    return _random_request(rng, name)


def _random_request(rng: random.Random, name: str) -> Object:
    request = make_request(name, count=rng.randint(1, 2))
    if rng.random() < 0.5:
        text = f'device.attributes["{DRIVER}"].kind == "{rng.choice("xy")}"'
        request["exactly"]["selectors"] = [{"cel": {"expression": text}}]
    if rng.random() < 0.3:
        request["exactly"]["capacity"] = {"requests": {"memory": str(rng.randint(1, 3))}}
    return request
