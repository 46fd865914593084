"""The sections of a comparison about what was measured on real processes, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jflow.lab.suite.measured import Accuracy, MeasuredResult, accuracies
from jflow.lab.suite.tables import duration, percent, strategy_name, table

_MEASURED = """\
Median time of a step on real processes, one for each device and pinned to a core, with half the
distance between the quartiles; in parentheses what `explain` predicts. Variables are free: each
strategy places them too. *fused* is the step as one program of `jax.jit`, without a runtime. In
timed mode operations sleep for their time, so that processes need no cores.
"""

_PREDICTED = """\
Prediction: the median error of a plan by the programs that the runtime makes of operations and by
single operations, Kendall's rank correlation over plans that differ by more than the noise, and how
much slower the plan with the best prediction is than the best plan. *Slowdown* is what a reference
program took in the same turns, over what it took when the machine was calibrated; errors are those
of predictions times that.
"""

_ALTERNATIVES = """\
Operations that the seed chooses, on each device that they may go to, with all that is colocated
with them: the step time that `explain` predicts, and that of steps that pin them there.
"""


def measured_section(measured: Sequence[MeasuredResult], pictures: Mapping[str, Path]) -> str:
    """Returns the section of step times on real processes, beside what was predicted."""
    lines = ["## Measured", "", _MEASURED, _step_times(measured), _PREDICTED]
    lines.append(_accuracies(measured))
    if "measured" in pictures:
        lines.append(f"![Predicted and measured times]({pictures['measured'].name})\n")
    return "\n".join(lines)


def alternatives_section(results: Sequence[MeasuredResult]) -> str:
    """Returns the section of single operations on each device, beside what `explain` predicts."""
    body = [
        [
            each.strategy,
            *(duration(each.staged), f"{duration(each.seconds)} ± {percent(each.noise)}"),
            percent(each.error),
        ]
        for each in results
        if not each.refused
    ]
    lines = ["## Alternatives of `explain`", "", _ALTERNATIVES]
    lines.append(table(["operation and device", "predicted", "measured", "error"], body))
    lines += [_accuracies(results)]
    return "\n".join(lines)


def _step_times(measured: Sequence[MeasuredResult]) -> str:
    plans = [*dict.fromkeys(each.plan for each in measured)]
    names = [*dict.fromkeys(each.strategy for each in measured)]
    by_key = {(each.plan, each.strategy): each for each in measured}
    body = []
    for name in names:
        cells = [strategy_name(name)]
        for plan in plans:
            result = by_key.get((plan, name))
            if result is None or result.refused:
                cells.append("refused" if result else "-")
            else:
                text = f"{duration(result.seconds)} ± {percent(result.noise)}"
                cells.append(f"{text} ({duration(result.staged)})" if result.staged else text)
        body.append(cells)
    return table(["strategy", *(f"{name}, {n} devices" for name, n in plans)], body)


def _accuracies(measured: Sequence[MeasuredResult]) -> str:
    head = ["workload", "devices", "plans", "error", "by operations"]
    head += ["without slowdown", "slowdown", "rank correlation", "regret", "repeat noise"]
    return table(head, [_accuracy(each) for each in accuracies(measured)])


def _accuracy(accuracy: Accuracy) -> list[str]:
    tau = "-" if accuracy.tau is None else f"{accuracy.tau:.2f}"
    return [
        *(accuracy.workload, str(accuracy.n_devices), str(accuracy.n_plans)),
        *map(percent, (accuracy.error, accuracy.operation_error, accuracy.plain_error)),
        *(f"{accuracy.slowdown:.2f}", tau, percent(accuracy.regret), percent(accuracy.noise)),
    ]
