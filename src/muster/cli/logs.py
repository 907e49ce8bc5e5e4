"""Where log records go: one line each on standard error, with the fields that came along."""

from __future__ import annotations

import logging
import os
import sys
from typing import Literal

from muster.api.codec import dumps
from muster.cli.errors import BadInput
from muster.clock import rfc3339_micro

LEVEL_VARIABLE = "MUSTER_LOG"
_OWN_FIELDS = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """`WARNING muster.client.informer: list or watch failed resource=pods error=…`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{key}={value}" for key, value in vars(record).items() if key not in _OWN_FIELDS]
        line = " ".join([f"{record.levelname} {record.name}: {record.getMessage()}", *fields])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …}` and the fields that came along."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}
        line = {
            "time": rfc3339_micro(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value if isinstance(value, int | float) else str(value) for key, value in fields.items()},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line).decode()


def configure_logging(format_: Literal["text", "json"] = "text", level: str = "") -> None:
    """Send records of a level (default: the one in `MUSTER_LOG`, else WARNING) and above to standard error.

    Raises `BadInput`.
    """
    said = f"--log-level {level}" if level else f"{LEVEL_VARIABLE}={os.environ.get(LEVEL_VARIABLE, '')}"
    level = (level or os.environ.get(LEVEL_VARIABLE, "WARNING")).upper()
    if level not in logging.getLevelNamesMapping():
        raise BadInput(f"{said}: must be DEBUG, INFO, WARNING or ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
