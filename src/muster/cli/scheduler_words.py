"""How `muster scheduler --dry-run` says what it would have written: one line for each thing, on standard output."""

from __future__ import annotations

import sys
from typing import Literal

from muster.api.codec import dumps
from muster.scheduler.fence import Deed


def deed_line(deed: Deed, output: Literal["table", "json"]) -> str:
    """One line about a write that was not sent; "" for what only programs want to know."""
    if output == "json":
        return dumps({"action": deed.action, "object": deed.object, **deed.details}).decode()
    details = deed.details
    if deed.action == "bind":
        return f"would bind      {deed.object} to {details['node']}"
    if deed.action == "delete":
        return f"would delete    {deed.object}"
    if deed.action == "nominate":
        return f"would nominate  {deed.object} for {details['node'] or 'no node'}"
    if deed.action == "condition":
        said = f"{details['type']}={details['status']} {details['reason']}"
        message = " ".join(str(details["message"]).split())
        return f"would say       {deed.object}: {said}{f': {message}' if message else ''}"
    return ""


def say_deed(deed: Deed, output: Literal["table", "json"]) -> None:
    """Print it."""
    line = deed_line(deed, output)
    if line:
        print(line, file=sys.stdout, flush=True)
