"""From the results of a group cycle by upstream's rules to verdicts, and to what upstream says. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.api.groups import GroupRef
from muster.engine.model import Code
from muster.engine.preemption.model import Plan
from muster.engine.upstream.cycle import COMPOSITE, GROUP
from muster.engine.upstream.model import (
    UNSCHEDULABLE_GROUP,
    CompositeGroup,
    Group,
    PodGroup,
    PodResult,
    Release,
    Results,
    Trace,
    Word,
    leaves,
)
from muster.scheduler.changes import nodes_could_help, waits_for
from muster.scheduler.cycle import SCHEDULER_ERROR, UNSCHEDULABLE, Ask, Rejection, Verdict, claims_text
from muster.scheduler.waiting import ANY
from muster.scheduler.words import GroupWords, PodWords, Words

BY_GROUPS = "not eligible due to workload aware preemption enabled"
BY_PLACEMENTS = "not eligible due to placement-based pod group scheduling limitation"
WAITS_FOR_MORE = (
    f"{UNSCHEDULABLE_GROUP}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
SUCCESS_RESULT = "Successfully scheduled a pod group"
FAILURE_RESULT = "Unable to schedule a pod group"
WAITING_RESULT = "Pod group is waiting for preemption"
ERROR_RESULT = "Error scheduling pod group"


class Said(Struct, frozen=True):
    """A cycle that is over. `plan`: who goes for the root; `trace` None: it ended before it began."""

    release: Release
    root: Group
    results: Results
    plan: Plan | None
    trace: Trace | None


def whole_verdict(ask: Ask, groups: Sequence[Verdict]) -> Verdict:
    """The queue's answer: all groups together."""
    placements = tuple(placement for verdict in groups for placement in verdict.placements)
    left = [each.rejection for each in groups if each.rejection is not None]
    if not left:
        return Verdict(ask, placements)
    pods = tuple(pod for each in left for pod in each.pods)
    waiting = frozenset[str]().union(*(each.waits_for for each in left)) or frozenset({ANY})
    return Verdict(ask, placements, replace(left[0], pods=pods, signature=ask.signature, waits_for=waiting))


def group_verdicts(said: Said, ask: Ask, refs: Mapping[str, GroupRef]) -> tuple[Verdict, ...]:
    """A verdict for each group with pending members; the first carries the trace of the cycle."""
    asked = [leaf for leaf in leaves(said.root) if leaf.members]
    if said.trace is not None:
        said.trace.results.update((leaf.key, _result(said.results[leaf.key].word, said.plan)) for leaf in asked)
    found = [_verdict(said, replace(ask, ref=refs[leaf.key], tree=None, topology=None), leaf) for leaf in asked]
    if found and found[0].words is not None and said.trace is not None:
        kind = COMPOSITE if isinstance(said.root, CompositeGroup) else GROUP
        words = replace(found[0].words, trace=said.trace, root=f"{kind} {said.root.key}")
        found[0] = replace(found[0], words=words)
    return tuple(found)


def _verdict(said: Said, ask: Ask, leaf: PodGroup) -> Verdict:
    result = said.results[leaf.key]
    succeeded = result.word.is_success
    left = [pod for pod in result.pods if not (succeeded and pod.node)]
    reason = SCHEDULER_ERROR if result.word.code is Code.ERROR else UNSCHEDULABLE
    texts = tuple(PodWords(pod.member.key, reason, _pod_text(said, pod, result.word, leaf)) for pod in left)
    group = GroupWords("True", "Scheduled", "") if succeeded else GroupWords("False", reason, result.word.message)
    own = replace(ask, members=leaf.members, min_count=leaf.min_count, scheduled=len(leaf.scheduled))
    placements = result.placements if succeeded else ()
    return Verdict(own, placements, _rejection(left, reason, result.word), words=Words(texts, group))


def _pod_text(said: Said, pod: PodResult, group: Word, leaf: PodGroup) -> str:
    """Why a member stays pending, as its condition and event say it."""
    if group.code is Code.ERROR:
        return group.message
    if pod.diagnosis is not None:
        text = pod.diagnosis.text()
        if said.release == "1.37":
            return text
        return (
            f"{text} {claims_text(pod.member)}, preemption: {BY_GROUPS if leaf.topology_key is None else BY_PLACEMENTS}"
        )
    if pod.word is not None:  # not tried: what its group had to say before preemption (1.36: after)
        return pod.word.message if said.release == "1.37" else group.message
    if said.plan is not None:
        return group.message
    return WAITS_FOR_MORE if said.release == "1.36" else f"{UNSCHEDULABLE_GROUP}, {group.message}"


def _result(word: Word, plan: Plan | None) -> str:
    if word.code is Code.ERROR:
        return ERROR_RESULT
    if plan is not None:
        return WAITING_RESULT
    return SUCCESS_RESULT if word.is_success else FAILURE_RESULT


def _rejection(left: Sequence[PodResult], reason: str, word: Word) -> Rejection | None:
    if not left:
        return None
    plugins = frozenset[str]().union(*(pod.diagnosis.plugins for pod in left if pod.diagnosis is not None))
    pods = tuple(pod.member.key for pod in left)
    waiting = waits_for(plugins) if plugins else frozenset[str]()
    lacks_room = reason == UNSCHEDULABLE and nodes_could_help(plugins)
    return Rejection(pods, reason, word.message, waits_for=waiting, lacks_room=lacks_room)
