"""Signs of life of nodes, the states of zones, and how fast nodes may be tainted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.clock import rfc3339, rfc3339_micro
from muster.controllers.node.node_health import (
    NodeHealth,
    Zone,
    ZoneState,
    disruption,
    observe,
    rate,
    take,
    zone_of,
    zone_state,
)
from muster.controllers.options import NodeLifecycleOptions
from muster.testing.builders import make_node

OPTIONS = NodeLifecycleOptions()
NOW = 1_767_225_600.0


def node_with(status: str = "True", *, beat_s: float | None = None, zone: str = "", name: str = "node") -> Object:
    node = make_node(name, labels={"topology.kubernetes.io/zone": zone} if zone else None)
    ready: Object = {"type": "Ready", "status": status}
    if beat_s is not None:
        ready["lastHeartbeatTime"] = rfc3339(beat_s)
    node["status"]["conditions"] = [ready] if status else []
    node["metadata"].update(uid=f"uid-{name}", creationTimestamp=rfc3339(NOW - 100))
    return node


def lease(renewed_s: float, duration_s: int = 40) -> Object:
    return {"spec": {"renewTime": rfc3339_micro(renewed_s), "leaseDurationSeconds": duration_s}}


def health(status: str, zone: str = "", name: str = "node", **labels: str) -> NodeHealth:
    node = node_with(status, zone=zone, name=name)
    node["metadata"]["labels"].update(labels)
    return look(node, None, None, NOW)


def look(
    node: Object, lease: Object | None, old: NodeHealth | None, now: float, options: NodeLifecycleOptions = OPTIONS
) -> NodeHealth:
    return observe(node, lease, old, options, now)


def test_first_look_at_a_node_with_a_condition_or_a_lease_is_a_sign_of_life() -> None:
    assert look(node_with(), None, None, NOW).seen_s == NOW
    assert look(node_with(""), lease(NOW - 50), None, NOW).seen_s == NOW


def test_node_that_never_reported_is_as_old_as_its_object() -> None:
    seen = look(node_with(""), None, None, NOW)
    assert (seen.seen_s, seen.deadline_s) == (NOW - 100, NOW - 40)


@pytest.mark.parametrize(
    ("said_s", "want_s"),
    [(NOW + 95, NOW + 95), (NOW + 5000, NOW + 100), (NOW - 5000, NOW + 100)],
    ids=["as it says", "clock ahead", "clock behind"],
)
def test_renewal_is_dated_by_the_lease_unless_its_clock_is_wrong(said_s: float, want_s: float) -> None:
    node = node_with()
    first = look(node, lease(NOW), None, NOW)
    assert look(node, lease(said_s), first, NOW + 100).seen_s == want_s


def test_heartbeat_of_the_status_is_a_sign_of_life_and_a_change_without_one_is_none() -> None:
    first = look(node_with(beat_s=NOW), None, None, NOW)
    assert look(node_with(beat_s=NOW + 30), None, first, NOW + 40).seen_s == NOW + 30
    assert look(node_with("False", beat_s=NOW), None, first, NOW + 40).seen_s == NOW


def test_node_of_the_same_name_is_another_node() -> None:
    other = {**node_with(), "metadata": {**node_with()["metadata"], "uid": "other"}}
    assert look(other, None, look(node_with(), None, None, NOW), NOW + 500).seen_s == NOW + 500


@pytest.mark.parametrize(("duration_s", "want_s"), [(40, 8.0), (41, 41.0), (3600, 3600.0)])
def test_only_a_lease_longer_than_a_kubelets_prolongs_the_grace_period(duration_s: int, want_s: float) -> None:
    options = NodeLifecycleOptions(monitor_grace_period_s=8.0)
    assert look(node_with(), lease(NOW, duration_s), None, NOW, options).deadline_s == NOW + want_s


def test_lease_that_was_shortened_announces_the_end_until_it_is_renewed() -> None:
    node = node_with()
    first = look(node, lease(NOW, 3600), None, NOW)
    ending = look(node, lease(NOW + 10, 40), first, NOW + 11)
    assert ending.ending
    assert not look(node, lease(NOW + 20, 40), ending, NOW + 21).ending


@pytest.mark.parametrize(
    ("ready", "not_ready", "want"),
    [
        (0, 1, ZoneState.FULL),
        (1, 2, ZoneState.NORMAL),
        (2, 3, ZoneState.PARTIAL),
        (3, 3, ZoneState.NORMAL),
        (5, 0, ZoneState.NORMAL),
    ],
)
def test_zone_state_follows_the_share_of_nodes_that_are_not_ready(ready: int, not_ready: int, want: ZoneState) -> None:
    assert zone_state(ready, not_ready, OPTIONS) is want


@pytest.mark.parametrize(
    ("state", "size", "want"),
    [(ZoneState.NORMAL, 9, 0.1), (ZoneState.FULL, 9, 0.1), (ZoneState.PARTIAL, 50, 0.0), (ZoneState.PARTIAL, 51, 0.01)],
)
def test_rate_falls_in_disrupted_zones_and_stops_in_small_ones(state: ZoneState, size: int, want: float) -> None:
    assert rate(state, size, OPTIONS) == want


def test_nobody_is_evicted_while_every_zone_is_down_and_the_end_of_that_is_noticed() -> None:
    up = disruption([health("True", "a"), health("True", "b", "n2")], {}, OPTIONS, NOW)
    down = disruption([health("Unknown", "a"), health("False", "b", "n2")], up.zones, OPTIONS, NOW)
    assert down.entered and all(zone.rate == 0 for zone in down.zones.values())
    still = disruption([health("Unknown", "a"), health("False", "b", "n2")], down.zones, OPTIONS, NOW)
    assert not still.entered and not still.left
    back = disruption([health("Unknown", "a"), health("True", "b", "n2")], still.zones, OPTIONS, NOW)
    assert back.left and all(zone.rate == 0.1 for zone in back.zones.values())


def test_one_zone_down_of_several_goes_on_evicting() -> None:
    up = disruption([health("True", "a"), health("True", "b", "n2")], {}, OPTIONS, NOW)
    down = disruption([health("Unknown", "a"), health("True", "b", "n2")], up.zones, OPTIONS, NOW)
    assert down.zones[zone_of(node_with(zone="a"))].state is ZoneState.FULL
    assert [zone.rate for zone in down.zones.values()] == [0.1, 0.1]


def test_excluded_nodes_do_not_count() -> None:
    excluded = health("Unknown", "a", **{"node.kubernetes.io/exclude-disruption": ""})
    result = disruption([excluded, health("True", "a", "n2")], {}, OPTIONS, NOW)
    assert [zone.state for zone in result.zones.values()] == [ZoneState.NORMAL]


@given(st.floats(0.01, 50), st.lists(st.floats(0, 30), min_size=1, max_size=60).map(sorted), st.floats(1, 1000))
def test_no_more_nodes_are_tainted_than_the_rate_allows(per_s: float, moments: list[float], start: float) -> None:
    zone, taken = Zone(ZoneState.NORMAL, per_s), 0
    for moment in moments:
        after = take(zone, start + moment)
        if after is not None:
            zone, taken = after, taken + 1
    assert 1 <= taken <= (moments[-1] - moments[0]) * per_s + 1.001


def test_zone_whose_nodes_do_not_count_evicts_at_the_normal_rate() -> None:
    excluded = health("Unknown", "b", "n2", **{"node.kubernetes.io/exclude-disruption": ""})
    result = disruption([health("True", "a"), excluded], {}, OPTIONS, NOW)
    assert result.zones[excluded.zone].rate == OPTIONS.eviction_rate
