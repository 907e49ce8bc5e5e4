"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# An example takes as long as the machine lets it: no test is about time.
settings.register_profile("muster", deadline=None)
settings.load_profile("muster")
