"""Trees of groups in topology domains: one for the whole tree, one for each group, and choices that are given up."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduler_trees import WORKLOAD, World, composite, pods

from muster.api.codec import Object
from muster.testing import make_group, make_node, make_pod

RACK, ZONE = "rack", "zone"


def in_one(key: str) -> Object:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def group(name: str, min_count: int, *, key: str = "") -> Object:
    bound = in_one(key) if key else {}
    return make_group(name, min_count=min_count, parentCompositePodGroupName="root", workloadRef=WORKLOAD, **bound)


def node(name: str, zone: str, rack: str, cpu: int) -> Object:
    return make_node(name, cpu=str(cpu), labels={ZONE: zone, RACK: rack})


def domains(world: World, key: str) -> dict[str, set[str]]:
    """The domains in which the members of each group run."""
    found: dict[str, set[str]] = {}
    for pod, name in world.placed.items():
        labels = world.core.cache.nodes[name]["metadata"]["labels"]
        found.setdefault(pod.partition("/")[2].partition("-")[0], set()).add(labels[key])
    return found


def test_a_tree_runs_in_one_zone_and_each_group_of_it_in_one_rack() -> None:
    nodes = [node(f"n{at}", f"z{at // 2}", f"r{at}", cpu) for at, cpu in enumerate([4, 2, 3, 4])]
    world = World(
        *nodes,
        composite("root", 2, **in_one(ZONE)),
        *(group("a", 3, key=RACK), *pods("a", 3, cpu="1")),
        *(group("b", 4, key=RACK), *pods("b", 4, cpu="1")),
    )

    assert domains(world, ZONE) == {"a": {"z1"}, "b": {"z1"}}
    assert domains(world, RACK) == {"a": {"r2"}, "b": {"r3"}}


def test_a_group_gives_up_the_fuller_rack_if_only_that_holds_its_sibling() -> None:
    taken = make_pod("taken", node="n0", cpu="5")
    world = World(
        *(node("n0", "z", "r0", 8), node("n1", "z", "r1", 2), taken),
        composite("root", 2),
        *(group("a", 2, key=RACK), *pods("a", 2, cpu="1")),
        *(group("b", 3, key=RACK), *pods("b", 3, cpu="1")),
    )

    assert domains(world, RACK) == {"a": {"r1"}, "b": {"r0"}}


def test_members_beyond_min_count_make_room_for_the_next_group() -> None:
    world = World(
        *(node("n0", "z", "r0", 4),),
        composite("root", 2, **in_one(ZONE)),
        *(group("a", 2), *pods("a", 4, cpu="1")),
        *(group("b", 2), *pods("b", 2, cpu="1")),
    )

    assert len(world.placed) == 4
    assert sum(pod.startswith("default/b") for pod in world.placed) == 2


def test_a_tree_that_no_domain_holds_runs_nowhere() -> None:
    world = World(
        *(node("n0", "z0", "r0", 3), node("n1", "z1", "r1", 3)),
        composite("root", 2, **in_one(ZONE)),
        *(group("a", 2), *pods("a", 2, cpu="1")),
        *(group("b", 2), *pods("b", 2, cpu="1")),
    )

    assert world.placed == {}


def test_later_members_stay_in_the_domain_of_those_that_run() -> None:
    world = World(
        *(node("n0", "z0", "r0", 3), node("n1", "z1", "r1", 9)),
        composite("root", 1, **in_one(ZONE)),
        *(group("a", 2), *pods("a", 2, cpu="1")),
    )
    assert domains(world, ZONE) == {"a": {"z0"}}

    world.add(group("b", 2), *pods("b", 2, cpu="1"))
    assert domains(world, ZONE) == {"a": {"z0"}}
    world.add(make_pod("a-2", group="a", cpu="1"))
    assert len(world.placed) == 3
    assert domains(world, ZONE) == {"a": {"z0"}}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=5),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_a_tree_is_placed_if_some_choice_of_domains_holds_it(
    nodes: list[tuple[int, int, int]], sizes: list[int], needed: int
) -> None:
    needed = min(needed, len(sizes))
    world = World(
        *(node(f"n{at}", f"z{zone}", f"z{zone}r{rack}", cpu) for at, (zone, rack, cpu) in enumerate(nodes)),
        composite("root", needed, **in_one(ZONE)),
        *(group(f"g{at}", size, key=RACK) for at, size in enumerate(sizes)),
        *(pod for at, size in enumerate(sizes) for pod in pods(f"g{at}", size, cpu="1")),
    )

    room: dict[tuple[int, int], int] = {}
    for zone, rack, cpu in nodes:
        room[zone, rack] = room.get((zone, rack), 0) + cpu
    assert bool(world.placed) == any(_holds(room, zone, sizes, needed) for zone in (0, 1))


def _holds(room: dict[tuple[int, int], int], zone: int, sizes: list[int], needed: int) -> bool:
    """Whether some of the groups, each put into a rack of the zone, are enough and fit."""
    for racks in product((None, 0, 1, 2), repeat=len(sizes)):
        used: dict[int, int] = {}
        for rack, size in zip(racks, sizes, strict=True):
            if rack is not None:
                used[rack] = used.get(rack, 0) + size
        enough = sum(rack is not None for rack in racks) >= needed
        if enough and all(room.get((zone, rack), 0) >= size for rack, size in used.items()):
            return True
    return False
