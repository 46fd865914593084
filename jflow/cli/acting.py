"""`jflow reset` and `jflow stop`: what ends state or tasks of a cluster."""

from __future__ import annotations

import argparse
import json

from jflow.base.text import printable
from jflow.cli.status import PARTIAL, connected
from jflow.cli.targets import HELP, add_options, parse_tasks


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    reset = commands.add_parser(
        "reset", help="frees containers on all tasks, and ends the sessions of the server"
    )
    reset.add_argument(
        "names",
        nargs="*",
        metavar="[TARGET] CONTAINER",
        help=f"grpc://HOST:PORT, {HELP}; and names",
    )
    reset.add_argument("--default", action="store_true", help="the default container, too")
    add_options(reset, has_target=False)
    reset.add_argument("--json", action="store_true", help="for programs instead of people")
    reset.set_defaults(run=_reset)
    stop = commands.add_parser("stop", help="stops the servers of a cluster")
    add_options(stop)
    stop.add_argument(
        "--task", action="append", metavar="/job:JOB/task:I", help="only this one; may be repeated"
    )
    stop.add_argument("--json", action="store_true", help="for programs instead of people")
    stop.set_defaults(run=_stop)


def _reset(options: argparse.Namespace) -> int:
    names: list[str] = options.names
    has_target = bool(names) and names[0].startswith("grpc://")
    target, containers = (names[0], names[1:]) if has_target else (None, names)
    if options.default:
        containers = ["", *containers]
    if not containers:
        raise ValueError("name the containers to free, or give --default for the default container")
    with connected(target, options.timeout) as watcher:
        watcher.reset(containers)
    if options.json:
        print(json.dumps({"freed": containers}))
    else:
        print("freed " + ", ".join(name or "the default container" for name in containers))
    return 0


def _stop(options: argparse.Namespace) -> int:
    with connected(options.target, options.timeout) as watcher:
        reports = watcher.stop(parse_tasks(options.task))
    told = {"up": "stops", "down": "was not running"}
    if options.json:
        states = [
            {"name": str(one.task), "is_stopped": one.state.value in told, "reason": one.reason}
            for one in reports
        ]
        print(json.dumps({"tasks": states}, indent=2))
    else:
        for one in reports:
            how = told.get(one.state.value, f"does not stop: {one.reason}")
            print(printable(f"{one.task} {how}", kept="\n"))
    return 0 if all(one.state.value in told for one in reports) else PARTIAL
