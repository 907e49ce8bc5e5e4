"""The first try for a tree without topology constraints: all its groups in order, as kube-scheduler does. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.engine.model import Decision, GroupRequest, Placed
from muster.engine.snapshot import Snapshot, Trial
from muster.scheduler.tree import Branch, Tree, leaves_of, placements_in, put_leaves

Decide: TypeAlias = Callable[[Snapshot, GroupRequest], Decision]


@dataclass(slots=True)
class InOrder:
    """Tries all groups in order, each with those before it in place; what failed leaves nothing behind."""

    decide: Decide
    outcomes: dict[str, Decision] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def run(self, snapshot: Snapshot, root: Branch) -> bool:
        """Whether the root has enough."""
        with snapshot.trial() as trial:
            return self._try(trial, root)

    def _try(self, trial: Trial, tree: Tree) -> bool:
        if isinstance(tree, Branch):
            return self._try_branch(trial, tree)
        decision = self.decide(trial, GroupRequest(tree.ref.key, tree.members, tree.min_count, tree.scheduled))
        self.outcomes[tree.ref.key] = decision
        put_leaves(trial, (tree,), placements_in(decision))
        return isinstance(decision, Placed)

    def _try_branch(self, trial: Trial, branch: Branch) -> bool:
        with trial.trial() as inner:
            succeeded = sum(self._try(inner, child) for child in branch.children)
        fitting = [leaf for leaf in leaves_of(branch) if leaf.ref.key not in self.dropped]
        if succeeded < branch.min_groups:
            fallen = (leaf.ref.key for leaf in fitting if isinstance(self.outcomes[leaf.ref.key], Placed))
            self.dropped.update(dict.fromkeys(fallen, branch.key))
            return False
        put_leaves(trial, fitting, [each for leaf in fitting for each in placements_in(self.outcomes[leaf.ref.key])])
        return True
