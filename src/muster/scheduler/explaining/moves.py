"""The moves of running pods and groups with which a group would run, as a change among the others."""

from __future__ import annotations

from muster.api.codec import Objects
from muster.engine.defragment import Move, Moves
from muster.scheduler.core import SchedulerCore
from muster.scheduler.cycle import Ask
from muster.scheduler.entities import GROUP

_NAMED = 4


def moves_change(core: SchedulerCore, ask: Ask, now_s: float) -> Objects:
    """The fewest moves that were found, if any were: whoever moves fits where it is said, with the group in place."""
    if ask.ref is None and ask.tree is None:
        return []
    found = core.preemptions.moves(core.post_filter.question(ask, ask.members), now_s)
    if found is None:
        return []
    moves = [{"pod": each.pod, "from": each.from_node, "to": each.to_node} for each in found.moves]
    groups = [unit.key.removeprefix(GROUP) for unit in found.units if unit.is_group]
    fields = {"verified": True, "minimal": found.fewest, "moves": moves, "groups": groups}
    return [{"kind": "movePods", "text": _text(found, groups), **fields}]


def _text(found: Moves, groups: list[str]) -> str:
    number = len(found.moves)
    text = f"move {number} pod{'s' if number > 1 else ''}: {', '.join(map(_move_text, found.moves[:_NAMED]))}"
    text += f" and {number - _NAMED} more" if number > _NAMED else ""
    return f"{text}; {', '.join(groups)} as a whole" if groups else text


def _move_text(move: Move) -> str:
    return f"{move.pod.removeprefix('default/')} from {move.from_node} to {move.to_node}"
