"""`jflow status`: the tasks of a cluster, and what shows a cluster again and again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jflow.base.text import age_text, bytes_text, printable, table
from jflow.cli.targets import add_json, add_options, candidates, parse_seconds
from jflow.errors import OpError

if TYPE_CHECKING:
    from jflow.cli.watcher import Seen, Watcher
    from jflow.state.watch import StepStatus

KINDS = ("devices", "sessions", "steps")
PARTIAL = 3
"""The exit code if some of the tasks did not answer."""

_INTERVAL_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"
_N_STEPS = 20
"""How many of the oldest steps are shown to people."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    status = commands.add_parser("status", help="the tasks of a cluster, and what they do")
    add_options(status)
    add_output(status)
    status.set_defaults(run=_status)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds --json and --watch to a command."""
    add_json(parser)
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    add_interval(parser)


def add_interval(parser: argparse.ArgumentParser) -> None:
    """Adds --interval to a command."""
    parser.add_argument(
        "--interval",
        type=parse_seconds,
        default=_INTERVAL_S,
        metavar="SECONDS",
        help="the time between two looks (default: %(default)g)",
    )


def show(
    options: argparse.Namespace,
    look: Callable[[Watcher], Sequence[Seen]],
    content: Callable[[Sequence[Seen]], Mapping[str, Any]],
    text: Callable[[Sequence[Seen]], str],
) -> int:
    """Prints the state of a cluster, once or, with --watch, repeatedly.

    Args:
      options: those of the command: target, timeout, json, watch, interval.
      look: what it looks at.
      content: what is printed for programs.
      text: what is printed for people.

    Returns:
      The exit code: 0, or `PARTIAL`.
    """
    with connected(options.target, options.timeout) as watcher:
        if not options.watch:
            seen = look(watcher)
            if options.json:
                print(json.dumps(content(seen), indent=2))
            else:
                print(printable(text(seen), allowed="\n"))
            return 0 if all(one.is_up for one in seen) else PARTIAL

        def again() -> str:
            seen = look(watcher)
            return json.dumps(content(seen)) if options.json else text(seen)

        repeat(again, options.interval, is_json=options.json)
        return 0


def connected(target: str | None, seconds: float) -> Watcher:
    """Returns a watcher of the cluster that the options name. Raises as `candidates`."""
    from jflow.cli.watcher import Watcher  # noqa: PLC0415 - no other command imports JAX for it

    return Watcher(candidates(target), seconds)


def repeat(
    look: Callable[[], str], seconds: float, count: int | None = None, *, is_json: bool = False
) -> None:
    """Prints a text every few seconds, `count` times or until Ctrl-C.

    A cluster that does not answer is reported, and called again.
    """
    is_screen = sys.stdout.isatty() and not is_json
    n_done = 0
    try:
        while True:
            try:
                text = look()
            except OpError as error:
                text = json.dumps({"error": error.message}) if is_json else f"jflow: {error}"
            if not is_json:
                text = printable(text, allowed="\n")
            at = "" if is_json else f"{datetime.now(UTC):%H:%M:%S} UTC\n"
            print(f"{_CLEAR if is_screen else ''}{at}{text}", flush=True)
            n_done += 1
            if n_done == count:
                return
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _status(options: argparse.Namespace) -> int:
    from jflow.net.wire.running_ups import page_of  # noqa: PLC0415 - it imports JAX

    page = page_of(candidates(options.target))
    return show(
        options,
        lambda watcher: watcher.inspect(KINDS),
        lambda seen: {"tasks": [one.as_json(KINDS) for one in seen]},
        lambda seen: status_text(seen) + (f"\n\nits page is at {page}" if page else ""),
    )


def status_text(seen: Sequence[Seen]) -> str:
    """Returns the tasks for people: a table, and below it the steps under way."""
    headers = ["TASK", "STATE", "ADDRESS", "UP", "MEMORY", "DEVICES", "SESSIONS", "STEPS"]
    text = table(headers, [_row(one) for one in seen])
    silent = [f"{one.report.task}: {one.report.reason}" for one in seen if not one.is_up]
    steps = [
        (
            one.report.task,
            step.step,
            age_text(step.age_s),
            doing_text(step),
        )
        for one in seen
        for step in one.items("steps")[:_N_STEPS]
    ]
    parts = [text, "\n".join(silent)]
    parts.append(table(["TASK", "STEP", "AGE", "WAITS"], steps) if steps else "")
    return "\n\n".join(part for part in parts if part)


def doing_text(step: StepStatus) -> str:
    """What a step waits for, or that it computes; and of which client, if it was abandoned."""
    from jflow.state.watch import abandoned_text, client_text  # noqa: PLC0415 - it imports JAX

    if step.abandoned_s is None:
        return "; ".join(step.waiting_for) or "computes"
    return f"{abandoned_text(step.abandoned_s)}; of {client_text(step)}"


def _row(seen: Seen) -> Sequence[object]:
    report, status = seen.report, seen.status
    head = (report.task, report.state.value, report.address)
    if status is None:
        return (*head, "-", "-", "-", "-", "-")
    types = Counter(device.type for device in status.devices)
    return (
        *head,
        age_text(status.uptime_s),
        bytes_text(status.memory_bytes),
        ", ".join(f"{n} {kind}" for kind, n in types.items()) or "-",
        status.totals["sessions"],
        status.totals["steps"],
    )
