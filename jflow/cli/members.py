"""`jflow members` and `jflow drain`: which tasks a cluster has, and one that leaves it."""

from __future__ import annotations

import argparse
import json

from jflow.base.cluster import Task
from jflow.base.text import printable, table
from jflow.cli.status import connected
from jflow.cli.targets import add_json, add_options

_HOLD_S = 10.0
_BYTES_PER_S = 50e6
"""The transfer rate that the time limit of a drain assumes."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    members = commands.add_parser(
        "members", help="the tasks of a cluster, and those that have left"
    )
    add_options(members)
    add_json(members)
    members.set_defaults(run=_members)
    drain = commands.add_parser(
        "drain", help="moves everything from a task to another one, and ends it"
    )
    drain.add_argument("task", metavar="/job:JOB/task:I", help="the task that leaves")
    add_options(drain)
    drain.add_argument(
        "--to",
        default="",
        metavar="/job:JOB/task:I",
        help="the task that gets its state, with the same devices (default: the next of its job)",
    )
    drain.add_argument(
        "--hold-s",
        type=float,
        metavar="SECONDS",
        help="how long steps that use the task may be held at most; running ones have half of it "
        f"to end (default: {_HOLD_S:g}, and a second more for each 50 MB of its state)",
    )
    add_json(drain)
    drain.set_defaults(run=_drain)


def _members(options: argparse.Namespace) -> int:
    with connected(options.target, options.timeout) as watcher:
        members = watcher.members()
    if options.json:
        fields = ("epoch", "leader", "state_task", "addresses", "successors")
        print(json.dumps({name: getattr(members, name) for name in fields}, indent=2))
        return 0
    duties = {members.leader: ["changes the list"]}
    duties.setdefault(members.state_task, []).append("has the state that requests no device")
    rows = [
        (str(task), members.addresses[str(task)], ", ".join(duties.get(str(task), ())))
        for task in members.cluster.tasks()
    ]
    rows += [
        (str(task), "has left", f"{heir} has its state") for task, heir in members.left.items()
    ]
    print(printable(table(["TASK", "ADDRESS", ""], rows), allowed="\n"))
    print(f"epoch {members.epoch}")
    return 0


def _drain(options: argparse.Namespace) -> int:
    task = str(Task.parse(options.task))
    with connected(options.target, options.timeout) as watcher:
        hold_s = options.hold_s
        if hold_s is None:
            seen = watcher.inspect(("containers",), [Task.parse(task)])
            n_bytes = sum(one.n_bytes for each in seen for one in each.items("containers"))
            hold_s = _HOLD_S + n_bytes / _BYTES_PER_S
        members = watcher.drain(task, options.to and str(Task.parse(options.to)), hold_s)
    heir = members.successor_of(Task.parse(task))
    if options.json:
        print(json.dumps({"left": task, "successor": str(heir), "epoch": members.epoch}))
    else:
        print(f"{task} has left; {heir} has what was on it")
    return 0
