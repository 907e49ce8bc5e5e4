"""Where log records go: one line each on standard error, with the fields that came along."""

from __future__ import annotations

import logging
import os
import sys

from muster.cli.errors import BadInput

LEVEL_VARIABLE = "MUSTER_LOG"
_OWN_FIELDS = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """`WARNING muster.client.informer: list or watch failed resource=pods error=…`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{key}={value}" for key, value in vars(record).items() if key not in _OWN_FIELDS]
        line = " ".join([f"{record.levelname} {record.name}: {record.getMessage()}", *fields])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging() -> None:
    """Send records of the level in `MUSTER_LOG` (default: WARNING) and above to standard error. Raises `BadInput`."""
    level = os.environ.get(LEVEL_VARIABLE, "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        raise BadInput(f"{LEVEL_VARIABLE}={level}: must be DEBUG, INFO, WARNING or ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
