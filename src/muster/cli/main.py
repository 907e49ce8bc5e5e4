"""Entry of the `muster` command: finds the command, and turns every failure into one line and an exit code.

Exit codes: 0 done, 1 a check failed (or an internal error), 2 bad input or usage. With `MUSTER_DEBUG=1` in the
environment, failures keep their traceback. Nothing heavy is imported before a command needs it, so that
`muster --help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import muster
from muster.cli.errors import BadInput, CommandError

if TYPE_CHECKING:
    from cyclopts import App


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, where its function lives (`module:function`), and one line about it."""

    name: str
    target: str
    summary: str


COMMANDS = (
    Command("demo", "muster.cli.demo:demo", "The main job in ten seconds: pods that deadlock, and gangs that do not"),
    Command("up", "muster.cli.up:up", "Start an embedded cluster that kubectl can use"),
    Command("simulate", "muster.cli.simulate:simulate", "Run manifests on a cluster in virtual time and report"),
    Command("explain", "muster.cli.explain:explain", "Why a group waits, who holds the room, and what would help"),
    Command("check", "muster.cli.check:check", "What each release of Kubernetes makes of manifests, Jobs and groups"),
    Command("snapshot", "muster.cli.snapshot:snapshot", "What the scheduler reads of a live cluster, in one file"),
    Command(
        "convert",
        "muster.cli.convert:convert_manifests",
        "Manifests about groups into another version or scheduler's words",
    ),
    Command("scheduler", "muster.cli.scheduler:scheduler", "Schedule pods and gangs on any real cluster"),
    Command("install", "muster.cli.install:install", "Put the scheduler into a cluster, and groups where it has none"),
    Command("migrate", "muster.cli.migrate:migrate", "Take groups across an upgrade that drops their version"),
    Command("bench", "muster.cli.bench.command:bench", "Measure this machine: decisions, start, throughput, memory"),
)


PATHS = ("-f", "--file", "--write", "--report", "--config", "--kubeconfig", "--data", "--write-kubeconfig")
"""Options with the name of a file or directory, of which an empty one would mean the current directory."""
HELP_WIDTH = 100
"""Columns of help that does not go to a terminal."""


def run() -> None:
    """Entry point of the console script."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal cannot show, it shows as "?"
            stream.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """Standard streams that whoever started us has closed (`>&-`) take and give nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Only `MUSTER_DEBUG=1` lets an exception out."""
    debug = os.environ.get("MUSTER_DEBUG") == "1"
    try:
        code = _answer(list(arguments))
        # What cannot be written is found out here and not when the interpreter exits.
        sys.stdout.flush()
        return code
    except CommandError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code, error.details)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader went away (`muster … | head`).
        _drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _CANNOT_BE_WRITTEN and error.filename is None:
            _drop_output()
            return _fail(f"standard output cannot be written: {error.strerror}", 1)
        if debug:
            raise
        text = f"internal error: {type(error).__name__}: {error} (set MUSTER_DEBUG=1 to see where)"
        return _fail(text, 1)


_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)


def _drop_output() -> None:
    """What is left to write goes nowhere, so that the interpreter does not complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(arguments: list[str]) -> int:
    if not arguments or arguments in (["--help"], ["-h"], ["help"]):
        print(usage())
        return 0
    if arguments in (["--version"], ["version"]):
        print(f"muster {muster.__version__}")
        return 0
    return dispatch(arguments)


def usage() -> str:
    """The help of `muster` itself."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS]
    return "\n".join(
        [
            "Usage: muster COMMAND [OPTIONS]",
            "",
            "A workload-aware scheduler for Kubernetes: groups of pods start as a whole or not at all.",
            "",
            "Commands:",
            *lines,
            "",
            "`muster COMMAND --help` explains a command, `muster --version` says which Muster this is.",
        ]
    )


def dispatch(arguments: list[str]) -> int:
    """Parse the arguments and run the command. Raises `CommandError`; usage errors come as `BadInput`."""
    if arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    name = arguments[0]
    if all(name != command.name for command in COMMANDS):
        raise BadInput(f"there is no command {name!r}{_suggestion(name)} (see `muster --help`)")
    for option, value in pairwise(arguments):
        if value == "" and option in PATHS:
            raise BadInput(f"{option}: the name is empty (a variable that is not set?)")
    from cyclopts import CycloptsError

    try:
        result = application()(
            # A lone "-" means standard input, but cyclopts takes it for an option.
            ["/dev/stdin" if argument == "-" else argument for argument in arguments],
            exit_on_error=False,
            print_error=False,
            verbose=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        raise BadInput(f"{_usage_text(_one_line(str(error)), arguments)} (see `muster {name} --help`)") from error
    return result if isinstance(result, int) else 0


_NEEDS_VALUE = re.compile(r'Command "\w+" parameter (-\S+) requires (?:an argument|at least 1 element\. Got 0)\.')


def _usage_text(text: str, arguments: Sequence[str]) -> str:
    """What is wrong with a command line, in our words where they are clearer."""
    found = _NEEDS_VALUE.fullmatch(text)
    if not found:
        return text
    files = [each for each in arguments[1:] if not each.startswith("-") and os.access(each, os.F_OK)]
    if found[1] == "--file" and files:
        return f"files are given with -f: muster {arguments[0]} -f {' '.join(files)}"
    return f"{found[1]} needs a value"


def application() -> App:
    """The command line as cyclopts sees it; commands are imported when they are called."""
    from cyclopts import App

    from muster.cli.terminal import console

    app = App(
        name="muster",
        version=muster.__version__,
        help="A workload-aware scheduler for Kubernetes.",
        console=console(HELP_WIDTH),
        suppress_keyboard_interrupt=False,
    )
    for command in COMMANDS:
        app.command(command.target, name=command.name)
    return app


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, [command.name for command in COMMANDS], n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _fail(message: str, code: int, details: Sequence[str] = ()) -> int:
    print(f"muster: {_one_line(message)}", file=sys.stderr)
    for detail in details:
        print(f"  {_one_line(detail)}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    run()
