"""What a replay of a recording says: units, their differences, and the rules by which some are accepted."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from muster.api.codec import JSON, Object


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as recorded; `path` begins with the step, as in `step 2: Job[j].status.active`."""

    path: str
    want: JSON
    got: JSON


@dataclass(frozen=True, slots=True)
class Outcome:
    """One compared unit: a scenario, a case or an exchange. `row`: the family, feature or scenario it is counted in."""

    unit: str
    row: str
    differences: tuple[Difference, ...] = ()
    facts: Object = field(default_factory=dict)
    """What rules of accepted differences may ask for, such as parameters of the scenario."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of recording. `recognises` looks at the first line, `run(lines, seed)` replays all of them.

    `completes` adds to each line what only the whole file tells, before some of the lines are chosen.
    """

    name: str
    recognises: Callable[[Object], bool]
    row: Callable[[Object], str]
    run: Callable[[Sequence[Object], int | None], Iterable[Outcome]]
    completes: Callable[[Sequence[Object]], Sequence[Object]] = lambda lines: lines


@dataclass(frozen=True, slots=True)
class Accepted:
    """A rule: differences of `rows` whose path matches one of `paths` are accepted where all of `where` holds.

    `where` maps a dotted path in the unit's facts to a least value.
    """

    rows: tuple[str, ...]
    paths: tuple[str, ...]
    where: tuple[tuple[str, float], ...]
    reason: str

    def covers(self, outcome: Outcome, difference: Difference) -> bool:
        return (
            any(fnmatch.fnmatchcase(outcome.row, row) for row in self.rows)
            and any(fnmatch.fnmatchcase(difference.path, path) for path in self.paths)
            and all(float(outcome.facts.get(name, "-inf")) >= least for name, least in self.where)
        )


def load_accepted(path: Path) -> list[Accepted]:
    """The rules of a file."""
    rules = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    return [
        Accepted(tuple(rule["rows"]), tuple(rule["paths"]), tuple(rule.get("where", {}).items()), rule["reason"])
        for rule in rules
    ]


def is_accepted(outcome: Outcome, rules: Sequence[Accepted]) -> bool:
    """Whether rules cover all differences of a unit (which has some)."""
    return all(any(rule.covers(outcome, difference) for rule in rules) for difference in outcome.differences)
