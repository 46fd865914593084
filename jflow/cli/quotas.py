"""The option of the commands that start servers: how much state they keep, and of each client."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def add_quota_option(parser: argparse.ArgumentParser) -> None:
    """Adds --quota to a command."""
    parser.add_argument(
        "--quota",
        action="append",
        metavar="OF=AMOUNT",
        help="the most bytes of variables, queues and value tables of a task, container, session "
        "or user, such as user=25%% (of the memory of the task's devices) or session=2GiB; may be "
        "repeated (default: JFLOW_QUOTAS, else 90%%, and 45%% for a user)",
    )


def quota_variables(options: argparse.Namespace) -> Mapping[str, str]:
    """Returns the environment variable that says the same to servers."""
    return {"JFLOW_QUOTAS": ",".join(options.quota)} if options.quota else {}
