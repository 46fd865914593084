"""The option of the commands that start servers: where these compile programs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def add_apart_option(parser: argparse.ArgumentParser) -> None:
    """Adds --compile-apart to a command."""
    parser.add_argument(
        "--compile-apart",
        action="store_true",
        help="compile programs in processes of their own, so that a compiler that crashes does not "
        "end the task; for CPUs (default: JFLOW_COMPILE_APART, else in the task)",
    )


def apart_variables(options: argparse.Namespace) -> Mapping[str, str]:
    """Returns the environment variable that says the same to servers."""
    return {"JFLOW_COMPILE_APART": "1"} if options.compile_apart else {}
