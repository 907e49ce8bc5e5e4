"""Devices for claims: the search against brute force, and groups whose members take devices from each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from muster.api.codec import JSON, Object, Objects
from muster.engine import objects
from muster.engine.decide import decide
from muster.engine.devices.rooms import Spot, plan_of, room_on
from muster.engine.devices.view import view_of
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Placement
from muster.engine.plugins.dynamic_resources import answers_of
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod
from muster.testing.devices import make_claim, make_device_class, make_request, make_slice, pod_claim
from muster.testing.reference_devices import (
    TooManyWays,
    can_all_be_seated,
    first_solution,
    random_claims,
    random_devices,
)

T = TypeVar("T")
SEEDS = st.integers(0, 2**63)


def cluster(*slices: Object, nodes: int = 1) -> ClusterState:
    state = ClusterState()
    state.set_object(objects.DEVICE_CLASS, make_device_class("gpu"))
    for at in range(nodes):
        state.set_node(make_node(f"n{at}"))
    for each in slices:
        state.set_object(objects.RESOURCE_SLICE, each)
    return state


def with_claims(state: ClusterState, name: str, *claims: Object, own: bool = True) -> Object:
    """A pod that uses these claims, which are made for it alone (`own`) or known by name."""
    for at, claim in enumerate(claims):
        if own:
            claim["metadata"] |= {"name": f"{name}-{at}", "uid": f"{name}-{at}"}
            claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": name, "uid": name, "controller": True}]
        state.set_object(objects.RESOURCE_CLAIM, claim)
    names = [claim["metadata"]["name"] for claim in claims]
    source = "resourceClaimTemplateName" if own else "resourceClaimName"
    entries = [{"name": f"e{at}", source: "t" if own else each} for at, each in enumerate(names)]
    pod = make_pod(name, cpu="100m", spec={"resourceClaims": entries})
    pod["metadata"]["uid"] = name
    made = [{"name": f"e{at}", "resourceClaimName": each} for at, each in enumerate(names)]
    return {**pod, "status": {"resourceClaimStatuses": made} if own else {}}


def decided(state: ClusterState, pods: Objects, min_count: int) -> Decision:
    shapes = state.shapes_of(pods)
    members = tuple(
        Member(f"default/{pod['metadata']['name']}", shape) for pod, shape in zip(pods, shapes, strict=True)
    )
    return decide(state.snapshot(), GroupRequest("g", members, min_count))


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_search_finds_the_first_solution_that_brute_force_finds(seed: int) -> None:
    rng = random.Random(seed)
    slices, claims = random_devices(rng, "n0"), random_claims(rng)
    state = cluster(*slices)
    taken = take_some(state, rng, slices)
    pod = with_claims(state, "p", *claims, own=False)

    demand = state.devices_of(pod)
    assert demand is not None
    view = view_of(state.snapshot().objects)
    found = room_on(plan_of(demand, view), Spot("n0", {}, frozenset()), view).found

    want = first_solution(slices, taken, claims)
    got = (
        None
        if found is None
        else [
            [(each.request.full_name, f"{each.device.id.pool}/{each.device.id.device}") for each in devices]
            for devices in found.devices
        ]
    )
    flat = (
        None if want is None else [[(name, each) for name, _, chosen in choices for each in chosen] for choices in want]
    )
    assert got == flat


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, number=st.integers(1, 6))
def test_members_never_get_one_device_twice_and_all_that_are_placed_get_theirs(seed: int, number: int) -> None:
    rng = random.Random(seed)
    slices = [each for at in range(3) for each in random_devices(rng, f"n{at}")]
    if rng.random() < 0.5:
        slices.append(make_slice("", 2, prefix="net", attributes={"kind": {"string": "x"}, "numa": {"int": 0}}))
    state, claims = cluster(*slices, nodes=3), random_claims(rng)
    pods = [
        with_claims(state, f"p{at}", *(make_claim("", **each["spec"]["devices"]) for each in claims))
        for at in range(number)
    ]

    decision = decided(state, pods, 1)

    placements = decision.placements if isinstance(decision, Placed) else ()
    assert reserved(state, pods, placements) == ""
    if len(placements) < number:  # nobody who is left finds anything
        placed = {each.pod for each in placements}
        left = next(pod for pod in pods if f"default/{pod['metadata']['name']}" not in placed)
        answers = answers_of(state.shape_of(left), state.snapshot())
        assert not any(room.found for room in answers.rooms)


def reserved(state: ClusterState, pods: Objects, placements: Sequence[Placement]) -> str:
    """Gives the pods that have a node their devices: the first that finds none, or ""."""
    by_key = {f"default/{pod['metadata']['name']}": pod for pod in pods}
    return state.reserve_devices([(each.pod, by_key[each.pod], each.node) for each in placements])


def assert_most_are_placed(state: ClusterState, pods: Objects, most: int) -> None:
    """However many are needed: as many pods as fit are placed and get devices, or it is proved that too few fit."""
    for needed in range(1, len(pods) + 1):
        decision = decided(state, pods, needed)
        if needed > most:
            assert isinstance(decision, Infeasible), (needed, most, decision)
            continue
        assert isinstance(decision, Placed), (needed, most, decision)
        assert len(decision.placements) == most, (needed, most, decision)
        assert reserved(state, pods, decision.placements) == ""
        for pod in pods:
            state.release_devices(f"default/{pod['metadata']['name']}")


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_gang_is_placed_whenever_a_way_exists_and_refused_only_if_none_does(seed: int) -> None:
    rng = random.Random(seed)
    nodes, rooms = rng.randint(1, 3), [rng.randint(1, 4) for _ in range(3)]
    slices = [each for at in range(nodes) for each in random_devices(rng, f"n{at}")]
    if rng.random() < 0.3:
        slices.append(
            make_slice("", rng.randint(1, 3), prefix="net", attributes={"kind": {"string": "x"}, "numa": {"int": 0}})
        )
    state = cluster(*slices)
    for at in range(nodes):
        state.set_node(make_node(f"n{at}", cpu=f"{rooms[at]}00m"))
    taken = take_some(state, rng, slices)
    kinds = [random_claims(rng) for _ in range(rng.randint(1, 2))]
    wanted = [kinds[at % len(kinds)] for at in range(rng.randint(1, 4))]
    pods = [
        with_claims(state, f"p{at}", *(make_claim("", **each["spec"]["devices"]) for each in claims))
        for at, claims in enumerate(wanted)
    ]

    most = most_of(wanted, lambda some: fits_somehow(slices, taken, some, rooms[:nodes]))

    assert_most_are_placed(state, pods, most)


def most_of(pods: Sequence[T], fits: Callable[[tuple[T, ...]], bool]) -> int:
    """The most of the pods that fit together. Examples that take too long by brute force are left out."""
    try:
        return max(
            number for number in range(len(pods) + 1) for some in itertools.combinations(pods, number) if fits(some)
        )
    except TooManyWays:
        reject()


def take_some(state: ClusterState, rng: random.Random, slices: Objects) -> frozenset[str]:
    """Gives some of the devices that cannot be shared to others: pool/name of each."""
    plain = [
        (each["spec"]["pool"]["name"], device["name"])
        for each in slices
        for device in each["spec"].get("devices") or ()
        if not device.get("allowMultipleAllocations")
    ]
    taken = [device for device in plain if rng.random() < 0.2]
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": pool, "device": name} for pool, name in taken]
    used = {**make_claim("used"), "status": {"allocation": {"devices": {"results": results}}}}
    state.set_object(objects.RESOURCE_CLAIM, used)
    return frozenset(f"{pool}/{name}" for pool, name in taken)


def fits_somehow(slices: Objects, taken: frozenset[str], wanted: Sequence[list[Object]], rooms: list[int]) -> bool:
    """Whether some way of putting pods with these claims on nodes, for so many pods each, gives all their devices."""
    for places in itertools.product(range(len(rooms)), repeat=len(wanted)):
        if all(places.count(at) <= room for at, room in enumerate(rooms)):
            claims = [
                (claim, frozenset({f"n{at}"})) for at, found in zip(places, wanted, strict=True) for claim in found
            ]
            if can_all_be_seated(slices, taken, claims):
                return True
    return False


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_pods_with_claims_in_common_are_placed_whenever_a_way_exists(seed: int) -> None:
    rng = random.Random(seed)
    nodes, rooms = rng.randint(1, 3), [rng.randint(1, 4) for _ in range(3)]
    slices = [each for at in range(nodes) for each in random_devices(rng, f"n{at}")]
    if rng.random() < 0.7:
        slices.append(random_network_devices(rng))
    state = cluster(*slices)
    for at in range(nodes):
        state.set_node(make_node(f"n{at}", cpu=f"{rooms[at]}00m"))
    taken = take_some(state, rng, slices)
    shared = random_claims(rng)
    for at, claim in enumerate(shared):
        claim["metadata"] |= {"name": f"shared-{at}", "uid": f"shared-{at}"}
        state.set_object(objects.RESOURCE_CLAIM, claim)
    own = random_claims(rng) if rng.random() < 0.4 else []
    using = [[each for each in range(len(shared)) if rng.random() < 0.8] for _ in range(rng.randint(2, 4))]
    pods = [
        with_common_claims(state, f"p{at}", [f"shared-{each}" for each in uses], own) for at, uses in enumerate(using)
    ]

    most = most_of(using, lambda some: fits_in_common(slices, taken, shared, some, own, rooms[:nodes]))

    assert_most_are_placed(state, pods, most)


def random_network_devices(rng: random.Random) -> Object:
    """Devices that all nodes reach, or one node and those of a label."""
    found = make_slice("", rng.randint(1, 3), prefix="net")
    for device in found["spec"]["devices"]:
        device["attributes"] = {"kind": {"string": rng.choice("xy")}, "numa": {"int": rng.randint(0, 1)}}
    return found


def with_common_claims(state: ClusterState, name: str, shared: list[str], own: list[Object]) -> Object:
    """A pod that uses these claims by name, and claims of its own."""
    pod = with_claims(state, name, *(make_claim("", **each["spec"]["devices"]) for each in own))
    entries = [{"name": f"s{at}", "resourceClaimName": each} for at, each in enumerate(shared)]
    pod["spec"]["resourceClaims"] = [*pod["spec"]["resourceClaims"], *entries]
    return pod


def fits_in_common(
    slices: Objects,
    taken: frozenset[str],
    shared: list[Object],
    using: Sequence[list[int]],
    own: list[Object],
    rooms: list[int],
) -> bool:
    """As `fits_somehow`, for pods that use some of the shared claims, and each its own beside."""
    for places in itertools.product(range(len(rooms)), repeat=len(using)):
        if any(places.count(at) > room for at, room in enumerate(rooms)):
            continue
        claims = [(claim, frozenset({f"n{at}"})) for at in places for claim in own]
        for which, claim in enumerate(shared):
            nodes = frozenset(f"n{at}" for at, uses in zip(places, using, strict=True) if which in uses)
            if nodes:
                claims.append((claim, nodes))
        if can_all_be_seated(slices, taken, claims):
            return True
    return False


def test_gang_is_proved_not_to_fit_where_the_devices_are_too_few() -> None:
    state = cluster(make_slice("n0", 2), make_slice("n1", 1), nodes=2)
    pods = [with_claims(state, f"p{at}", make_claim("")) for at in range(4)]

    assert isinstance(decided(state, pods, 4), Infeasible)
    placed = decided(state, pods, 3)
    assert isinstance(placed, Placed)
    assert sorted(each.node for each in placed.placements) == ["n0", "n0", "n1"]


def with_one_claim(state: ClusterState, number: int, **request: JSON) -> Objects:
    """So many pods of 100m cpu that use one claim for one device."""
    claim = make_claim("shared", make_request(**request))
    claim["metadata"]["uid"] = "shared"
    state.set_object(objects.RESOURCE_CLAIM, claim)
    return [with_common_claims(state, f"p{at}", ["shared"], []) for at in range(number)]


@pytest.mark.parametrize(("large", "want"), [(77, Placed), (None, Infeasible)])
def test_claim_in_common_is_given_where_all_its_pods_have_room(large: int | None, want: type) -> None:
    state = cluster(*(make_slice(f"n{at}", 2) for at in range(100)))
    for at in range(100):
        state.set_node(make_node(f"n{at}", cpu="1600m" if at == large else "400m"))

    decision = decided(state, with_one_claim(state, 16), 16)

    assert isinstance(decision, want), decision
    if isinstance(decision, Placed):
        assert {each.node for each in decision.placements} == {"n77"}
    if isinstance(decision, Infeasible):
        assert decision.proof.startswith("ResourceClaim default/shared gets its devices nowhere where")


@pytest.mark.parametrize(("own", "number", "want"), [(False, 20, Placed), (True, 20, Placed), (True, 21, Infeasible)])
def test_channel_of_a_rack_is_chosen_in_the_rack_that_has_room(own: bool, number: int, want: type) -> None:
    channels = []
    for rack in range(10):
        channel = make_slice("", 2, name=f"r{rack}", pool=f"r{rack}", prefix="channel")
        terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [f"r{rack}"]}]}]
        channel["spec"] |= {"allNodes": None, "nodeSelector": {"nodeSelectorTerms": terms}}
        channels.append(channel)
    state = cluster(*channels, *(make_slice(f"n{at}", 2) for at in range(100)))
    for at in range(100):
        room = "200m" if at % 10 == 7 else "100m"  # only rack 7 has room for more than ten pods
        state.set_node(make_node(f"n{at}", cpu=room, labels={"rack": f"r{at % 10}"}))
    for each in channels:
        for device in each["spec"]["devices"]:
            device["attributes"] = {"channel": {"bool": True}}
    selector = 'device.attributes["gpu.example.com"].?channel.orValue(false)'
    pods = with_one_claim(state, number, selectors=[{"cel": {"expression": selector}}])
    if own:
        no_channel = [{"cel": {"expression": f"!{selector}"}}]
        pods = [
            with_common_claims(state, f"q{at}", ["shared"], [make_claim("", make_request(selectors=no_channel))])
            for at in range(number)
        ]

    decision = decided(state, pods, number)

    assert isinstance(decision, want), decision
    if isinstance(decision, Placed):
        assert {int(each.node[1:]) % 10 for each in decision.placements} == {7}


@pytest.mark.parametrize(("pairs", "singles", "want"), [(71, 18, Placed), (71, 19, Infeasible), (79, 2, Placed)])
def test_pods_with_devices_of_one_root_and_others_share_nodes(pairs: int, singles: int, want: type) -> None:
    """Twenty nodes of four roots with two devices and a card each: who needs both and the card leaves nothing."""
    state = cluster()
    for at in range(20):
        state.set_node(make_node(f"n{at}"))
        roots = make_slice(f"n{at}", 0)
        roots["spec"]["devices"] = [
            {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}, "root": {"int": number % 4}}}
            for kind, count in (("gpu", 8), ("nic", 4))
            for number in range(count)
        ]
        state.set_object(objects.RESOURCE_SLICE, roots)

    def of_kind(name: str, kind: str, count: int) -> Object:
        text = f'device.attributes["gpu.example.com"].kind == "{kind}"'
        return make_request(name, count=count, selectors=[{"cel": {"expression": text}}])

    pods = [with_claims(state, f"s{at}", make_claim("", of_kind("g", "gpu", 1))) for at in range(singles)]
    for at in range(pairs):
        requests = of_kind("g", "gpu", 2), of_kind("n", "nic", 1)
        claim = make_claim("", *requests, constraints=[{"matchAttribute": "gpu.example.com/root"}])
        pods.append(with_claims(state, f"p{at}", claim))

    decision = decided(state, pods, len(pods))

    assert isinstance(decision, want), decision
    if isinstance(decision, Placed):
        assert reserved(state, pods, decision.placements) == ""


def test_own_claims_that_say_the_same_make_one_shape() -> None:
    state = cluster(make_slice("n0", 8))
    pods = [with_claims(state, f"p{at}", make_claim("")) for at in range(4)]

    assert len(set(state.shapes_of(pods))) == 1


def test_members_get_other_devices_than_the_first_that_suit_them_if_all_need_that() -> None:
    # The first of the pods that ask for a pair could take one device of each pair.
    slices = [
        make_slice("n0", 1, name=f"s{at}", pool=f"p{at}", attributes={"numa": {"int": at % 2}}) for at in range(4)
    ]
    state = cluster(*slices)
    pairs = [
        make_claim("", make_request(count=2), constraints=[{"distinctAttribute": "gpu.example.com/numa"}])
        for _ in range(2)
    ]
    pods = [with_claims(state, f"p{at}", claim) for at, claim in enumerate(pairs)]

    assert isinstance(decided(state, pods, 2), Placed)


def test_claim_for_several_pods_takes_a_device_that_all_their_nodes_reach() -> None:
    state = cluster(make_slice("n0", 1, prefix="a"), make_slice("", 1, prefix="z"), nodes=2)
    pods = [with_claims(state, f"p{at}", make_claim("shared"), own=False) for at in range(2)]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "20"}}

    placed = decided(state, pods, 2)

    assert isinstance(placed, Placed)
    assert sorted(each.node for each in placed.placements) == ["n0", "n1"]


def test_pod_claim_names_what_it_wants() -> None:
    assert pod_claim("x", claim="c") == {"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}
