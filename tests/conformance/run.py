"""Replay recordings of real components against ours: `python tests/conformance/run.py FILE… [--family NAME,…]`.

Exit code 0: all equal or accepted; 1: some differ; 2: it could not run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import kind_account_tokens
import kind_api
import kind_authn
import kind_authn_config
import kind_controllers
import kind_decisions
import kind_device_groups
import kind_devices
import kind_groups
import kind_preemption
import kind_rbac
from outcome import Accepted, Kind, Outcome, is_accepted, load_accepted

from muster.api.codec import Object, loads

HERE = Path(__file__).parent
KINDS: tuple[Kind, ...] = (
    kind_api.KIND,
    kind_controllers.KIND,
    kind_devices.KIND,
    kind_device_groups.KIND,
    kind_decisions.KIND,
    kind_groups.KIND,
    kind_preemption.KIND,
    kind_account_tokens.KIND,
    kind_authn.KIND,
    kind_authn_config.KIND,
    kind_rbac.KIND,
    kind_rbac.BOOTSTRAP,
)


class Unusable(Exception):
    """A file cannot be replayed; the message says why."""


def read_lines(path: Path) -> list[Object]:
    """The lines of a recording, gzipped or not, or its only object."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        lines = [line for line in text.splitlines() if line.strip()]
        if lines and lines[0].strip() == b"{":
            return [loads(text)]  # one object over many lines
        return [loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from error


def kind_of(path: Path, lines: Sequence[Object]) -> Kind:
    """The kind of a recording, by its first line."""
    for kind in KINDS:
        if lines and kind.recognises(lines[0]):
            return kind
    raise Unusable(f"{path}: not a recording of a known kind")


def replay(path: Path, rows: frozenset[str], seed: int | None, only: str = "") -> list[Outcome]:
    """Replay one file; `rows`: the families to take (empty: all), `only`: a part of the unit's id."""
    lines = read_lines(path)
    kind = kind_of(path, lines)
    lines = list(kind.completes(lines))
    chosen = [line for line in lines if (not rows or kind.row(line) in rows) and only in str(line.get("id", ""))]
    return list(kind.run(chosen, seed))


def report(outcomes: Sequence[Outcome], rules: Sequence[Accepted], show: int) -> bool:
    """Print a row a family and the sum; whether nothing differs that is not accepted."""
    equal = accepted = 0
    rows: dict[str, list[int]] = {}
    for outcome in outcomes:
        row = rows.setdefault(outcome.row, [0, 0, 0])
        row[0] += 1
        if not outcome.differences:
            equal += 1
            row[1] += 1
        elif is_accepted(outcome, rules):
            accepted += 1
            row[2] += 1
        elif show > 0:
            show -= 1
            _show(outcome)
    width = max((len(name) for name in rows), default=0)
    for name, (units, same, excused) in rows.items():
        print(f"{name:<{width}}  {same} of {units}" + (f", accepted {excused}" if excused else ""))
    print(f"equal {equal} of {len(outcomes)}" + (f", accepted {accepted}" if accepted else ""))
    return equal + accepted == len(outcomes)


def _show(outcome: Outcome) -> None:
    print(f"--- {outcome.unit}")
    for difference in outcome.differences:
        print(f"  {difference.path}")
        print(f"    recorded: {json.dumps(difference.want, sort_keys=True)}")
        print(f"    ours:     {json.dumps(difference.got, sort_keys=True)}")


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--family", default="", help="only these families, features or scenarios, by commas")
    parser.add_argument("--only", default="", help="only units whose id contains this")
    parser.add_argument("--vary", type=int, metavar="SEED", help="rename objects, consistently on both sides")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the differences of N units")
    options = parser.parse_args(arguments)
    rows = frozenset(filter(None, options.family.split(",")))
    try:
        rules = load_accepted(HERE / "accepted.yaml")
        outcomes = [outcome for path in options.files for outcome in replay(path, rows, options.vary, options.only)]
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    if not outcomes:
        print("nothing to replay: no such family", file=sys.stderr)
        return 2
    return 0 if report(outcomes, rules, options.show) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
