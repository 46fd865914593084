"""The options of the commands that start servers: when a device is stuck, and what follows."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def add_stuck_options(parser: argparse.ArgumentParser) -> None:
    """Adds --abandoned-limit-s and --restart-when-stuck to a command."""
    parser.add_argument(
        "--abandoned-limit-s",
        metavar="SECONDS",
        type=_limit,
        help="for how long a device may run a program that its caller gave up; then it takes no "
        "steps until the program ends (default: JFLOW_ABANDONED_LIMIT_S, else without a limit)",
    )
    parser.add_argument(
        "--restart-when-stuck",
        action="store_true",
        help="end with exit code 75 when a device takes no steps, so that what started the server "
        "starts it again; its state is lost. The limit is 60 s unless it is set",
    )


def add_save_option(parser: argparse.ArgumentParser) -> None:
    """Adds --save-when-stuck to a command."""
    parser.add_argument(
        "--save-when-stuck",
        metavar="DIR",
        help="where a task that ends because it is stuck saves its variables first, as a "
        "checkpoint such as DIR/ps-0 (default: JFLOW_SAVE_WHEN_STUCK, else nowhere)",
    )


def stuck_variables(options: argparse.Namespace) -> Mapping[str, str]:
    """Returns the environment variables that say the same to servers."""
    found = {}
    if options.abandoned_limit_s is not None:
        found["JFLOW_ABANDONED_LIMIT_S"] = f"{options.abandoned_limit_s:g}"
    if options.restart_when_stuck:
        found["JFLOW_RESTART_WHEN_STUCK"] = "1"
    if options.save_when_stuck is not None:
        found["JFLOW_SAVE_WHEN_STUCK"] = options.save_when_stuck
    return found


def _limit(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise ValueError(text)
    return seconds
