"""PreEnqueue: which entities are candidates, which are held back for now, and why. Synchronous; time is passed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.groups import GroupRef
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.changes import is_leaving
from muster.scheduler.effects import Effects
from muster.scheduler.entities import GROUP, POD, TREE, Entities
from muster.scheduler.members import Members, PodRecord
from muster.scheduler.pre_enqueue import Hold, hold_of_group, hold_of_orphan, hold_of_tree, is_gated
from muster.scheduler.queue import SchedulingQueue


class Held(Struct, frozen=True):
    """A group that PreEnqueue holds, in words that differ from the last ones, and our members that wait with it."""

    ref: GroupRef
    hold: Hold


@dataclass(slots=True)
class Gate:
    """Puts entities into the queue, holds them there or takes them out, as what is known of them changes.

    `holds`: what each group is held for. `bind_errors`: failed bindings in a row of entities that are not in the queue.
    """

    cache: SchedulerCache
    queue: SchedulingQueue
    entities: Entities
    holds: dict[str, Hold] = field(default_factory=dict)
    bind_errors: dict[str, int] = field(default_factory=dict)
    waiting_pods: dict[str, None] = field(default_factory=dict)
    """Plain pods that have to wait for their claims, since somebody last asked."""

    def settle(self, effects: Effects, now: float) -> Iterator[Held]:
        """Move the entities that changed; the groups that are held for a new reason."""
        for entity in self._by_age(effects):
            yield from self._settle_entity(entity, effects, now)

    def hold_of(self, group: str) -> Hold | None:
        """What PreEnqueue holds the group for; None if it is not held."""
        return self.holds.get(GROUP + group)

    def waiting_members(self, group: str) -> list[PodRecord]:
        """Our members that PreEnqueue holds with their group, in order; those with gates of their own are left out."""
        members = self.cache.groups.get(group)
        if members is None or GROUP + group not in self.holds:
            return []
        problems = self.cache.claim_problems
        return [record for record in members.to_place() if record.key not in members.gated or record.key in problems]

    def _by_age(self, effects: Effects) -> list[str]:
        """The touched entities, oldest first, so that a restart finds the order that there was before."""
        for key in list(effects.groups):
            root = self.entities.root_of(key)
            if root is not None:
                effects.touch_tree(root, retry=effects.groups[key])
        found = [POD + key for key in effects.pods] + [GROUP + key for key in effects.groups]
        return sorted(found + [TREE + root for root in effects.trees], key=self.entities.created)

    def _settle_entity(self, entity: str, effects: Effects, now: float) -> list[Held]:
        if entity.startswith(POD):
            self._settle_pod(entity, now)
            return []
        if entity.startswith(TREE):
            root = entity.removeprefix(TREE)
            return self._settle_tree(root, effects.trees[root], now)
        key = entity.removeprefix(GROUP)
        members = self.cache.groups.get(key)
        hold = None if members is None else self._settle_group(members, effects.groups[key], now)
        if members is not None:
            self.cache.discard_group_if_empty(key)
        return [] if members is None or hold is None else [Held(members.ref, hold)]

    def _settle_pod(self, entity: str, now: float) -> None:
        record = self.cache.pods.get(entity.removeprefix(POD))
        if record is None or record.node or not record.ours or is_leaving(record.pod):
            self.queue.remove(entity, now)
            if record is None:
                self.bind_errors.pop(entity, None)
        elif is_gated(record.pod):
            self.queue.hold(entity, record.priority, now)
        elif record.key in self.cache.claim_problems:
            self.queue.hold(entity, record.priority, now)
            self.waiting_pods[record.key] = None
        else:
            self.queue.add(entity, record.priority, now)

    def _settle_group(self, members: Members, retry: bool, now: float) -> Hold | None:
        """Gate, enqueue or drop the group's entity; why it is held, if that is news to some member."""
        entity = GROUP + members.ref.key
        if not any(record.ours for record in members.pending.values()):
            self.queue.remove(entity, now)
            self.holds.pop(entity, None)
            if not members.known:
                self.bind_errors.pop(entity, None)
            return None
        chain = self.cache.chain(members.ref)
        if chain is not None and chain.root is not None:
            self.queue.remove(entity, now)
            return None
        hold = (
            hold_of_group(self.entities.group_facts(members)) if chain is None else hold_of_orphan(members.ref, chain)
        )
        priority = self.entities.priority(entity)
        if hold is not None:
            self.queue.hold(entity, priority, now)
            is_news = retry or self.holds.get(entity) != hold
            self.holds[entity] = hold
            return hold if is_news else None
        was_held = self.holds.pop(entity, None) is not None
        if retry or was_held or entity not in self.queue:
            self.queue.add(entity, priority, now)
        return None

    def _settle_tree(self, root: str, retry: bool, now: float) -> list[Held]:
        """Gate, enqueue or drop the entity of a tree; why it is held, for each group to which that is news."""
        entity = TREE + root
        waiting = [group for group in self.entities.groups(entity) if any(each.ours for each in group.pending.values())]
        if not waiting or self.cache.hierarchy.chain(root).root != root:
            self.queue.remove(entity, now)
            self.bind_errors.pop(entity, None)
            return []
        priority = self.entities.priority(entity)
        hold = hold_of_tree(self.entities.tree_facts(root))
        before = {GROUP + group.ref.key: self.holds.pop(GROUP + group.ref.key, None) for group in waiting}
        if hold is not None:
            self.queue.hold(entity, priority, now)
            self.holds.update(dict.fromkeys(before, hold))
            return [Held(group.ref, hold) for group in waiting if retry or before[GROUP + group.ref.key] != hold]
        if retry or any(before.values()) or entity not in self.queue:
            self.queue.add(entity, priority, now)
        return []
