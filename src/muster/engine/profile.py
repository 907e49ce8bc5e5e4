"""Which rules decide, in which order and with which weight: a scheduler profile, and the protocols of its plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32, frozen
from muster.engine.model import ScoreError, Status
from muster.engine.nodes import NodeTable
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial

if TYPE_CHECKING:
    from typing_extensions import TypeIs

UNLIMITED = int(np.iinfo(np.int32).max)
"""The count of a rule that does not limit how many pods a node takes."""

MAX_NODE_SCORE = 100

T = TypeVar("T")


class FilterPlugin(Protocol):
    """A rule that says how many more pods of a shape fit on each node."""

    @property
    def name(self) -> str:
        """Upstream's name."""

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """int32[N]: how many more fit, 0 = none, UNLIMITED = any number."""

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """Why not, for each of the rows; only asked for rows whose count is 0."""


class PreFilterPlugin(Protocol):
    """A rule that can reject a shape, or all nodes but some, before nodes are looked at one by one."""

    @property
    def name(self) -> str:
        """Upstream's name."""

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Why the shape fits nowhere at all, if so."""

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """bool[N]: the nodes to look at; None for all."""


def looks_first(plugin: object) -> TypeIs[PreFilterPlugin]:
    """Whether a plugin is a PreFilterPlugin. (`isinstance` with a protocol takes longer than many a rule.)"""
    return hasattr(plugin, "node_set")


class Normalisation(Enum):
    """How raw scores become 0..100 over the feasible nodes (upstream `helper.DefaultNormalizeScore`)."""

    NONE = "none"
    HIGHEST = "highest"
    REVERSE = "reverse"

    def scale(self, raw: Ints, highest: int) -> Ints:
        """The scores for raw scores of which `highest` is the largest among the feasible nodes."""
        if self is Normalisation.NONE:
            return raw
        if highest == 0:
            return raw if self is Normalisation.HIGHEST else np.full_like(raw, MAX_NODE_SCORE)
        scaled = raw * MAX_NODE_SCORE // highest
        return scaled if self is Normalisation.HIGHEST else MAX_NODE_SCORE - scaled


class ScorePlugin(Protocol):
    """A rule that prefers some nodes.

    `static`: the score does not depend on k. Normalised plugins must be static.
    """

    @property
    def name(self) -> str:
        """Upstream's name."""

    @property
    def static(self) -> bool:
        """Whether the score does not depend on the pods of the group that a node has already."""

    @property
    def normalisation(self) -> Normalisation:
        """How the raw scores are normalised."""

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """int64[M] raw scores of nodes rows[j] when they would receive their k[j]-th pod of this shape (k ≥ 1)."""


class Coupling(Protocol):
    """What a rule that couples nodes says to pods of one shape that are placed one after the other; `place` changes it.

    `steady`: placing pods of the shape changes nothing of it but what `count` says of each node for itself.
    """

    @property
    def steady(self) -> bool:
        """Whether the pods of the shape leave it as it is."""

    @property
    def binding(self) -> bool:
        """Whether the shape has hard rules of its own about other pods."""

    def most(self, usable: Bools) -> int:
        """At most so many pods of the shape can be placed on these nodes; UNLIMITED if the rule does not say."""

    def allowed(self) -> Bools | None:
        """bool[N]: nodes that the rule lets the next pod use; None for all. Valid until the next `place`."""

    def scores(self, feasible: Feasible) -> Scaled | None:
        """The scores of the feasible nodes for the next pod; None if the rule does not score this shape."""

    def place(self, row: int) -> None:
        """Counts a pod of the shape on that node."""


class Feasible(Struct, frozen=True):
    """The nodes that a pod may use, as bool[N] and as rows. `changed`: they may be others than at the last question."""

    mask: Bools
    rows: Ints
    changed: bool = True

    def of(self, values: Ints) -> Ints:
        """The values of the feasible nodes."""
        return values if len(self.rows) == len(values) else values[self.rows]


def feasible_rows(rows: Ints, size: int) -> Feasible:
    """These rows of `size` nodes."""
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return Feasible(mask, rows)


class Scaled(Struct, frozen=True):
    """`scores` int64[N], 0..100, of which only those of feasible nodes mean something; `raw` is what they come from."""

    scores: Ints
    raw: Ints


class CoupledPlugin(Protocol):
    """A rule by which what one node holds matters for others: spreading, affinity between pods."""

    @property
    def name(self) -> str:
        """Upstream's name."""

    def coupling(self, shape: Shape, snapshot: Snapshot) -> Coupling | None:
        """A fresh coupling; None if the rule has nothing to say about the shape."""

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether it filters nodes for the shape, with the pods that run now."""

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """int32[N]: how many pods of the shape a node can ever take, whatever else is placed meanwhile."""


def is_coupled(plugin: object) -> TypeIs[CoupledPlugin]:
    """Whether a plugin couples nodes; see `looks_first`."""
    return hasattr(plugin, "coupling")


RowScorer: TypeAlias = Callable[[Ints, Ints], Ints]
"""What `ScorePlugin.score` says of one shape, by rows and k."""


class PreparedPlugin(Protocol):
    """A score rule that is asked often about few nodes, and works out once what depends on the shape."""

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """`score` for this shape; goes by what the arrays of the snapshot (a trial) hold when it is called."""


def prepares(plugin: object) -> TypeIs[PreparedPlugin]:
    """Whether a plugin is a PreparedPlugin; see `looks_first`."""
    return hasattr(plugin, "scorer")


def row_scorer(plugin: ScorePlugin, shape: Shape, snapshot: Snapshot) -> RowScorer:
    """The plugin's score for one shape, prepared if the plugin can do that."""
    return plugin.scorer(shape, snapshot) if prepares(plugin) else partial(plugin.score, shape, snapshot)


class SkippingPlugin(Protocol):
    """A score rule that leaves out some shapes: they get no score from it, which counts as 0."""

    def skips(self, shape: Shape) -> bool:
        """Whether the rule does not score the shape."""


def can_skip(plugin: object) -> TypeIs[SkippingPlugin]:
    """Whether a plugin may leave out shapes; see `looks_first`."""
    return hasattr(plugin, "skips")


class Weighted(Struct, frozen=True):
    """A score plugin and its weight in the profile."""

    plugin: ScorePlugin | CoupledPlugin
    weight: int


class PreemptionArguments(Struct, frozen=True):
    """DefaultPreemptionArgs."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


DEFAULT_PREEMPTION = PreemptionArguments()


class Profile(Struct, frozen=True, cache_hash=True):
    """The rules of one scheduler name. `filters` in the order in which the first failure is reported.

    `preemption` None: nobody is evicted for pods of this profile (DefaultPreemption is disabled).
    """

    filters: tuple[FilterPlugin, ...]
    scores: tuple[Weighted, ...]
    preemption: PreemptionArguments | None = DEFAULT_PREEMPTION

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints:
        """int64[N], read-only: how many more pods of this shape fit on each node by all rules."""
        known = snapshot.counts.get((self.filters, shape))
        if known is not None:
            return known
        total = np.full(len(snapshot), UNLIMITED, dtype=np.int64)
        everywhere = unlimited(snapshot)
        for plugin in self.filters:
            counted = plugin.count(shape, snapshot)
            if counted is not everywhere:
                np.minimum(total, counted, out=total)
        for row, held in self._beside_nominated(shape, snapshot):
            total[row] = min(total[row], held)
        frozen(total)
        if len(snapshot.counts) < _COUNTS_LIMIT:
            snapshot.counts[self.filters, shape] = total
        return total

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints:
        """int64[N]: at most so many pods of the shape come to each node, in whatever order pods are placed.

        It is `count` without what rules that couple nodes say about the moment.
        """
        total = np.full(len(snapshot), UNLIMITED, dtype=np.int64)
        for plugin in self.filters:
            most = plugin.ceiling if is_coupled(plugin) else plugin.count
            np.minimum(total, most(shape, snapshot), out=total)
        return total

    def couplings(self, shape: Shape, snapshot: Snapshot) -> list[tuple[Coupling, int]]:
        """The couplings of the shape, each once, with their weights as scores (0: filters only)."""
        weights = {weighted.plugin.name: weighted.weight for weighted in self.scores}
        found = []
        for plugin in coupled_plugins(self):
            coupling = plugin.coupling(shape, snapshot)
            if coupling is not None:
                found.append((coupling, weights.get(plugin.name, 0)))
        return found

    def _beside_nominated(self, shape: Shape, snapshot: Snapshot) -> Iterator[tuple[int, int]]:
        """(row, count) of the nodes with reserved room, were their nominated pods there already."""
        for row, beside in beside_nominated(self, shape, snapshot):
            plugins = acting(self, shape, snapshot)
            yield row, min((int(plugin.count(shape, beside)[row]) for plugin in plugins), default=UNLIMITED)


def score_error(profile: Profile, shape: Shape) -> str:
    """Why pods of the shape cannot be scored by the profile, in kube-scheduler's words; "" if they can."""
    scored_by = {weighted.plugin.name for weighted in profile.scores}
    if not shape.nodes.error or "NodeAffinity" not in scored_by:
        return ""
    return f'running PreScore plugin "NodeAffinity": {shape.nodes.error}'


def check_scores(profile: Profile, shape: Shape, feasible: int) -> None:
    """Raises ScoreError if there is a choice to make among the feasible nodes and the shape cannot be scored."""
    if feasible > 1 and (error := score_error(profile, shape)):
        raise ScoreError(error)


@lru_cache(maxsize=32)
def coupled_plugins(profile: Profile) -> tuple[CoupledPlugin, ...]:
    """The plugins of a profile that couple nodes, each once. Kept: to ask a plugin for its protocols is slow."""
    plugins = [*profile.filters, *(weighted.plugin for weighted in profile.scores)]
    return tuple({plugin.name: plugin for plugin in plugins if is_coupled(plugin)}.values())


def acting(profile: Profile, shape: Shape, snapshot: Snapshot) -> list[FilterPlugin]:
    """The filters that look at nodes at all. Upstream settles this before nominated pods are looked at, so that a rule
    that only they would bring up is not tried on them."""

    def acts(plugin: FilterPlugin) -> bool:
        return not is_coupled(plugin) or plugin.acts(shape, snapshot)

    return [plugin for plugin in profile.filters if acts(plugin)]


def beside_nominated(profile: Profile, shape: Shape, snapshot: Snapshot) -> Iterator[tuple[int, Trial]]:
    """For each node with reserved room: its row, and a trial in which its nominated pods are on it.

    For rules that look at one node only, one trial with all nominated pods is right for every node.
    """
    if not snapshot.reserved:
        return
    index = snapshot.table.index
    coupled = any(plugin.coupling(shape, snapshot) is not None for plugin in coupled_plugins(profile))
    groups = [[node] for node in snapshot.reserved] if coupled else [list(snapshot.reserved)]
    for nodes in groups:
        with snapshot.trial() as trial:
            trial.reserved, trial.guests = {}, {node: snapshot.reserved[node] for node in nodes}
            for node in nodes:
                for usage in snapshot.reserved[node]:
                    trial.place(usage, index[node])
            for node in nodes:
                yield index[node], trial


def limited_to(mask: Bools) -> Ints32:
    """The count of a rule that only says yes or no."""
    return np.where(mask, np.int32(UNLIMITED), np.int32(0))


def unlimited(snapshot: Snapshot) -> Ints32:
    """The count of a rule that limits nothing: the same array, read-only, for all snapshots of a table."""
    table = snapshot.table

    def compute() -> Ints32:
        everywhere = np.full(len(table), UNLIMITED, dtype=np.int32)
        frozen(everywhere)
        return everywhere

    return remembered(table, unlimited, compute)


def of_table(snapshot: Snapshot, key: object, mask: Callable[[NodeTable], Bools]) -> Ints32:
    """The count of a rule that says yes or no by the table alone, worked out once for it and the key."""
    table = snapshot.table

    def compute() -> Ints32:
        allowed = mask(table)
        return unlimited(snapshot) if allowed.all() else limited_to(allowed)

    return remembered(table, key, compute)


def noted(snapshot: Snapshot, key: object, compute: Callable[[], T]) -> T:
    """What `compute` gives, computed once for this snapshot (while a trial is not written) and key."""
    found = snapshot.notes.get(key)
    if found is None:
        if len(snapshot.notes) >= _NOTES_LIMIT:
            snapshot.notes.clear()
        found = snapshot.notes[key] = compute()
    return cast(T, found)  # the key names the function, so the type is the one that it returns


def remembered(table: NodeTable, key: object, compute: Callable[[], T]) -> T:
    """What `compute` gives, computed once for this table and key, which must name the plugin and all that it reads."""
    found = table.memo.get(key)
    if found is None:
        if len(table.memo) >= _MEMO_LIMIT:
            table.memo.clear()
        found = table.memo[key] = compute()
    return cast(T, found)  # the key names the function, so the type is the one that it returns


_MEMO_LIMIT = 2_000
_COUNTS_LIMIT = 100
_NOTES_LIMIT = 100
