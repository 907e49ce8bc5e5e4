"""The plugin sets of a profile: what is enabled and disabled, merged with the defaults as kube-scheduler does. Pure.

Source of the rules: kube-scheduler `apis/config/v1/default_plugins.go` (merging with the defaults) and
`framework/runtime/framework.go` (what multiPoint means at each extension point, weights).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from msgspec import Struct

from muster.engine.profile import MAX_NODE_SCORE
from muster.engine.registry import PLUGINS, POINTS
from muster.scheduler.configuration.fields import INT64, Fields

ALL = "*"
REMOVED = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins of earlier releases that v1 does not know any more."""


class PluginSet(Struct, frozen=True):
    """What one extension point (or multiPoint) says: (name, weight; 0 = not said) enabled in order, names disabled."""

    enabled: tuple[tuple[str, int], ...] = ()
    disabled: frozenset[str] = frozenset()


class PluginChoice(Struct, frozen=True):
    """Which plugins act where: names in order by extension point, and the weights of those that score."""

    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]

    @property
    def scores(self) -> list[tuple[str, int]]:
        """The plugins that score, with their weights."""
        return [(name, self.weights[name]) for name in self.points["score"]]


DEFAULTS = PluginSet(tuple((plugin.name, plugin.weight) for plugin in PLUGINS.values()))


def read_plugins(profile: Fields) -> PluginChoice:
    """The `plugins` of a profile, merged with the defaults. Faults are noted, and what is faulty left out."""
    plugins = profile.object("plugins") or Fields({}, profile.at("plugins"), profile.faults)
    own = {point: _read_set(plugins, point) for point in ("multiPoint", *POINTS)}
    plugins.finish()
    multi_point = _merged(DEFAULTS, own["multiPoint"])
    _check_repeated(plugins, "multiPoint", multi_point)
    points = {}
    for point in POINTS:
        _check_repeated(plugins, point, own[point])
        points[point] = _expanded(point, multi_point, own[point])
    weights = _weights((*own["score"].enabled, *multi_point.enabled))
    choice = PluginChoice(points, weights)
    _check_choice(plugins, choice)
    return choice


def is_known(fields: Fields, name: str) -> bool:
    """Whether a plugin of that name exists; else that is noted."""
    if name in PLUGINS:
        return True
    if not name:
        fields.fault("name", "is missing")
    elif name in REMOVED:
        fields.fault("name", f"plugin {name!r} was removed: NodeVolumeLimits takes its place")
    else:
        close = difflib.get_close_matches(name, PLUGINS, n=1)
        fields.fault("name", f"plugin {name!r} does not exist{f', did you mean {close[0]}?' if close else ''}")
    return False


def _read_set(plugins: Fields, point: str) -> PluginSet:
    found = plugins.object(point)
    if found is None:
        return PluginSet()
    enabled = [entry for each in found.objects("enabled") if (entry := _read_enabled(each, point)) is not None]
    disabled = [each.text("name") for each in _finished(found.objects("disabled"))]
    found.finish()
    return PluginSet(tuple(enabled), frozenset(disabled))


def _read_enabled(entry: Fields, point: str) -> tuple[str, int] | None:
    name, weight = entry.text("name"), entry.integer("weight", 0, low=0)
    entry.finish()
    if not is_known(entry, name):
        return None
    if point in POINTS and point not in PLUGINS[name].points:
        entry.fault("name", f"plugin {name!r} does not act at {point}")
        return None
    return name, weight


def _finished(entries: list[Fields]) -> Iterator[Fields]:
    """The entries of a `disabled` list: a name that means nothing disables nothing, as in kube-scheduler."""
    for entry in entries:
        yield entry
        entry.raw("weight")
        entry.finish()


def _merged(default: PluginSet, own: PluginSet) -> PluginSet:
    """The defaults without what is disabled; what is enabled anew takes the place it had, or comes last."""
    if ALL in own.disabled:
        return own
    enabled = dict(own.enabled)
    kept = [(name, enabled.get(name, weight)) for name, weight in default.enabled if name not in own.disabled]
    names = {name for name, _ in kept}
    return PluginSet((*kept, *(entry for entry in own.enabled if entry[0] not in names)), own.disabled)


def _expanded(point: str, multi_point: PluginSet, own: PluginSet) -> tuple[str, ...]:
    """Who acts at a point: those named there that multiPoint has too, the rest of multiPoint, others named there."""
    named = [name for name, _ in own.enabled]
    if ALL in own.disabled:
        return tuple(named)
    acting = [name for name, _ in multi_point.enabled if point in PLUGINS[name].points and name not in own.disabled]
    first = [name for name in named if name in acting]
    return (*first, *(name for name in acting if name not in named), *(name for name in named if name not in acting))


def _weights(entries: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """The weight of each plugin, by what says it first: its own extension point, then multiPoint. 0 means 1."""
    weights: dict[str, int] = {}
    for name, weight in entries:
        weights.setdefault(name, weight or 1)
    return weights


def _check_repeated(plugins: Fields, point: str, found: PluginSet) -> None:
    names = [name for name, _ in found.enabled]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        plugins.fault(f"{point}.enabled", f"plugin {name!r} is enabled more than once")


def _check_choice(plugins: Fields, choice: PluginChoice) -> None:
    """What every profile needs: an order of the queue, a way to bind, and totals that do not overflow."""
    if len(choice.points["queueSort"]) != 1:
        plugins.fault("queueSort", f"exactly one plugin must sort the queue, not {len(choice.points['queueSort'])}")
    if not choice.points["bind"]:
        plugins.fault("bind", "at least one plugin must bind")
    if sum(weight for _, weight in choice.scores) * MAX_NODE_SCORE > INT64:
        plugins.fault("score", "the total score could overflow")
