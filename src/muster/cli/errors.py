"""What a command raises when it cannot do what was asked; `main.run` turns it into one line and an exit code.

CommandError
├── BadInput     a file, option or value is unusable: exit 2
└── CheckFailed  the work was done, but a check that was asked for failed: exit 1
"""

from __future__ import annotations


class CommandError(Exception):
    """One clear line for a person, and one for each of the `details`. Not retryable without changing the input."""

    exit_code = 1

    def __init__(self, message: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class BadInput(CommandError):
    """The input or the usage is wrong; the message names the file or option and the place in it."""

    exit_code = 2


class CheckFailed(CommandError):
    """A check that the caller asked for did not hold (`--fail-unschedulable`)."""
