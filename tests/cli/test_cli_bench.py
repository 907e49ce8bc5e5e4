"""`muster bench`: rows of figures and the setting they were taken in."""

from __future__ import annotations

import pytest

from muster.api.codec import Objects, loads
from muster.cli.bench import command
from muster.cli.main import main


class Fixed:
    """A bench that takes no time."""

    def run(self, progress: object) -> Objects:
        return [{"pods": 8, "ms": 0.25}, {"pods": 64, "ms": None}]


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_load", lambda name: Fixed())


def test_json_has_the_rows_and_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gangs", "-o", "json"]) == 0
    value = loads(capsys.readouterr().out)
    assert [(bench["name"], bench["rows"][0]) for bench in value["benches"]] == [("gangs", {"pods": 8, "ms": 0.25})]
    assert {"python", "cpus", "load_1min", "muster"} <= value["setting"].keys()


def test_table_has_a_column_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gangs", "startup"]) == 0
    out = capsys.readouterr().out
    assert "pods    ms" in out
    assert "startup: `muster up`: start to ready" in out
    assert "Taken with muster" in out


def test_everything_is_measured_if_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "-o", "json"]) == 0
    assert [bench["name"] for bench in loads(capsys.readouterr().out)["benches"]] == list(command.BENCHES)
