"""What holds for all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# An example takes as long as the machine lets it: no test is about time.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands set logging up for their process: no test goes on writing to the standard error of another one."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
