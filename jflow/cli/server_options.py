"""The options of the commands that start servers, which servers read as environment variables."""

from __future__ import annotations

import argparse
import os
from functools import partial

from jflow.base.logs.setup import FORM_VARIABLE, FORMS, LEVEL_VARIABLE, LEVELS
from jflow.cli.targets import parse_seconds


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `jflow server` and `jflow up` share."""
    add_stuck_options(parser)
    parser.add_argument(
        "--save-when-stuck",
        metavar="DIR",
        help="where a task that ends because it is stuck saves its variables first, as a "
        "checkpoint such as DIR/ps-0 (default: JFLOW_SAVE_WHEN_STUCK, else nowhere)",
    )
    parser.add_argument(
        "--quota",
        action="append",
        metavar="OF=AMOUNT",
        help="the most bytes of variables, queues and value tables of a task, container, session "
        "or user, such as user=25%% (of the memory of the task's devices) or session=2GiB; may be "
        "repeated (default: JFLOW_QUOTAS, else 90%%, and 45%% for a user)",
    )
    parser.add_argument(
        "--compile-apart",
        action="store_true",
        help="compile programs in processes of their own, so that a compiler that crashes does not "
        "end the task; for CPUs (default: JFLOW_COMPILE_APART, else in the task)",
    )
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


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Adds --ps and --workers to a command that starts all tasks of a cluster."""
    parser.add_argument(
        "--ps", type=int, default=1, metavar="N", help="parameter servers (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="workers (default: %(default)s)"
    )


def add_stuck_options(parser: argparse.ArgumentParser) -> None:
    """Adds --abandoned-limit-s and --restart-when-stuck to a command."""
    parser.add_argument(
        "--abandoned-limit-s",
        metavar="SECONDS",
        type=partial(parse_seconds, may_be_infinite=True),
        help="for how long a device may run a program that its caller gave up; then it takes no "
        "steps until the program ends (default: JFLOW_ABANDONED_LIMIT_S, else without a limit)",
    )
    parser.add_argument(
        "--restart-when-stuck",
        action="store_true",
        help="end with exit code 75 when a device takes no steps, so that what started the server "
        "starts it again; its state is lost. The limit is 60 s unless it is set",
    )


def set_variables(options: argparse.Namespace, **others: str | None) -> None:
    """Sets the environment variables that say the same as the options.

    Args:
      options: those of `add_server_options`.
      others: values of further variables; None for those that stay as they are.
    """
    limit = options.abandoned_limit_s
    said = others | {
        "JFLOW_ABANDONED_LIMIT_S": None if limit is None else f"{limit:g}",
        "JFLOW_RESTART_WHEN_STUCK": "1" if options.restart_when_stuck else None,
        "JFLOW_SAVE_WHEN_STUCK": options.save_when_stuck,
        "JFLOW_QUOTAS": ",".join(options.quota) if options.quota else None,
        "JFLOW_COMPILE_APART": "1" if options.compile_apart else None,
        LEVEL_VARIABLE: options.log,
        FORM_VARIABLE: options.log_format,
    }
    os.environ.update({name: text for name, text in said.items() if text is not None})
