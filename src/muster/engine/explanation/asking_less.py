"""What-if: smaller requests, a smaller minCount or minGroupCount, another topology key or none."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.quantity import format_units
from muster.engine.explanation.question import Question, Quota, change, largest
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domains_of
from muster.engine.words import amount_of, groups, insufficient, pods, shape_text

_MOST_KEYS = 16


def lowered_requests(question: Question) -> list[Object]:
    """The largest smaller request of one resource in one shape with which the group fits.

    Of the blocked shape, what the diagnosis names; of others, all that they request.
    """
    named, found = insufficient(question.diagnosis.reasons), []
    for shape in question.shapes:
        requested = [name for name, _ in shape.usage.requests]
        for resource in [each for each in named if each in requested] if shape == question.blocked else requested:
            found += _lowered_request(question, shape, resource)
    return found


def _lowered_request(question: Question, shape: Shape, resource: str) -> list[Object]:
    """In steps of a sensible size, down to one step."""
    step, asked = _step(resource), shape.request(resource)

    def fits(steps: int) -> bool | None:
        return question.fits(target=question.with_shape(shape, shape.with_request(resource, steps * step)))

    above = -(-asked // step)
    steps = largest(fits, 1, above)
    if steps is None:
        return []
    minimal = question.proved if (steps + 1) * step >= asked else fits(steps + 1) is False
    several = sum(member.shape == shape for member in question.target.members)
    text = f"ask for {amount_of(resource, steps * step)} instead of {format_units(resource, asked)}"
    if len(question.shapes) > 1:
        text += f" in the {pods(several)} of {shape_text(shape)}"
    elif several > 1:
        text += " in each pod"
    amounts = {"from": format_units(resource, asked), "to": format_units(resource, steps * step)}
    return [change("lowerRequest", text, minimal, shape=shape_text(shape), resource=resource, **amounts)]


def _step(resource: str) -> int:
    """Memory-like resources change by Mi, cpu by millicores, others by one."""
    binary = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    return 2**20 if binary else 1


def lowered_quotas(question: Question) -> list[Object]:
    """The largest smaller minCount, or minGroupCount, with which it would run now."""
    return [each for quota in question.target.quotas() for each in _lowered_quota(question, quota)]


def _lowered_quota(question: Question, quota: Quota) -> list[Object]:
    def fits(value: int) -> bool | None:
        return question.fits(target=quota.lowered(value))

    to = largest(fits, quota.least, quota.value)
    if to is None:
        return []
    minimal = question.proved if to + 1 == quota.value else fits(to + 1) is False
    whose = f" of {quota.owner}" if quota.owner else ""
    counted = groups(to) if quota.name == "minGroupCount" else pods(to)
    text = f"set {quota.name}{whose} to {to}, so that {counted} {'is' if to == 1 else 'are'} enough"
    named = {"group": quota.owner, "field": quota.name} if quota.owner else {}
    return [change("lowerMinCount", text, minimal, to=to, **named)]


def changed_topology(question: Question) -> list[Object]:
    """Another key whose domains are larger, the one with the most domains first; else one constraint less."""
    key = question.target.topology_key
    for other in [] if key is None else _other_keys(question.snapshot, key):
        target = question.target.other_domain(other)
        if target is not None and question.fits(target=target):
            text = f"ask for one domain of {other} instead of {key}"
            return [change("changeTopology", text, question.proved, key=key, to=other)]
    for name, to, target in question.target.relaxed():
        if question.fits(target=target):
            return [change("changeTopology", f"drop the topology constraint {name}", False, key=name, to=to)]
    return []


def _other_keys(snapshot: Snapshot, key: str) -> list[str]:
    """Labels that name a topology, with fewer domains than nodes, those with the most domains first."""
    table = snapshot.table
    known = {name for record in table.records for name in record.labels if "topology" in name and name != key}
    domains = {name: len(domains_of(table, name).values) for name in sorted(known)}
    useful = [name for name, number in domains.items() if 0 < number < len(table)]
    return sorted(useful, key=lambda name: (-domains[name], name))[:_MOST_KEYS]
