"""What changed in a value, as messages of upstream print it (`pkg/util/diff`): a unified diff of indented JSON."""

from __future__ import annotations

import difflib
import json

from muster.api.codec import JSON


def go_diff(old: JSON, new: JSON) -> str:
    """The lines that differ, with three lines around them; empty if nothing does."""
    lines, others = (json.dumps(value, indent=1, ensure_ascii=False).splitlines() for value in (old, new))
    return "".join(f"{line}\n" for line in list(difflib.unified_diff(lines, others, lineterm=""))[2:])
