"""Plots of a comparison, by matplotlib (the extra `lab`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jflow.lab.suite.cases import CLUSTERS, CONTENTION, SMALL, SMALL_ONE_PORT
from jflow.lab.suite.contenders import AUTO
from jflow.lab.suite.measured import MeasuredResult
from jflow.lab.suite.scoring import CaseResult
from jflow.lab.suite.summary import Yardstick, figures_of, of_group, to_best, to_optimum

try:
    from matplotlib.figure import Figure as _Figure
except ImportError:
    _FIGURE: Any = None
else:
    _FIGURE = _Figure

_OWN, _OTHER = "#c44e52", "#7a8ba3"
"""Colours of `auto` and of all other strategies."""


def draw(
    cases: Sequence[CaseResult], measured: Sequence[MeasuredResult], folder: Path
) -> dict[str, Path]:
    """Writes the plots of what there are results of.

    Returns:
      The files by the group that they belong to; none if matplotlib is not installed.
    """
    if _FIGURE is None:
        return {}
    paths: dict[str, Path] = {}
    for group, yardstick, label in (
        (SMALL, to_optimum, "makespan / proven optimum"),
        (SMALL_ONE_PORT, to_optimum, "makespan / proven optimum"),
        (CONTENTION, to_best, "makespan / best known"),
    ):
        results = of_group(cases, group)
        rows = [row for row in figures_of(results, yardstick) if row.n][::-1]
        if rows:
            figure = _ratios(results, rows, yardstick, label)
            paths[group] = _save(figure, folder / f"{group}.png")
    if results := of_group(cases, CLUSTERS):
        paths[CLUSTERS] = _save(_placing(results), folder / f"{CLUSTERS}.png")
    if plans := [each for each in measured if not each.refused]:
        paths["measured"] = _save(_predicted(plans), folder / "measured.png")
    return paths


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _ratios(
    results: Sequence[CaseResult], rows: Sequence[Any], yardstick: Yardstick, label: str
) -> Any:
    """For each strategy the distribution of its ratios, the last row at the top."""
    ratios = [_ratios_of(results, row.strategy, yardstick) for row in rows]
    figure = _FIGURE(figsize=(8, 0.32 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots()
    boxes = axes.boxplot(
        ratios,
        orientation="horizontal",
        whis=(0, 95),
        showmeans=True,
        patch_artist=True,
        widths=0.6,
        flierprops={"marker": ".", "markersize": 4, "markeredgecolor": _OTHER},
        medianprops={"color": "black"},
        meanprops={
            "marker": "D",
            "markersize": 4,
            "markerfacecolor": "white",
            "markeredgecolor": "black",
        },
    )
    for row, box in zip(rows, boxes["boxes"], strict=True):
        box.set_facecolor(_OWN if row.strategy == AUTO else _OTHER)
        box.set_alpha(0.75)
    axes.set_yticks(range(1, len(rows) + 1), [row.strategy for row in rows])
    _logarithmic(axes, max(max(each) for each in ratios))
    axes.set_xlabel(f"{label} (box: quartiles; whisker: to 95 %; diamond: mean)")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    return figure


def _logarithmic(axes: Any, largest: float) -> None:
    """A logarithmic axis of ratios whose ticks are numbers that one can read."""
    axes.set_xscale("log")
    ticks = [each for each in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if each <= largest * 1.2]
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.set_xticks([], minor=True)


def _ratios_of(results: Sequence[CaseResult], name: str, yardstick: Yardstick) -> list[float]:
    pairs = ((result.makespan(name), yardstick(result)) for result in results)
    return [own / unit for own, unit in pairs if own is not None and unit]


def _placing(results: Sequence[CaseResult]) -> Any:
    """How long placing takes on clusters of several sizes; each line ends with its strategy."""
    sizes = sorted({result.n_devices for result in results})
    figure = _FIGURE(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    ends = []
    for name in dict.fromkeys(name for result in results for name in result.scores):
        points = []
        for size in sizes:
            seconds = [
                result.scores[name].placing
                for result in results
                if result.n_devices == size and result.makespan(name) is not None
            ]
            if seconds:
                points.append((size, max(seconds)))
        if points:
            colour = _OWN if name == AUTO else _OTHER
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colour)
            ends.append((points[-1][1], points[-1][0], name))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 2.6)
    _label_ends(axes, ends)
    axes.set_xlabel("devices")
    axes.set_ylabel("longest placing in seconds")
    axes.grid(alpha=0.3)
    return figure


def _label_ends(axes: Any, ends: Sequence[tuple[float, int, str]]) -> None:
    """Labels the last points, moved apart where labels would overlap."""
    low, high = axes.get_ylim()
    for size in {size for _, size, _ in ends}:
        here = sorted((seconds, name) for seconds, at, name in ends if at == size)
        heights = _apart([seconds for seconds, _ in here], (high / low) ** 0.045, high)
        for (seconds, name), height in zip(here, heights, strict=True):
            axes.annotate(
                name,
                xy=(size, seconds),
                xytext=(size * 1.12, height),
                va="center",
                fontsize=8,
                color=_OWN if name == AUTO else "black",
                arrowprops={"arrowstyle": "-", "color": _OTHER, "linewidth": 0.5},
            )


def _apart(heights: Sequence[float], factor: float, highest: float) -> list[float]:
    """Spreads rising heights so that each is at least `factor` times the one before.

    The last one stays half a factor below the highest, as long as there is room for all.
    """
    separate: list[float] = []
    for height in heights:
        separate.append(max(height, separate[-1] * factor if separate else height))
    limit = highest / factor**0.5
    for i in reversed(range(len(separate))):
        separate[i] = min(separate[i], limit)
        limit = separate[i] / factor
    return separate


def _predicted(plans: Sequence[MeasuredResult]) -> Any:
    """Predicted and measured step times, a colour for each workload."""
    figure = _FIGURE(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    names = [*dict.fromkeys(each.workload for each in plans)]
    for number, name in enumerate(names):
        own = [each for each in plans if each.workload == name and each.staged > 0]
        axes.errorbar(
            [each.staged * each.slowdown * 1e3 for each in own],
            [each.seconds * 1e3 for each in own],
            yerr=[each.noise * each.seconds * 1e3 for each in own],
            fmt="o",
            markersize=5,
            color=f"C{number}",
            label=name,
        )
    times = [
        t * 1e3 for each in plans for t in (each.staged * each.slowdown, each.seconds) if t > 0
    ]
    ends = [min(times) / 1.3, max(times) * 1.3]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [e * 0.9 for e in ends], [e * 1.1 for e in ends], alpha=0.15)
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if ends[0] < t < ends[1]]
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("predicted in milliseconds, times the slowdown (band: ± 10 %)")
    axes.set_ylabel("measured in milliseconds (bar: repeat noise)")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return figure
