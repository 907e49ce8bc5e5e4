"""What is said of decisions: which words go to pods, groups and composite groups, and when; `report` writes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from muster.api.groups import INITIALLY_SCHEDULED, GroupRef
from muster.api.meta import has_condition
from muster.clock import Clock
from muster.scheduler.core import SchedulerCore
from muster.scheduler.cycle import UNSCHEDULABLE, Rejection, Verdict
from muster.scheduler.gate import Held
from muster.scheduler.pre_enqueue import ERROR, GATED
from muster.scheduler.provisioning.asking import NO_MARKS, Asking
from muster.scheduler.report import Reporter
from muster.scheduler.words import Words

logger = logging.getLogger(__name__)


class Teller:
    """Turns verdicts and holds into conditions and events; by option `say_why_held` also what others leave unsaid."""

    def __init__(self, core: SchedulerCore, reporter: Reporter, clock: Clock, asking: Asking) -> None:
        self._core = core
        self._reporter = reporter
        self._clock = clock
        self._asking = asking
        self._says_why_held = core.options.say_why_held
        self._succeeded: dict[str, None] = {}
        """Groups that a placement was found for: what is left over of them is no reason to call them unscheduled."""
        self._held: dict[str, None] = {}
        self._held_pods: dict[str, None] = {}
        self._held_timer: asyncio.Task[None] | None = None

    def placing(self, group: str) -> None:
        """A placement was found for a group."""
        self._succeeded[group] = None

    def not_placed(self, group: str) -> None:
        """What was found for a group came to nothing, or the group is gone."""
        self._succeeded.pop(group, None)

    def whole(self, group: str) -> None:
        """A group is bound: say so of it and of the composite groups above it, as far as these are."""
        self._reporter.group(group, "True", "Scheduled", "")
        self._tell_composites(group, "")

    def verdict(self, verdict: Verdict) -> None:
        """Say why members got no node; those left over by a success are tried again at once and told then."""
        rejection, marks = verdict.rejection, self._asking.marks(verdict)
        if verdict.words is not None:
            self._tell_words(verdict, verdict.words, marks)
            return
        if rejection is None or verdict.placements:
            return
        self.pods(rejection, marks)
        if verdict.ask.ref is not None and verdict.ask.ref.key not in self._succeeded:
            hint = self._core.hint(verdict) if self._says_why_held else ""
            message = f"{rejection.message}; to run it: {hint}" if hint else rejection.message
            self._reporter.group(verdict.ask.ref.key, "False", rejection.reason, message)
            self._tell_composites(verdict.ask.ref.key, rejection.message)

    def _tell_words(self, verdict: Verdict, words: Words, marks: Mapping[str, str]) -> None:
        """Say what upstream says, at once; and log what it logs."""
        for each in words.pods:
            record = self._core.cache.pods.get(each.pod)
            if record is not None:
                self._reporter.pod(each.pod, each.reason, each.message, marks)
                self._reporter.failed(record, each.message)
        ref, group = verdict.ask.ref, words.group
        if ref is not None and (group.status == "True" or ref.key not in self._succeeded):
            self._reporter.group(ref.key, group.status, group.reason, group.message)
            self._tell_composites(ref.key, group.message)
        if words.trace is not None:
            logger.info("group cycle", extra={"root": words.root, "cycle": words.trace})

    def _tell_composites(self, group: str, message: str) -> None:
        """Say how the composite groups above a group stand. Real schedulers say nothing there."""
        for key in self._core.entities.composites_above(group) if self._says_why_held else ():
            if self._core.entities.is_composite_satisfied(key):
                self._reporter.composite(key, "True", "Scheduled", "")
            elif message:
                self._reporter.composite(key, "False", UNSCHEDULABLE, message)

    def pods(self, rejection: Rejection, marks: Mapping[str, str] = NO_MARKS) -> None:
        """Say why pods got no node; `marks` are the annotations that they have to have before."""
        for key in rejection.pods:
            record = self._core.cache.pods.get(key)
            if record is not None:
                self._reporter.pod(key, rejection.reason, rejection.message, marks)
                self._reporter.failed(record, rejection.message)

    def held(self, tasks: asyncio.TaskGroup | None, held: list[Held]) -> None:
        """Groups that fill up change their reason with each member: say it once it has stood for a moment."""
        self._asking.held(held)
        for each in held:
            if self._says_why_held or each.hold.reason == ERROR:
                self._held[each.ref.key] = None
        if self._says_why_held:
            self._held_pods |= self._core.gate.waiting_pods
        self._core.gate.waiting_pods.clear()
        if (self._held or self._held_pods) and self._held_timer is None and tasks is not None:
            self._held_timer = tasks.create_task(self._say_why_held())

    async def _say_why_held(self) -> None:
        await self._clock.sleep(self._core.options.say_why_held_after_s)
        self._held_timer = None
        groups, self._held = self._held, {}
        pods, self._held_pods = self._held_pods, {}
        for pod in pods:
            if problem := self._core.cache.claim_problems.get(pod):
                self._reporter.pod(pod, GATED, problem)
        for key in groups:
            hold = self._core.gate.hold_of(key)
            members = self._core.gate.waiting_members(key)
            if hold is not None and hold.reason == ERROR:
                self.pods(Rejection(tuple(record.key for record in members), ERROR, hold.message))
                self._reporter.group(key, "False", ERROR, hold.message)
            elif hold is not None and self._says_why_held:
                for record in members:
                    self._reporter.pod(record.key, hold.reason, hold.message)

    def appeared(self, group: str) -> None:
        """A PodGroup is there for whose members something else stood in: they may have been bound before."""
        ref = GroupRef(*group.split("/", 1))
        known = self._core.cache.pod_groups.get(group)
        if known is None or self._core.cache.stand_in(ref) is None or has_condition(known, INITIALLY_SCHEDULED):
            return
        if self._core.entities.is_satisfied(group):
            self.whole(group)

    def groups_that_are_whole(self) -> None:
        """After a restart: groups that were bound completely before their condition could be written."""
        cache = self._core.cache
        for key, group in sorted(cache.pod_groups.items()):
            if self._core.entities.is_satisfied(key) and not has_condition(group, INITIALLY_SCHEDULED):
                self.whole(key)
