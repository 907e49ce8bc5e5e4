"""Command lines that are typed in wrongly: one line says what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.codec import loads
from muster.cli.main import COMMANDS, Command, main

GANG = str(Path(__file__).parents[2] / "examples" / "gang-pods.yaml")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["simulat"], "there is no command 'simulat', did you mean 'simulate'?"),
        (["simulate", GANG], f"files are given with -f: muster simulate -f {GANG}"),
        (["check", GANG], f"files are given with -f: muster check -f {GANG}"),
        (["explain", "podgroup/trio", GANG], f"{GANG!r} is a file: files are given with -f"),
        (["simulate"], "--file needs a value"),
        (["simulate", "-f"], "-f needs a value"),
        (["simulate", "-f", GANG, "--at"], "--at needs a value"),
        (["simulate", "-f", GANG, "--nodes"], "--nodes needs a value"),
        (["check", "-f", GANG, "--release"], "--release needs a value"),
        (["simulate", "-f", GANG, "--write"], "--write needs a value"),
        (["simulate", "-f", GANG, "--node", "3"], "Unknown option: --node. Did you mean --nodes?"),
        (["simulate", "-f", GANG, "-o", "xml"], 'Invalid value "xml" for -o. Choose from: "table", "json", "yaml".'),
        (["simulate", "-f", GANG, "--seed", "x"], 'unable to convert "x" into int'),
        (["simulate", "-f", GANG, "--without", "schedular"], "did you mean scheduler?"),
        (["simulate", "-f", GANG, "--until", "soon"], "'soon' is not a duration such as 30s, 1h30m or 250ms"),
        (["explain", "-f", GANG, "deployment/x"], "'deployment/x': must be one of pod/NAME, podgroup/NAME"),
        (["explain", "-f", GANG, "trio"], "'trio': must be one of pod/NAME, podgroup/NAME"),
        (["explain", "-f", GANG, "podgroup/tiro"], "there is no PodGroup 'tiro' in namespace 'default'"),
        (["convert", "-f", GANG, "--to", ""], "--to '': must be one of"),
        (["up", "--port", "99999"], "--port 99999: must be a number from 0 to 65535"),
    ],
    ids=lambda value: " ".join(each.rpartition("/")[2] for each in value) if isinstance(value, list) else "",
)
def test_usage_errors_say_what_would_be_right(
    arguments: list[str], want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("muster: ")
    assert captured.err.count("\n") == 1
    assert want in captured.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_is_reached_in_either_way_and_says_what_a_command_does(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    name = command.name
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == shown
    about = shown.split("\n\n")[1]
    assert about.strip().endswith((".", "?"))


def test_explain_takes_nodes_besides_files(capsys: pytest.CaptureFixture[str]) -> None:
    states = {}
    for nodes in ("count=2,cpu=4", "count=3,cpu=4,memory=16Gi"):
        assert main(["explain", "-f", GANG, "--nodes", nodes, "-o", "json"]) == 0
        (found,) = loads(capsys.readouterr().out)["explanations"]
        states[nodes] = found["state"]
    assert list(states.values()) == ["Infeasible", "WouldBePlaced"]
