"""Endpoints of Services: which pods, packed how, with which hints, and copies of Endpoints that people write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.api.resource import ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import VirtualClock, rfc3339, run_virtual
from muster.controllers.action import Emit
from muster.controllers.network.endpoint_ports import in_upstream_order, port_key
from muster.controllers.network.endpoints import subsets_of, truncated
from muster.controllers.network.endpointslice_mirroring import EndpointSliceMirroring
from muster.controllers.network.endpointslice_packing import MOST_ENDPOINTS, SlicePlan, endpoint_key, pack
from muster.controllers.network.endpointslice_topology import HintsImpossible, is_overloaded, share_out
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.testing.builders import make_node, make_pod
from muster.testing.controller_state import ControllerState

Story = Callable[[Client, VirtualClock], Awaitable[None]]
CONTROLLERS = ("endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller")


def play(story: Story) -> None:
    """Run a story on a cluster with the controllers of endpoints and two nodes."""

    async def main(clock: VirtualClock) -> None:
        rng = random.Random(7)
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, rng)))
        service = ControllerService(client, clock, rng, ControllerOptions(), CONTROLLERS)
        task = asyncio.get_running_loop().create_task(service.run())
        for name in ("a", "b"):
            labels = {"topology.kubernetes.io/zone": f"zone-{name}"}
            await client.create(NODES, None, make_node(name, labels=labels))
        await clock.sleep(1)
        await story(client, clock)
        assert not task.done()
        task.cancel()

    run_virtual(main)


async def run_pod(client: Client, clock: VirtualClock, name: str, node: str, *ips: str, ready: bool = True) -> None:
    pod = make_pod(name, labels={"app": "web"})
    pod["spec"]["nodeName"] = node
    await client.create(PODS, "default", pod)
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": rfc3339(clock.now())}
    addresses = [{"ip": ip} for ip in ips]
    status = {"phase": "Running", "conditions": [condition], "podIP": ips[0], "podIPs": addresses}
    await client.patch(PODS, "default", name, {"status": status}, subresource="status")
    await clock.sleep(0.1)


async def serve(client: Client, clock: VirtualClock, **spec: object) -> None:
    wanted = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    await client.create(
        SERVICES, "default", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": wanted}
    )
    await clock.sleep(0.1)


async def slices(client: Client) -> Objects:
    return list((await client.list(ENDPOINT_SLICES, "default")).items)


async def addresses(client: Client) -> list[str]:
    found = [each["addresses"] for slice_ in await slices(client) for each in slice_["endpoints"] or ()]
    return sorted(address for each in found for address in each)


def test_a_pod_with_two_families_is_in_a_slice_of_each() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")
        await run_pod(client, clock, "p", "a", "10.0.0.1", "fd00::1")
        found = {slice_["addressType"]: slice_["endpoints"][0]["addresses"] for slice_ in await slices(client)}
        assert found == {"IPv4": ["10.0.0.1"], "IPv6": ["fd00::1"]}

    play(story)


def test_a_pod_on_a_node_that_is_not_there_waits_for_it() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock)
        await run_pod(client, clock, "p", "late", "10.0.0.1")
        assert await addresses(client) == []
        await client.create(NODES, None, make_node("late"))
        await clock.sleep(0.1)
        assert await addresses(client) == ["10.0.0.1"]

    play(story)


def test_a_pod_that_fails_without_having_been_ready_leaves() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock)
        await run_pod(client, clock, "p", "a", "10.0.0.1", ready=False)
        assert await addresses(client) == ["10.0.0.1"]
        await client.patch(PODS, "default", "p", {"status": {"phase": "Failed"}}, subresource="status")
        await clock.sleep(0.1)
        assert await addresses(client) == []

    play(story)


def test_a_service_that_loses_its_selector_keeps_its_slice_and_gets_a_mirrored_one() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock)
        await run_pod(client, clock, "p", "a", "10.0.0.1")
        await client.patch(SERVICES, "default", "s", {"spec": {"selector": None}})
        await clock.sleep(0.1)
        mirrored, own = sorted(
            await slices(client), key=lambda slice_: slice_["metadata"]["ownerReferences"][0]["kind"]
        )
        assert [endpoint.get("zone") for endpoint in own["endpoints"]] == ["zone-a"]
        assert mirrored["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller"
        assert [each["conditions"] for each in mirrored["endpoints"]] == [{"ready": True}]
        assert "zone" not in mirrored["endpoints"][0]

    play(story)


def test_endpoints_that_a_person_writes_are_mirrored_until_they_go() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock, selector=None)
        subset = {
            "addresses": [{"ip": "10.1.1.1"}, {"ip": "fd00::9"}],
            "notReadyAddresses": [{"ip": "10.1.1.2"}],
            "ports": [{"port": 9000}],
        }
        written = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"}, "subsets": [subset]}
        await client.create(ENDPOINTS, "default", written)
        await clock.sleep(0.1)
        assert await addresses(client) == ["10.1.1.1", "10.1.1.2", "fd00::9"]
        await client.patch(ENDPOINTS, "default", "s", {"subsets": [{**subset, "addresses": [{"ip": "10.1.1.3"}]}]})
        await clock.sleep(0.1)
        assert await addresses(client) == ["10.1.1.2", "10.1.1.3"]
        await client.delete(ENDPOINTS, "default", "s")
        await clock.sleep(0.1)
        assert await slices(client) == []

    play(story)


def test_addresses_of_older_endpoints_that_are_none_are_not_mirrored() -> None:
    """A server takes no such addresses, but may have kept them."""
    metadata = {"name": "s", "namespace": "default"}
    state = ControllerState(ENDPOINTS, ENDPOINT_SLICES, SERVICES)
    state.put(SERVICES, {"metadata": metadata, "spec": {}})
    state.put(ENDPOINTS, {"metadata": metadata, "subsets": [{"addresses": [{"ip": "10.1.1.2"}, {"ip": "nonsense"}]}]})
    emitted, *_ = EndpointSliceMirroring().reconcile("default/s", state, 0.0).actions
    assert isinstance(emitted, Emit)
    assert emitted.reason == "InvalidIPAddress"


def test_endpoints_follow_the_pods_and_go_with_the_service() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await serve(client, clock)
        await run_pod(client, clock, "p", "a", "10.0.0.1")
        await run_pod(client, clock, "q", "b", "10.0.0.2", ready=False)
        (subset,) = (await client.get(ENDPOINTS, "default", "s"))["subsets"]
        assert [entry["ip"] for entry in subset["addresses"]] == ["10.0.0.1"]
        assert [entry["ip"] for entry in subset["notReadyAddresses"]] == ["10.0.0.2"]
        await client.delete(SERVICES, "default", "s")
        await clock.sleep(0.1)
        assert list((await client.list(ENDPOINTS, "default")).items) == []

    play(story)


def endpoint(number: int, *, zone: str = "", ready: bool = True) -> Object:
    made = {"addresses": [f"10.0.{number // 256}.{number % 256}"], "conditions": {"ready": ready}}
    return {**made, **({"zone": zone} if zone else {})}


def packed(existing: Sequence[Object], desired: Sequence[Object]) -> SlicePlan:
    return pack(existing, desired, {}, lambda slice_: False, lambda: {"metadata": {}, "endpoints": []})


@given(
    st.lists(st.lists(st.integers(0, 399), max_size=100, unique=True), max_size=4),
    st.sets(st.integers(0, 399), max_size=300),
)
def test_packing_puts_each_endpoint_in_one_slice_and_moves_none(contents: list[list[int]], wanted: set[int]) -> None:
    used: set[int] = set()
    existing: Objects = []
    for index, numbers in enumerate(contents):
        own = [number for number in numbers if number not in used]
        used.update(own)
        existing.append({"metadata": {"name": f"s{index}"}, "endpoints": [endpoint(number) for number in own]})
    plan = packed(existing, [endpoint(number) for number in sorted(wanted)])
    after = [*plan.create, *plan.update, *plan.unchanged]
    keys = [endpoint_key(each) for slice_ in after for each in slice_["endpoints"]]
    assert sorted(keys) == sorted(endpoint_key(endpoint(number)) for number in wanted)
    assert all(len(slice_["endpoints"]) <= MOST_ENDPOINTS for slice_ in after)
    by_name = {name_of(slice_): {endpoint_key(each) for each in slice_["endpoints"]} for slice_ in plan.update}
    for slice_ in existing:
        stayed = {endpoint_key(endpoint(number)) for number in wanted} & {
            endpoint_key(each) for each in slice_["endpoints"]
        }
        assert stayed <= by_name.get(name_of(slice_), stayed)
    assert len(plan.create) * MOST_ENDPOINTS < len(wanted) + MOST_ENDPOINTS


def test_new_endpoints_go_to_the_slice_that_they_fill_best() -> None:
    sizes = {"nearly-full": 99, "fits": 97, "empty": 1}
    start, existing = 0, []
    for name, size in sizes.items():
        existing.append({"metadata": {"name": name}, "endpoints": [endpoint(start + n) for n in range(size)]})
        start += size
    plan = packed(existing, [endpoint(number) for number in range(start + 3)])
    assert [name_of(slice_) for slice_ in plan.update] == ["fits"] and not plan.create


@given(st.lists(st.integers(0, 12), min_size=2, max_size=4), st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_automatic_hints_give_every_zone_its_least_share(counts: list[int], cpus: list[int]) -> None:
    zones = [f"z{index}" for index in range(len(counts))]
    total = sum(cpus[: len(zones)])
    ratios = {zone: cpu / total for zone, cpu in zip(zones, cpus, strict=False)}
    numbers = iter(range(1000))
    endpoints = [endpoint(next(numbers), zone=zone) for zone, n in zip(zones, counts, strict=True) for _ in range(n)]
    plan = SlicePlan(create=[{"metadata": {}, "endpoints": endpoints}])
    try:
        hinted = share_out(plan, ratios)
    except HintsImpossible:
        return
    given_to = [each["hints"]["forZones"][0]["name"] for each in plan.create[0]["endpoints"]]
    assert {zone: given_to.count(zone) for zone in zones} == {zone: hinted.get(zone, 0) for zone in zones}
    assert sum(hinted.values()) == sum(counts)
    again = SlicePlan(unchanged=list(plan.create))
    assert is_overloaded(hinted, ratios) or (share_out(again, ratios) == hinted and not again.update)


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        ([("u", "UDP", 53, None), ("t", "TCP", 53, "https"), ("s", "SCTP", 53, None)], ["t", "s", "u"]),
        ([("http", "TCP", 8080, None), ("fixed", "TCP", 5000, None)], ["fixed", "http"]),
    ],
    ids=["protocols", "numbers"],
)
def test_ports_stand_in_upstreams_order(ports: list[tuple[str, str, int, str | None]], want: list[str]) -> None:
    made: Objects = [
        {"name": name, "protocol": protocol, "port": port, **({"appProtocol": app} if app else {})}
        for name, protocol, port, app in ports
    ]
    assert [port["name"] for port in in_upstream_order(made)] == want
    assert port_key(made) == port_key(made[::-1])


def test_too_many_addresses_are_cut_ready_ones_first() -> None:
    cut = truncated([{"addresses": [{"ip": "a"}] * 900, "notReadyAddresses": [{"ip": "b"}] * 300}])
    assert (len(cut[0]["addresses"]), len(cut[0]["notReadyAddresses"])) == (900, 100)
    (only_ready,) = truncated([{"addresses": [{"ip": "a"}] * 1200, "notReadyAddresses": [{"ip": "b"}]}])
    assert len(only_ready["addresses"]) == 1000 and "notReadyAddresses" not in only_ready


def test_pods_that_do_not_name_a_port_have_only_the_others() -> None:
    pods = []
    for number, named in enumerate((True, False)):
        pod = make_pod(f"p{number}", labels={"app": "web"})
        pod["metadata"]["uid"] = f"u{number}"
        pod["status"] = {"podIPs": [{"ip": f"10.0.0.{number}"}], "phase": "Running"}
        if named:
            pod["spec"]["containers"][0]["ports"] = [{"name": "web", "containerPort": 8080, "protocol": "TCP"}]
        pods.append(pod)
    ports = [
        {"name": "web", "port": 80, "targetPort": "web", "protocol": "TCP"},
        {"name": "fixed", "port": 81, "targetPort": 5000, "protocol": "TCP"},
    ]
    found = subsets_of({"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": ports}}, pods)
    assert [[port["name"] for port in subset["ports"]] for subset in found] == [["fixed"], ["fixed", "web"]]
