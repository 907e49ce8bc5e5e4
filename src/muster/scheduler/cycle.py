"""From ready entities to requests to the engine, and from its decisions to verdicts. Pure.

Plain pods that are next to each other in queue order, of one shape and one priority, are decided in one pass of the
engine (opportunistic batching): a request of many members with min_count 1 places the first k of them that fit exactly
as one request each would.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.api.groups import GroupRef
from muster.engine.model import Decision, Diagnosis, GroupRequest, Member, Placed, Placement, Undecided
from muster.engine.preemption.model import Plan
from muster.engine.shape import Shape
from muster.scheduler.changes import nodes_could_help, waits_for
from muster.scheduler.domains import OneDomain
from muster.scheduler.preemption.planning import Victim
from muster.scheduler.tree import Branch, Leaf, TreeDecision, leaves_of
from muster.scheduler.waiting import ANY
from muster.scheduler.words import Words

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


class Signature(Struct, frozen=True):
    """What an entity asks, whoever it is: entities with one signature fit or do not fit together.

    `members` are the shapes with their counts in the order of first appearance; `need` of them must be placed at least.
    `profile`: the number of the profile by whose rules they are placed. `structure`: what a tree of groups asks,
    or the topology domain that a group is bound to.
    `priority` decides what room is kept from them; `keeper`: the entity, if room is kept for it.
    """

    members: tuple[tuple[Shape, int], ...]
    need: int
    profile: int = 0
    structure: Hashable = None
    priority: int = 0
    keeper: str = ""

    @property
    def is_one_pod(self) -> bool:
        """Whether one more place for the shape is all that it takes."""
        return len(self.members) == 1 and self.members[0][1] == 1


class Ask(Struct, frozen=True):
    """A ready entity: a plain pod (`ref` None, one member) or the pending members of a group.

    `profile`: the number of the profile by whose rules it is placed. `tree`: for a tree of groups, what it is made of;
    `members` are then those of all groups. `has_room_kept`: by a preemption. `topology`: for a group that must be in
    one topology domain.
    """

    entity: str
    priority: int
    members: tuple[Member, ...]
    ref: GroupRef | None = None
    min_count: int = 1
    scheduled: int = 0
    profile: int = 0
    tree: Branch | None = None
    has_room_kept: bool = False
    topology: OneDomain | None = None

    @property
    def looks_at_others(self) -> bool:
        """Whether where other groups run is a part of the question."""
        layout = None if self.topology is None else self.topology.layout
        return layout is not None and layout.terms.spread_over is not None

    @property
    def signature(self) -> Signature:
        counts: dict[Shape, int] = {}
        for member in self.members:
            counts[member.shape] = counts.get(member.shape, 0) + 1
        structure: Hashable = self.topology if self.tree is None else self.tree.question
        need, keeper = max(1, self.min_count - self.scheduled), self.entity if self.has_room_kept else ""
        return Signature(tuple(counts.items()), need, self.profile, structure, self.priority, keeper)


class Rejection(Struct, frozen=True):
    """Members that got no node in this attempt, why, and what they wait for.

    `lacks_room`: it is proved that they do not fit, and more nodes could help.
    """

    pods: tuple[str, ...]
    reason: str
    message: str
    signature: Signature | None = None
    waits_for: frozenset[str] = frozenset()
    lacks_room: bool = False


class Verdict(Struct, frozen=True):
    """What an attempt gave for one entity. A group may have both placements and a rejection of the others.

    `plan`: what is to be evicted for it, `victims` the pods. `words`: what is said about it, where upstream's rules are
    followed to the word.
    """

    ask: Ask
    placements: tuple[Placement, ...] = ()
    rejection: Rejection | None = None
    plan: Plan | None = None
    victims: tuple[Victim, ...] = ()
    words: Words | None = None


def runs(asks: Iterable[Ask]) -> list[list[Ask]]:
    """The asks in order, with neighbours that can be decided in one pass put together."""
    result: list[list[Ask]] = []
    for ask in asks:
        if result and _joins(result[-1][0], ask):
            result[-1].append(ask)
        else:
            result.append([ask])
    return result


def segments(asks: Iterable[Ask]) -> list[list[Ask]]:
    """The asks in order, with neighbouring plain pods of one priority put together; others stand alone."""
    result: list[list[Ask]] = []
    for ask in asks:
        if result and _is_plain(result[-1][0]) and _is_plain(ask) and result[-1][0].priority == ask.priority:
            result[-1].append(ask)
        else:
            result.append([ask])
    return result


def by_shape(segment: Iterable[Ask]) -> list[list[Ask]]:
    """The plain pods of a segment with those that can be decided in one pass put together, in order of the first."""
    found: dict[Signature, list[Ask]] = {}
    for ask in segment:
        found.setdefault(ask.signature, []).append(ask)
    return list(found.values())


def _is_plain(ask: Ask) -> bool:
    return ask.ref is None and ask.tree is None and not ask.has_room_kept


def request_of(run: Sequence[Ask]) -> GroupRequest:
    """The question to the engine that stands for a run. Raises DomainError for a group that runs in no one domain."""
    first = run[0]
    if len(run) > 1:
        return GroupRequest(first.entity, tuple(ask.members[0] for ask in run), min_count=1, one_by_one=True)
    request = GroupRequest(first.entity, first.members, first.min_count, first.scheduled)
    return request if first.topology is None else first.topology.bind(request)


def verdicts(run: Sequence[Ask], decision: Decision) -> list[Verdict]:
    """What the engine's answer means for each entity of a run."""
    if len(run) == 1:
        return [_verdict(run[0], decision)]
    if not isinstance(decision, Placed):
        return [_verdict(ask, decision) for ask in run]
    placed = {placement.pod: placement for placement in decision.placements}
    result = []
    for ask in run:
        placement = placed.get(ask.members[0].key)
        if placement is not None:
            result.append(Verdict(ask, (placement,)))
        else:
            result.append(Verdict(ask, (), _rejection(ask, _keys(ask), _fit_error(decision.diagnosis), decision)))
    return result


def tree_verdicts(ask: Ask, tree: Branch, decision: TreeDecision) -> list[Verdict]:
    """What a decision about a tree means for each of its groups that has pending members."""
    result = []
    for leaf in leaves_of(tree):
        if leaf.members:
            each = Ask(
                ask.entity, ask.priority, leaf.members, leaf.ref, leaf.min_count, leaf.scheduled, profile=ask.profile
            )
            result.append(_leaf_verdict(each, leaf, tree, decision))
    return result


def tree_rejection(ask: Ask, found: Sequence[Verdict]) -> Rejection | None:
    """Why members of a tree got no node, all groups together; None if all members have one."""
    rejections = [verdict.rejection for verdict in found if verdict.rejection is not None]
    if not rejections:
        return None
    pods = tuple(pod for each in rejections for pod in each.pods)
    waiting = frozenset[str]().union(*(each.waits_for for each in rejections))
    return Rejection(pods, UNSCHEDULABLE, rejections[0].message, ask.signature, waiting)


def _leaf_verdict(ask: Ask, leaf: Leaf, tree: Branch, decision: TreeDecision) -> Verdict:
    outcome, dropped = decision.outcomes[leaf.ref.key], decision.dropped.get(leaf.ref.key)
    if decision.succeeded and dropped is None:
        return _verdict(ask, outcome)
    if not decision.succeeded:
        verdict = "unschedulable" if decision.proved else "undecided"
        why = f"composite pod group {tree.key} is {verdict}: {decision.reason}"
    else:
        why = f"too few of the groups of composite pod group {dropped} fit"
    if isinstance(outcome, Placed):
        # What it waits for is what keeps the others away: their verdicts say it.
        return Verdict(ask, (), Rejection(_keys(ask), UNSCHEDULABLE, why))
    return Verdict(ask, (), _rejection(ask, _keys(ask), f"{_message(ask, outcome)}; {why}", outcome))


def refusal(decision: Decision) -> Decision:
    """The answer for whoever asks the same after this run, the last of which got nothing."""
    return Placed((), (), decision.diagnosis) if isinstance(decision, Placed) else decision


def is_final(verdict: Verdict) -> bool:
    """Whether the same question has the same answer, no, until an event gives a node more room."""
    rejection = verdict.rejection
    return (
        rejection is not None
        and not verdict.placements
        and bool(rejection.waits_for)
        and ANY not in rejection.waits_for
    )


def failure(ask: Ask, error: str) -> Verdict:
    """The attempt ended in an internal error: nothing is known about any member."""
    return Verdict(ask, (), Rejection(_keys(ask), SCHEDULER_ERROR, error))


def apart_in_domains(ask: Ask, error: str) -> Verdict:
    """The members that run are in no one domain, as they must be: an error until something in the cluster changes."""
    return Verdict(ask, (), Rejection(_keys(ask), SCHEDULER_ERROR, error, ask.signature, frozenset({ANY})))


def _joins(first: Ask, ask: Ask) -> bool:
    plain = first.ref is None and ask.ref is None and first.tree is None and ask.tree is None
    plain = plain and not first.has_room_kept and not ask.has_room_kept
    alike = first.priority == ask.priority and first.profile == ask.profile
    # A volume that they have in common ties all to the node of the first: together they would look for another.
    plain = plain and not first.members[0].shape.usage.volumes
    # So do claims that several pods use; those of one pod alone are not named.
    devices = first.members[0].shape.usage.devices
    plain = plain and (devices is None or not any(each.key for each in devices.claims))
    return plain and alike and first.members[0].shape == ask.members[0].shape


def _keys(ask: Ask) -> tuple[str, ...]:
    return tuple(member.key for member in ask.members)


def _verdict(ask: Ask, decision: Decision) -> Verdict:
    if isinstance(decision, Placed):
        if not decision.placements:
            return Verdict(ask, (), _rejection(ask, _keys(ask), _message(ask, decision), decision))
        if not decision.unplaced:
            return Verdict(ask, decision.placements)
        rest = _rejection(ask, decision.unplaced, _message(ask, decision), decision)
        return Verdict(ask, decision.placements, rest)
    return Verdict(ask, (), _rejection(ask, _keys(ask), _message(ask, decision), decision))


def _rejection(ask: Ask, pods: tuple[str, ...], message: str, decision: Decision) -> Rejection:
    diagnosis = decision.diagnosis
    plugins = frozenset[str]() if diagnosis is None else diagnosis.plugins
    lacks_room = not isinstance(decision, Undecided) and nodes_could_help(plugins)
    return Rejection(pods, UNSCHEDULABLE, message, ask.signature, waits_for(plugins), lacks_room)


def _message(ask: Ask, decision: Decision) -> str:
    """The fit error, and for a group what that means for it."""
    fit_error = _fit_error(decision.diagnosis)
    if ask.ref is None:
        return fit_error
    return f"{fit_error} {_group_message(ask, decision)}".strip()


def _group_message(ask: Ask, decision: Decision) -> str:
    if isinstance(decision, Placed):
        return ""
    why = decision.reason if isinstance(decision, Undecided) else decision.proof
    verdict = "undecided" if isinstance(decision, Undecided) else "unschedulable"
    return f"pod group {ask.ref.key if ask.ref else ask.entity} is {verdict}: {why}"


def _fit_error(diagnosis: Diagnosis | None) -> str:
    return "" if diagnosis is None else diagnosis.text()


def with_preemption_text(ask: Ask, rejection: Rejection, why: str) -> Rejection:
    """The rejection that also says why nobody is evicted, in upstream's words (those of 1.37 for groups)."""
    is_pod = ask.ref is None and ask.tree is None
    link = f" {claims_text(ask.members[0])}, preemption:" if is_pod else ", pod group preemption:"
    return replace(rejection, message=f"{rejection.message}{link} {why}")


def claims_text(member: Member) -> str:
    """What upstream's PostFilter for devices says: it would take devices from claims that nobody uses."""
    devices = member.shape.usage.devices
    return "no new claims to deallocate" if devices is None or not devices.claims else "still not schedulable"


def with_victims_text(rejection: Rejection, plan: Plan) -> Rejection:
    """The rejection of a pod that also says who goes for it, in the words of 1.37."""
    node, number = plan.placements[0].node, len(plan.evicted)
    found = f"preemption: found a potential placement for pod on node {node}, preempting {number} victims"
    return replace(rejection, message=f"{rejection.message} {found}")
