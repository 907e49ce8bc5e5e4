"""Stories of preemption over the embedded API server, in virtual time. Nobody ends a deleted pod but the story."""

from __future__ import annotations

from test_scheduler_stories import World, run

from muster.api.codec import Object
from muster.api.meta import condition, is_deleting
from muster.api.resource import EVENTS, POD_DISRUPTION_BUDGETS, POD_GROUPS, PODS, PRIORITY_CLASSES
from muster.testing import make_group, make_node, make_pod


def running(name: str, node: str, *, cpu: str = "1", priority: int = 0, **more: object) -> Object:
    return make_pod(name, cpu=cpu, node=node, priority=priority, **more)  # type: ignore[arg-type]  # passed through


async def create(world: World, *objects: Object) -> None:
    """Creates objects; a priority is given by a class of that value."""
    for obj in objects:
        spec = dict(obj["spec"])
        value = spec.pop("priority", 0)
        if value:
            policy = spec.get("preemptionPolicy", "PreemptLowerPriority")
            name = f"{'never' if policy == 'Never' else 'p'}{value}"
            known = {each["metadata"]["name"] for each in (await world.client.list(PRIORITY_CLASSES)).items}
            if name not in known:
                made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
                await world.client.create(PRIORITY_CLASSES, None, {**made, "value": value, "preemptionPolicy": policy})
            spec["priorityClassName"] = name
        await world.create({**obj, "spec": spec})


async def leaving(world: World) -> list[str]:
    """Names of the pods that are being deleted."""
    return sorted(pod["metadata"]["name"] for pod in (await world.client.list(PODS)).items if is_deleting(pod))


async def nominated(world: World, name: str) -> str:
    pod = await world.client.get(PODS, "default", name)
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def test_a_pod_evicts_a_lesser_one_and_gets_its_room() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(world, running("low", "n0", cpu="2", priority=1), running("mid", "n1", cpu="2", priority=5))
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(5)
        assert await leaving(world) == ["low"]
        assert await nominated(world, "high") == "n0"
        victim = await world.client.get(PODS, "default", "low")
        disruption = condition(victim, "DisruptionTarget") or {}
        assert disruption["reason"] == "PreemptionByScheduler"
        assert disruption["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        uid = (await world.client.get(PODS, "default", "high"))["metadata"]["uid"]
        texts = [each["message"] for each in (await world.client.list(EVENTS)).items if each["reason"] == "Preempted"]
        assert texts == [f"Preempted by pod {uid} on node n0"]
        await world.delete_pod("low")
        await world.clock.sleep(2)
        assert await world.nodes_of("high") == {"high": "n0"}

    run(story)


def test_nobody_of_the_same_priority_takes_the_room_that_is_kept() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="4"), running("low", "n0", cpu="3"))
        await create(world, make_pod("high", cpu="4", priority=10))
        await world.clock.sleep(5)
        await create(world, make_pod("same", cpu="1", priority=10), make_pod("less", cpu="1", priority=9))
        await world.clock.sleep(5)
        assert await world.nodes_of("same") == {} == await world.nodes_of("less")
        await world.delete_pod("low")
        await world.clock.sleep(5)
        assert await world.nodes_of("high") == {"high": "n0"}

    run(story)


def test_a_gang_waits_for_all_victims_and_evicts_nobody_else_meanwhile() -> None:
    async def story(world: World) -> None:
        await create(world, *(make_node(f"n{node}", cpu="2") for node in range(4)))
        await create(world, *(running(f"old-{node}", f"n{node}", cpu="2", priority=node) for node in range(4)))
        await create(world, make_group("gang", min_count=2, priority=100))
        await create(world, *(make_pod(f"gang-{place}", cpu="2", priority=100, group="gang") for place in range(2)))
        await world.clock.sleep(600)
        assert await leaving(world) == ["old-0", "old-1"]
        await world.delete_pod("old-0")
        await world.clock.sleep(600)
        assert await world.nodes_of("gang") == {}
        assert await leaving(world) == ["old-1"]
        await world.delete_pod("old-1")
        await world.clock.sleep(5)
        assert await world.nodes_of("gang") == {"gang-0": "n0", "gang-1": "n1"}

    run(story)


def test_a_group_that_is_disrupted_together_goes_as_a_whole_and_says_so() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(world, make_group("victim", min_count=2, priority=1, disruptionMode={"all": {}}))
        await create(
            world, *(running(f"victim-{each}", f"n{each}", cpu="2", priority=1, group="victim") for each in (0, 1))
        )
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(5)
        assert await leaving(world) == ["victim-0", "victim-1"]
        group = await world.client.get(POD_GROUPS, "default", "victim")
        assert (condition(group, "DisruptionTarget") or {})["reason"] == "PreemptionByScheduler"

    run(story)


def test_a_preemptor_that_fits_elsewhere_gives_up_the_room_that_was_made() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), running("stuck", "n0", cpu="2"))
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(5)
        assert await leaving(world) == ["stuck"]
        await create(world, make_node("n1", cpu="2"))
        await world.clock.sleep(15)
        assert await world.nodes_of("high") == {"high": "n1"}
        await create(world, make_pod("next", cpu="2", priority=1))
        await world.delete_pod("stuck")
        await world.clock.sleep(15)
        assert await world.nodes_of("next") == {"next": "n0"}

    run(story)


def test_a_deleted_preemptor_keeps_no_room() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), running("low", "n0", cpu="2"))
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(5)
        await world.delete_pod("high")
        await create(world, make_pod("next", cpu="2", priority=1))
        await world.delete_pod("low")
        await world.clock.sleep(15)
        assert await world.nodes_of("next") == {"next": "n0"}

    run(story)


def test_a_higher_one_takes_kept_room_and_the_other_plans_anew() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(world, running("a", "n0", cpu="2", priority=1), running("b", "n1", cpu="2", priority=2))
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(5)
        assert await leaving(world) == ["a"]
        await create(world, make_pod("higher", cpu="2", priority=20))
        await world.clock.sleep(15)
        assert await nominated(world, "higher") == "n0"
        assert await nominated(world, "high") == "n1"
        await world.delete_pod("a")
        await world.delete_pod("b")
        await world.clock.sleep(15)
        assert await world.nodes_of("high") == {"high": "n1", "higher": "n0"}

    run(story)


def test_never_evicts_without_need_or_without_the_right() -> None:
    async def story(world: World) -> None:
        await create(
            world, make_node("n0", cpu="4"), running("low", "n0", cpu="2"), running("same", "n0", cpu="1", priority=10)
        )
        await create(world, make_pod("fits", cpu="1", priority=10))
        await create(world, make_pod("polite", cpu="2", priority=10, spec={"preemptionPolicy": "Never"}))
        await create(world, make_pod("too-big", cpu="4", priority=10))
        await create(world, make_group("gang", min_count=2, priority=10, preemptionPolicy="Never"))
        await create(world, *(make_pod(f"gang-{place}", cpu="1", priority=10, group="gang") for place in range(2)))
        await create(world, make_group("hopeless", min_count=2, priority=10))
        await create(
            world, *(make_pod(f"hopeless-{place}", cpu="2", priority=10, group="hopeless") for place in range(2))
        )
        await world.clock.sleep(60)
        assert await leaving(world) == []
        assert "not eligible due to preemptionPolicy=Never." in (await world.said("polite"))[1]
        assert "No preemption victims" not in (await world.said("too-big"))[1]

    run(story)


def test_a_budget_is_spared_where_another_victim_will_do() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(
            world, running("guarded", "n0", cpu="2", labels={"app": "db"}), running("free", "n1", cpu="2", priority=5)
        )
        budget: Object = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }
        await world.client.create(POD_DISRUPTION_BUDGETS, "default", budget)
        await world.clock.sleep(1)
        await create(
            world, make_group("gang", min_count=1, priority=10), make_pod("g", cpu="2", priority=10, group="gang")
        )
        await world.clock.sleep(5)
        assert await leaving(world) == ["free"]

    run(story)


def test_a_restart_in_the_middle_keeps_the_room() -> None:
    async def story(world: World) -> None:
        await create(world, *(make_node(f"n{node}", cpu="2") for node in range(2)))
        await create(world, *(running(f"old-{node}", f"n{node}", cpu="2") for node in range(2)))
        await create(world, make_group("gang", min_count=2, priority=100))
        await create(world, *(make_pod(f"gang-{place}", cpu="2", priority=100, group="gang") for place in range(2)))
        await world.clock.sleep(5)
        await world.stop()
        await create(world, make_pod("other", cpu="2", priority=50))
        await world.delete_pod("old-0")
        world.start()
        await world.clock.sleep(20)
        assert await world.nodes_of("other") == {}
        await world.delete_pod("old-1")
        await world.clock.sleep(20)
        assert set(await world.nodes_of("gang")) == {"gang-0", "gang-1"}

    run(story)


def test_leftover_members_of_a_gang_preempt_one_victim_set_at_a_time() -> None:
    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(world, running("low", "n1", cpu="2"))
        await create(world, make_group("gang", min_count=1, priority=100))
        await create(world, *(make_pod(f"gang-{place}", cpu="2", priority=100, group="gang") for place in range(2)))
        await world.clock.sleep(5)
        assert await world.nodes_of("gang") == {"gang-0": "n0"}
        assert await leaving(world) == ["low"]
        await world.delete_pod("low")
        await world.clock.sleep(5)
        assert await world.nodes_of("gang") == {"gang-0": "n0", "gang-1": "n1"}

    run(story)


def test_a_gang_bound_to_a_rack_evicts_pods_of_one_rack_only() -> None:
    rack = "topology.kubernetes.io/rack"

    async def story(world: World) -> None:
        nodes = [make_node(f"n{at}", cpu="2", labels={rack: f"r{at // 2}"}) for at in range(4)]
        fillers = [running(f"low-{at}", f"n{at}", cpu="1", priority=1) for at in range(4)]
        more = running("low-more", "n0", cpu="1", priority=1)
        await create(world, *nodes, *fillers, more)
        group = make_group("a", min_count=3, priority=10, schedulingConstraints={"topology": [{"key": rack}]})
        await create(world, group, *(make_pod(f"a-{at}", group="a", cpu="1", priority=10) for at in range(3)))
        await world.clock.sleep(5)
        gone = await leaving(world)
        assert len(gone) == 1
        assert gone[0] in ("low-2", "low-3")
        await world.delete_pod(gone[0])
        await world.clock.sleep(5)
        placed = await world.nodes_of("a-")
        assert len(placed) == 3
        assert set(placed.values()) == {"n2", "n3"}

    run(story)


def test_a_victim_that_may_not_be_deleted_is_not_asked_for_again() -> None:
    deletions: list[str] = []

    def rule(method: str, path: str, asked: int) -> str:
        if method == "DELETE" and path.endswith("/low"):
            deletions.append(path)
            return "403"
        return ""

    async def story(world: World) -> None:
        await create(world, make_node("n0", cpu="2"), make_node("n1", cpu="2"))
        await create(world, running("low", "n0", cpu="2"), running("mid", "n1", cpu="2", priority=5))
        await create(world, make_pod("high", cpu="2", priority=10))
        await world.clock.sleep(30)
        assert len(deletions) == 1
        assert await leaving(world) == ["mid"]
        await world.delete_pod("mid")
        await world.clock.sleep(15)
        assert await world.nodes_of("high") == {"high": "n1"}

    run(story, rule=rule)
