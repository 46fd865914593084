"""The options of commands that start servers: what these log, and in which form."""

from __future__ import annotations

import argparse
import os

from jflow.base.logs import LogOptions
from jflow.base.logs.setup import FORM_VARIABLE, FORMS, LEVEL_VARIABLE, LEVELS


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Adds --log and --log-format to a command."""
    parser.add_argument(
        "--log",
        choices=[*LEVELS],
        metavar="LEVEL",
        help=f"what is logged: {', '.join(LEVELS)} (default: {LEVEL_VARIABLE}, else warning)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMS,
        metavar="FORM",
        help=f"the form of its lines: {' or '.join(FORMS)} (default: {FORM_VARIABLE}, else text)",
    )


def log_variables(options: argparse.Namespace) -> dict[str, str]:
    """The environment variables that say the same as the options that are given."""
    given = {LEVEL_VARIABLE: options.log, FORM_VARIABLE: options.log_format}
    return {name: value for name, value in given.items() if value is not None}


def log_options(options: argparse.Namespace) -> LogOptions:
    """What is logged, by the options, else by the environment. Raises as `LogOptions`."""
    return LogOptions.of({**os.environ, **log_variables(options)})
