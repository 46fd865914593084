"""`jflow ls`, `stack`, `reset` and `stop`: what the tasks of a cluster hold, and ending it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jflow.base.text import age_text, bytes_text, printable, table
from jflow.cli.status import PARTIAL, add_output, connected, doing_text, show
from jflow.cli.targets import (
    add_json,
    add_names,
    add_options,
    add_tasks,
    parse_tasks,
    split_target,
)

if TYPE_CHECKING:
    from jflow.cli.watcher import Seen
    from jflow.state.watch import DeviceStatus, UsageStatus, VariableStatus, WaitStatus

_Cells = Callable[[Any], Sequence[object]]


def container_text(container: str) -> str:
    """Returns the name of a container; the default one has none."""
    return container or "(default)"


def _session(usage: UsageStatus) -> str:
    return f"{usage.session} of {usage.master}" if usage.master else "-"


def _container(usage: UsageStatus) -> str:
    """Names the container of an account; steps are in none."""
    return container_text(usage.container) if usage.n_bytes or usage.container else "-"


def _abandoned(device: DeviceStatus) -> str:
    """How many abandoned programs a device runs, and since when the first one is."""
    if device.abandoned_s is None:
        return "-"
    n = device.n_abandoned
    return f"{n} program{'s' * (n > 1)}, since {age_text(device.abandoned_s)}"


def _limit(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)


_COLUMNS: Mapping[str, tuple[Sequence[str], _Cells]] = {
    "devices": (
        ("DEVICE", "TYPE", "MEMORY", "ABANDONED", "TAKES STEPS"),
        lambda d: (
            *(d.name, d.type, bytes_text(d.memory_bytes) if d.memory_bytes else "-"),
            *(_abandoned(d), "no, it is stuck" if d.is_stuck else "yes"),
        ),
    ),
    "containers": (
        ("CONTAINER", "VARIABLES", "BYTES", "RESOURCES"),
        lambda c: (container_text(c.name), c.n_variables, bytes_text(c.n_bytes), c.n_resources),
    ),
    "variables": (
        ("CONTAINER", "VARIABLE", "DEVICE", "DTYPE", "SHAPE", "BYTES"),
        lambda v: (
            *(container_text(v.container), v.name, v.device, v.dtype),
            *(_shape(v), bytes_text(v.n_bytes)),
        ),
    ),
    "queues": (
        (
            *("CONTAINER", "QUEUE", "KIND", "SIZE", "CAPACITY", "BYTES"),
            *("WAITING PUTS", "WAITING GETS", "CLOSED"),
        ),
        lambda q: (
            *(container_text(q.container), q.name, q.kind, q.size, _limit(q.capacity)),
            *(bytes_text(q.n_bytes), q.n_enqueues, q.n_dequeues, "yes" if q.is_closed else "no"),
        ),
    ),
    "sessions": (
        ("SESSION", "USER", "AGE", "STEPS", "WAITING", "CLAIM", "RESTARTED"),
        lambda s: (
            *(s.number, s.user or "-", age_text(s.age_s), s.n_steps, s.n_waiting, s.claim or "-"),
            ", ".join(s.restarted) or "-",
        ),
    ),
    "steps": (
        ("STEP", "USER", "AGE", "DEVICES", "WAITS"),
        lambda s: (
            *(
                s.step,
                s.user or "-",
                age_text(s.age_s),
                ", ".join(d.partition("/device:")[2] for d in s.devices),
            ),
            doing_text(s),
        ),
    ),
    "usage": (
        ("CONTAINER", "SESSION", "USER", "BYTES", "STEPS", "SLOTS", "PROGRAMS"),
        lambda u: (
            *(_container(u), _session(u), u.user or "-", bytes_text(u.n_bytes)),
            *(u.n_steps, u.n_slots, u.n_programs),
        ),
    ),
    "pending": (
        ["STEP", "AGE", "OPERATION", "DEVICE", "WAITS"],
        lambda w: (
            *(w.step, age_text(w.age_s), w.op or "-", w.device.partition("/device:")[2] or "-"),
            _cause_text(w),
        ),
    ),
}
"""The columns of each kind beside the task, and the cells of an item."""

_HELP = {
    "steps": "the steps that run, on all tasks",
    "usage": "what sessions and users have of all tasks, and in which containers",
    "pending": "what the steps that run wait for",
}


_GROUPS: Mapping[str, tuple[str, Callable[[UsageStatus], object]]] = {
    "session": ("SESSION", _session),
    "user": ("USER", lambda u: u.user or "-"),
    "container": ("CONTAINER", _container),
}
"""What usage can be summed by: the heading, and the name of what an account belongs to."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    ls = commands.add_parser("ls", help="what the tasks of a cluster hold")
    # A command each, because argparse does not find TARGET behind options if KIND is a word too.
    kinds = ls.add_subparsers(required=True, metavar="KIND")
    for kind in _COLUMNS:
        one = kinds.add_parser(kind, help=_HELP.get(kind, f"the {kind} of all tasks"))
        add_options(one)
        add_output(one)
        one.set_defaults(run=_ls, kind=kind, by=None)
        if kind == "usage":
            one.add_argument(
                "--by", choices=[*_GROUPS], help="the sums over all tasks, in place of each account"
            )
    stack = commands.add_parser(
        "stack", help="where the threads of tasks are, and what steps wait for"
    )
    add_options(stack)
    add_output(stack)
    add_tasks(stack)
    stack.set_defaults(run=_stack)
    reset = commands.add_parser(
        "reset", help="frees containers on all tasks, and ends the sessions of the server"
    )
    add_names(reset, "CONTAINER", "names")
    reset.add_argument("--default", action="store_true", help="the default container, too")
    add_options(reset, has_target=False)
    add_json(reset)
    reset.set_defaults(run=_reset)
    stop = commands.add_parser("stop", help="stops the servers of a cluster")
    add_options(stop)
    add_tasks(stop)
    add_json(stop)
    stop.set_defaults(run=_stop)


def _ls(options: argparse.Namespace) -> int:
    kind: str = options.kind
    if options.by is not None:
        return _ls_sums(options)

    def content(seen: Sequence[Seen]) -> dict[str, Any]:
        items = [item for one in seen for item in one.listed(kind)]
        return {kind: items, "tasks": [one.as_json() for one in seen]}

    def text(seen: Sequence[Seen]) -> str:
        headers, cells = _COLUMNS[kind]
        rows = [(one.report.task, *cells(item)) for one in seen for item in one.items(kind)]
        shown = table(["TASK", *headers], rows) if rows else f"no {kind}"
        return "\n".join([shown, *_not_up(seen)])

    return show(options, lambda watcher: watcher.inspect((kind,)), content, text)


def _ls_sums(options: argparse.Namespace) -> int:
    """Shows usage in sums over all tasks, the largest first."""
    heading, name = _GROUPS[options.by]
    counts = ("n_bytes", "n_steps", "n_slots", "n_programs")

    def sums(seen: Sequence[Seen]) -> list[tuple[object, list[int]]]:
        found: dict[object, list[int]] = {}
        for item in (item for one in seen for item in one.items("usage")):
            total = found.setdefault(name(item), [0] * len(counts))
            for i, count in enumerate(counts):
                total[i] += getattr(item, count)
        return sorted(found.items(), key=lambda one: (-one[1][0], str(one[0])))

    def content(seen: Sequence[Seen]) -> dict[str, Any]:
        items = [
            {options.by: group, **dict(zip(counts, total, strict=True))}
            for group, total in sums(seen)
        ]
        return {"usage": items, "tasks": [one.as_json() for one in seen]}

    def text(seen: Sequence[Seen]) -> str:
        rows = [(group, bytes_text(n_bytes), *others) for group, (n_bytes, *others) in sums(seen)]
        headers = [heading, "BYTES", "STEPS", "SLOTS", "PROGRAMS"]
        return "\n".join([table(headers, rows) if rows else "no usage", *_not_up(seen)])

    return show(options, lambda watcher: watcher.inspect(("usage",)), content, text)


def _not_up(seen: Sequence[Seen]) -> list[str]:
    """Returns a line for each task that is not in the list because it did not answer."""
    return [_silence_text(one) for one in seen if not one.is_up]


def _silence_text(seen: Seen) -> str:
    report = seen.report
    return f"{report.task} is {report.state.value}: {report.reason}"


def _stack(options: argparse.Namespace) -> int:
    kinds = ("steps", "threads", "pending")
    tasks = parse_tasks(options.task)
    return show(
        options,
        lambda watcher: watcher.inspect(kinds, tasks),
        lambda seen: {"tasks": [one.as_json(kinds) for one in seen]},
        lambda seen: "\n\n".join(map(_stack_text, seen)),
    )


def _stack_text(seen: Seen) -> str:
    report, status = seen.report, seen.status
    if status is None:
        return _silence_text(seen)
    lines = [f"{report.task} at {report.address}, process {status.pid}"]
    for step, step_waits in groupby(status.pending, key=lambda wait: wait.step):
        pending = [*step_waits]
        doing = "; ".join(map(wait_text, pending))
        lines.append(f"  step {step}, {age_text(pending[0].age_s)}: {doing}")
    for thread in status.threads:
        lines += [f"  thread {thread.name}", *(f"    {frame}" for frame in thread.frames)]
    return "\n".join(lines)


def _cause_text(wait: WaitStatus) -> str:
    """Returns what a step waits for, or that it computes."""
    from jflow.state.watch import abandoned_text  # noqa: PLC0415 - it imports JAX

    if wait.abandoned_s is not None:
        return abandoned_text(wait.abandoned_s)
    return wait.cause or "computes"


def wait_text(wait: WaitStatus) -> str:
    """Returns what a step waits for, with the operation that waits if that is known."""
    if not wait.cause:
        return _cause_text(wait)
    return f"{wait.op!r} waits {wait.cause}" if wait.op else f"waits {wait.cause}"


def _reset(options: argparse.Namespace) -> int:
    target, containers = split_target(options.names)
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
    outcomes = {"up": "stops", "down": "was not running"}
    if options.json:
        states = [
            {"name": str(one.task), "is_stopped": one.state.value in outcomes, "reason": one.reason}
            for one in reports
        ]
        print(json.dumps({"tasks": states}, indent=2))
    else:
        for one in reports:
            how = outcomes.get(one.state.value, f"does not stop: {one.reason}")
            print(printable(f"{one.task} {how}", allowed="\n"))
    return 0 if all(one.state.value in outcomes for one in reports) else PARTIAL


def _shape(variable: VariableStatus) -> str:
    """Formats the shape of a variable, and how it is sharded over a mesh."""
    sharding = f" over [{variable.sharding.replace(',', ', ')}]" if variable.sharding else ""
    return f"[{', '.join(map(str, variable.shape))}]{sharding}"
