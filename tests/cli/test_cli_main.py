"""The entry: help and version at once, one line and exit code 2 for wrong usage."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import muster
from muster.cli.durations import format_duration, parse_duration
from muster.cli.main import COMMANDS, main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command.name in out for command in COMMANDS)


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"muster {muster.__version__}\n"


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"muster {command}" in out
    assert not re.search(r"""\[default: (""|''|\[\]|\(\)|None|)\]""", out)  # nothing is no default for people


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["simulat"], "did you mean 'simulate'"),
        (["nonsense"], "there is no command 'nonsense'"),
        (["simulate", "-f", "x.yaml", "--nonsense"], "--nonsense"),
        (["simulate"], "--file"),
        (["simulate", "-f", "x.yaml", "--output", "xml"], "xml"),
        (["up", "--port", "many"], "many"),
        (["bench", "nonsense"], "there is no bench 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("muster: ")
    assert captured.err.count("\n") == 1
    assert want in captured.err


def test_importing_the_entry_imports_nothing_heavy() -> None:
    code = (
        "import sys, muster.cli.main; print([m for m in ('numpy', 'cyclopts', 'rich', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "want_s"),
    [("30s", 30), ("24h", 86400), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172800), ("90", 90), ("0.5", 0.5)],
)
def test_durations_are_read_as_people_write_them(text: str, want_s: float) -> None:
    assert parse_duration(text) == want_s


@pytest.mark.parametrize("text", ["", "s", "5x", "1h 30m", "-5s", "five"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0 s"), (0.254, "0.25 s"), (90.4, "90 s"), (600, "10 min"), (605, "10 min 5 s"), (7500, "2 h 5 min")],
)
def test_durations_are_written_for_people(seconds: float, want: str) -> None:
    assert format_duration(seconds) == want
