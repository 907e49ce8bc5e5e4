"""Who real servers took somebody for, and which configurations they took, comes out equal.

`GAPS` lists what does not: every difference must be one of these, so that nothing else breaks unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import kind_account_tokens
import kind_authn
import kind_authn_config
import pytest
from outcome import Kind, Outcome, is_accepted, load_accepted
from run import read_lines

from muster.api.codec import Object

DATA = Path(__file__).parent / "data"
GAPS: tuple[tuple[str, str, str], ...] = (
    ("size", "1.3 MB", "answered by the HTTP server, which is not part of the replay (see test_http_server)"),
    ("cel-library", "macros", "entries of maps have no order: a list made of them may have another one"),
)
"""Theme, part of the note, and what is missing."""


def lines_by_theme(file: str) -> list[tuple[str, list[Object]]]:
    """The lines of a recording, one list a theme."""
    found: dict[str, list[Object]] = {}
    for line in read_lines(DATA / file):
        found.setdefault(line["theme"], []).append(line)
    return list(found.items())


def unexpected(kind: Kind, lines: Sequence[Object]) -> list[Outcome]:
    """The differences that are no known gap."""
    rules = load_accepted(Path(__file__).parent / "accepted.yaml")
    outcomes = [outcome for outcome in kind.run(lines, None) if outcome.differences]
    return [
        outcome
        for outcome in outcomes
        if not is_accepted(outcome, rules)
        and not any(outcome.row == theme and part in outcome.unit for theme, part, _ in GAPS)
    ]


def cases(file: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("theme", "lines"), lines_by_theme(file), ids=lambda value: value if isinstance(value, str) else ""
    )


@cases("authn-1.36.jsonl.gz")
def test_tokens_make_the_recorded_users(theme: str, lines: list[Object]) -> None:
    assert unexpected(kind_authn.KIND, lines) == []


@cases("authn-config-1.36.jsonl.gz")
def test_configurations_are_judged_as_recorded(theme: str, lines: list[Object]) -> None:
    assert unexpected(kind_authn_config.KIND, lines) == []


def test_tokens_of_service_accounts_are_as_recorded() -> None:
    lines = read_lines(DATA / "sa-tokens-1.36.jsonl.gz")
    assert [outcome for outcome in kind_account_tokens.KIND.run(lines, None) if outcome.differences] == []
