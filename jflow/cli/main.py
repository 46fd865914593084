"""The command `jflow`: a tour, servers, clusters that are watched, and what prepares them."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from jflow.base.text import printable
from jflow.cli import (
    bench,
    calibrate,
    completion,
    doctor,
    engines,
    listing,
    logs,
    members,
    replay,
    server,
    status,
    timeline,
    tokens,
    top,
    up,
)
from jflow.cli.advice import AdvisingParser
from jflow.cli.dashboard import command as dashboard
from jflow.cli.demo import command as demo
from jflow.cli.version import version_text
from jflow.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
)

_ROOMS = (
    *(demo, calibrate, server, up, status, top, dashboard, timeline, listing, members, logs),
    *(doctor, replay, bench, engines, tokens, completion),
)
"""What adds the commands, in the order of the list that `jflow --help` prints."""

_DESCRIPTION = """\
Starts, watches and prepares clusters of jflow. For a beginning: `jflow demo`; `jflow up`, and
beside it `jflow status`. `jflow doctor` says which cluster a program would use, and what is wrong.
"""
_USAGE_ERRORS = (
    ValueError,
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      The exit code: 0; 1 for a failure, such as a cluster that does not answer; 2 for an invalid
      argument or environment variable; 3 if some of the tasks of a cluster do not answer, or a run
      log lacks something; 75 of a server that ends because it is stuck; 141, as of a program that
      SIGPIPE ends, if what reads its output has ended, as in `jflow ls | head`.
    """
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(arguments: Sequence[str] | None) -> int:
    """Parses the arguments and runs the verb; returns the exit code."""
    parser = _parser()
    completion.complete(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="jflow: %(message)s")
    try:
        code: int = options.run(options) or 0
    except BrokenPipeError:
        raise
    except (OpError, OSError, ValueError) as error:
        print(printable(f"jflow: {error}", allowed="\n"), file=sys.stderr)
        return 2 if isinstance(error, _USAGE_ERRORS) else 1
    return code


class _Version(argparse.Action):
    """Prints the version and exits; the commit is asked for only then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(version_text())
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = AdvisingParser(prog="jflow", description=_DESCRIPTION)
    parser.add_argument("--version", action=_Version, help="the version, and its commit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for room in _ROOMS:
        room.add_commands(commands)
    _describe(commands)
    return parser


def _describe(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Has the help of each command begin with what the list of commands says of it."""
    for listed in commands._choices_actions:
        command, description = commands.choices[listed.dest], listed.help or ""
        command.description = f"{description[:1].upper()}{description[1:]}."
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                _describe(action)


if __name__ == "__main__":
    sys.exit(main())
