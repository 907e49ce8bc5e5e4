"""What a batch of changes in the cluster may have made possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.engine.identity import Identity
from muster.scheduler.changes import ClusterEvent


@dataclass(slots=True)
class Effects:
    """What a batch of changes may have made possible. Dicts serve as sets that keep their order.

    `pods`: plain pods that are new, changed or gone. `groups`: groups to examine again; True: to try again as well.
    `nodes`: events by the node that they happened to. `trees`: roots of trees of groups that changed, likewise.
    """

    pods: dict[str, None] = field(default_factory=dict)
    groups: dict[str, bool] = field(default_factory=dict)
    nodes: dict[str, set[ClusterEvent]] = field(default_factory=dict)
    trees: dict[str, bool] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    """Pods that had a node and are gone or have ended."""
    placed: dict[Identity, None] = field(default_factory=dict)
    """Who came to a node, as rules between pods see it."""
    objects: dict[str, None] = field(default_factory=dict)
    """Kinds of objects besides nodes and pods that changed."""
    freed: dict[str, None] = field(default_factory=dict)
    """ResourceClaims that lost their devices."""

    def touch_tree(self, root: str | None, *, retry: bool = False) -> None:
        if root is not None:
            self.trees[root] = self.trees.get(root, False) or retry

    def touch_group(self, key: str, *, retry: bool = False) -> None:
        self.groups[key] = self.groups.get(key, False) or retry

    def touch_node(self, name: str, events: Iterable[ClusterEvent]) -> None:
        found = set(events)
        if found:
            self.nodes.setdefault(name, set()).update(found)

    def __bool__(self) -> bool:
        elsewhere = self.placed or self.objects or self.freed
        return bool(self.pods or self.groups or self.nodes or self.trees or self.gone or elsewhere)
