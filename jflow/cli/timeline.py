"""`jflow timeline`: a trace of the next steps of other programs on a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from jflow.base.cluster import Target
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import boot_id, now
from jflow.base.files import replace_file
from jflow.base.text import bytes_text, seconds_text, table
from jflow.cli.status import PARTIAL, connected
from jflow.cli.targets import add_options
from jflow.errors import DeadlineExceededError

if TYPE_CHECKING:
    from jflow.plan.trace import Trace
    from jflow.plan.trace.samples import SampledStep
    from jflow.state.watch import TaskReport

_N_SHOWN = 10
_SLICE_S = 0.25
"""For how long a server waits for steps at a time, in seconds; then another may have enough."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    timeline = commands.add_parser(
        "timeline", help="a timeline of the next steps that programs run on a cluster"
    )
    add_options(timeline)
    timeline.add_argument(
        "--steps",
        type=int,
        default=5,
        metavar="N",
        help="how many steps (default: %(default)s)",
    )
    timeline.add_argument(
        "--wait",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for them (default: %(default)g)",
    )
    timeline.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("timeline.json"),
        metavar="FILE",
        help="where to write it: JSON for ui.perfetto.dev, or an image, by .json or .svg "
        "(default: %(default)s)",
    )
    timeline.set_defaults(run=_timeline)


def _timeline(options: argparse.Namespace) -> int:
    output: Path = options.output
    if options.steps < 1:
        raise ValueError(f"--steps must be at least 1, got {options.steps}")
    if not options.wait > 0:
        raise ValueError(f"--wait must be more than 0, got {options.wait:g}")
    if output.suffix not in (".json", ".svg"):
        raise ValueError(f"--output must end with .json or .svg, got {str(output)!r}")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"there is no directory {output.parent} for {output.name}")
    from jflow.plan.trace.samples import MAX_STEPS, combined  # noqa: PLC0415 - it imports JAX

    if options.steps > MAX_STEPS:
        raise ValueError(f"--steps must be at most {MAX_STEPS}, got {options.steps}")
    with connected(options.target, options.timeout) as watcher:
        seen = watcher.inspect(())
    reports = [one.report for one in seen if one.is_up]
    steps = next_steps(reports, options.steps, options.wait, options.timeout)
    if not steps:
        waited = f"no step ended in {options.wait:g} s"
        raise DeadlineExceededError(f"{waited}; --wait says for how long to wait for steps")
    trace = combined(steps)
    replace_file(output, _content(trace, output), follows=True)
    print(_summary(trace, len(steps)))
    where = ": open it at https://ui.perfetto.dev" if output.suffix == ".json" else ""
    print(f"{len(steps)} {'step' if len(steps) == 1 else 'steps'} in {output}{where}")
    return 0 if len(reports) == len(seen) else PARTIAL


class _Samples:
    """The steps that several servers have traced so far; thread-safe."""

    def __init__(self, n_wanted: int, wait_s: float) -> None:
        self._n_wanted = n_wanted
        self._end = monotonic() + wait_s
        self._steps: list[SampledStep] = []

    @property
    def seconds(self) -> float:
        """For how long a server is to wait next; 0.0 once there are enough, or time is over."""
        if len(self._steps) >= self._n_wanted:
            return 0.0
        return min(max(self._end - monotonic(), 0.0), _SLICE_S)

    def add(self, steps: Iterable[SampledStep]) -> None:
        """Takes steps of a server."""
        self._steps.extend(steps)

    def first(self) -> Sequence[SampledStep]:
        """Returns as many as are wanted, those that began first."""
        return sorted(self._steps, key=lambda step: step.begun)[: self._n_wanted]


def next_steps(
    reports: Sequence[TaskReport], n_steps: int, wait_s: float, timeout_s: float
) -> Sequence[SampledStep]:
    """Asks every server for the next steps of its clients, all at the same time.

    Args:
      reports: the tasks that are up.
      n_steps: how many steps are wanted.
      wait_s: how long to wait for them, in seconds.
      timeout_s: how long a server has to answer, in seconds.

    Returns:
      At most that many steps, those that began first.

    Raises:
      OpError: if a server does not answer.
    """
    samples = _Samples(n_steps, wait_s)
    with ThreadPoolExecutor(max(len(reports), 1)) as threads:
        calls = [threads.submit(_sample, report, n_steps, timeout_s, samples) for report in reports]
        for call in calls:
            call.result()
    return samples.first()


def _sample(report: TaskReport, n_steps: int, timeout_s: float, samples: _Samples) -> None:
    """Asks a server for steps, again and again until there are enough of all servers."""
    from jflow.net.protocol import MasterSession  # noqa: PLC0415 - these import JAX
    from jflow.net.wire import connect  # noqa: PLC0415
    from jflow.plan.trace.samples import StepSamples  # noqa: PLC0415

    with closing(connect(Target(report.address, task=report.task), timeout_s)) as client:
        while seconds := samples.seconds:
            sent, deadline = now(), Deadline(seconds + timeout_s)
            packed = client.call(MasterSession.sample_steps, n_steps, seconds, deadline)
            found = StepSamples.from_bytes(packed.tobytes())
            samples.add(found.shifted(sent, now(), boot_id()))


def _content(trace: Trace, output: Path) -> str:
    if output.suffix == ".json":
        return trace.to_chrome()
    from jflow.view.timeline import timeline  # noqa: PLC0415 - it imports JAX

    return timeline(trace)


def _summary(trace: Trace, n_steps: int) -> str:
    """Returns a table of what took longest, a line for each program, call and wait."""
    totals: dict[tuple[str, str, str], list[float]] = {}
    for span in trace.spans:
        totals.setdefault((span.name, span.kind, span.device), []).append(span.seconds)
    longest = sorted(totals.items(), key=lambda item: -sum(item[1]))[:_N_SHOWN]
    rows = [
        (kind, name, device, len(seconds), seconds_text(sum(seconds)), seconds_text(max(seconds)))
        for (name, kind, device), seconds in longest
    ]
    n_bytes = sum(one.n_bytes for one in trace.transfers)
    head = f"{seconds_text(trace.seconds)}, {bytes_text(n_bytes)} between devices"
    return f"{head}\n\n{table(('WHAT', 'NAME', 'DEVICE', 'N', 'TOTAL', 'LONGEST'), rows)}\n"
