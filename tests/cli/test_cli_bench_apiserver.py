"""The bench of the API server, with small numbers."""

from __future__ import annotations

import pytest

from muster.cli.bench import apiserver


def test_a_row_has_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"REQUESTS": 20, "LISTED": 40, "LISTS": 1, "WATCHERS": 3, "EVENTS": 30}.items():
        monkeypatch.setattr(apiserver, name, value)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    (row,) = apiserver.run(lambda text: None)
    rates = [row[name] for name in ("post", "get", "patch", "bind", "watch_events")]
    assert row["server"] == "muster"
    assert all(rate > 0 for rate in rates)
