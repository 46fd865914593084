"""Files of results: one for each group, rewritten as it grows, and read again to resume a run.

With the machine that they are of.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from jflow.base.files import replace_file
from jflow.base.handles import Closing
from jflow.base.machine import n_cores, processor_name
from jflow.errors import InvalidArgumentError
from jflow.lab.suite.measured import MeasuredResult
from jflow.lab.suite.scoring import CaseResult, Score

_PACKAGES = ("jax", "numpy", "scipy")


def machine() -> str:
    """Processor, usable cores and versions, in one line."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return f"{processor_name()}, {n_cores()} cores, Python {platform.python_version()}, {versions}"


def load() -> float:
    """Returns how many processes ran or waited for a core in the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


FORMAT = 1
"""Of the files; one that has another is refused."""

_DIGITS = 7
_WRITE_SECONDS = 5.0


@dataclass(frozen=True)
class Origin:
    """The origin of results: day, machine, seed and strategies.

    Attributes:
      date: the day.
      machine: cores and versions.
      seed: of the cases.
      quick: whether it was a short run.
      strategies: the fingerprints of the strategies by name.
      load: processes that waited for a core when the run began, as the mean of a minute.
    """

    date: str
    machine: str
    seed: int
    quick: bool
    strategies: Mapping[str, str]
    load: float = 0.0


@dataclass(frozen=True)
class GroupResults:
    """The results of one group.

    Attributes:
      origin: where they come from.
      cases: simulated results, by the key of the case.
      measured: measured results, by the key of the measurement.
    """

    origin: Origin
    cases: Mapping[str, CaseResult] = field(default_factory=dict)
    measured: Mapping[str, MeasuredResult] = field(default_factory=dict)


def save(path: Path, results: GroupResults) -> None:
    """Writes a file of results; what was there before stays until the new one is complete."""
    head = json.dumps({"format": FORMAT, **asdict(results.origin)}, ensure_ascii=False)
    parts: dict[str, Mapping[str, Any]] = {"cases": results.cases, "measured": results.measured}
    texts = [
        f'"{name}": {{\n' + ",\n".join(f'"{k}": {_packed(v)}' for k, v in each.items()) + "\n}"
        for name, each in parts.items()
    ]
    replace_file(path, head[:-1] + ",\n" + ",\n".join(texts) + "}\n")


def read(path: Path) -> GroupResults | None:
    """Returns the results of a file; None where there is none.

    Raises:
      InvalidArgumentError: if the file is not one of this benchmark.
    """
    try:
        document = json.loads(path.read_text())
        if document.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        cases = {key: _case(fields) for key, fields in document.pop("cases").items()}
        measured = {k: MeasuredResult(**fields) for k, fields in document.pop("measured").items()}
        return GroupResults(Origin(**document), cases, measured)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{path} is not a file of results of this benchmark ({type(error).__name__}: {error}); "
            "delete it, or run without resuming, which writes it anew"
        ) from error


def resumable(
    earlier: GroupResults, origin: Origin, fingerprints: Mapping[str, str]
) -> GroupResults:
    """Returns the results that this machine would find again: of strategies that have not changed.

    Times of one workload are compared with each other, so all of them go if one does.

    Args:
      found: earlier results.
      origin: of the run that would take them.
      fingerprints: of the strategies that are known now, by name.
    """
    if earlier.origin.machine != origin.machine:
        return GroupResults(origin)
    before = earlier.origin.strategies
    changed = {name for name, mark in fingerprints.items() if before.get(name, mark) != mark}
    cases = {}
    for key, case in earlier.cases.items():
        if not _is_outdated(case, fingerprints):
            current = {name: score for name, score in case.scores.items() if name not in changed}
            cases[key] = replace(case, scores=current)
    stale = {each.plan for each in earlier.measured.values() if each.strategy in changed}
    measured = {key: each for key, each in earlier.measured.items() if each.plan not in stale}
    return GroupResults(earlier.origin, cases, measured)


def _is_outdated(case: CaseResult, fingerprints: Mapping[str, str]) -> bool:
    """Returns whether a graph was searched for against a strategy that has changed since then.

    The case itself says against what: the file may have cases of several runs.
    """
    against = str(case.parameters.get("against"))
    return against in fingerprints and case.parameters["fingerprint"] != fingerprints[against]


def kept_beside(earlier: GroupResults, origin: Origin) -> GroupResults:
    """Returns the resumable results that stay beside those of a run, which need not name them.

    Runs of another seed or length have other cases of the same kind, which would count twice.
    """
    before = earlier.origin
    if (before.seed, before.quick) != (origin.seed, origin.quick):
        return GroupResults(origin)
    cases = {key: case for key, case in earlier.cases.items() if case.scores}
    return replace(earlier, cases=cases)


class ResultFile(Closing):
    """The file of one group while it grows: it is written now and then, and in the end.

    Measurements take minutes, so they are written at once.

    Args:
      path: the file; None to keep nothing.
      origin: where the results come from.
      kept: earlier results, which stay in the file unless there are new ones of their keys.
      clock: tells the time in seconds.
    """

    def __init__(
        self,
        path: Path | None,
        origin: Origin,
        earlier: GroupResults | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._origin = origin
        self._clock = clock
        self._written = clock()
        self._cases = {**earlier.cases} if earlier else {}
        self._measured = {**earlier.measured} if earlier else {}

    def add_case(self, key: str, result: CaseResult) -> None:
        """Adds the result of a case."""
        self._cases[key] = result
        if self._clock() - self._written >= _WRITE_SECONDS:
            self._write()

    def add_measured(self, results: Mapping[str, MeasuredResult]) -> None:
        """Adds measurements by their keys."""
        self._measured |= results
        self._write()

    def drop_measured(self, key: str) -> None:
        """Drops a kept measurement, because others of its workload are new."""
        self._measured.pop(key, None)

    def _write(self) -> None:
        if self._path is not None and (self._cases or self._measured):
            save(self._path, GroupResults(self._origin, self._cases, self._measured))
        self._written = self._clock()

    def _leave(self, failed: bool) -> None:
        self._write()


def _case(fields: dict[str, Any]) -> CaseResult:
    scores = {name: Score(**each) for name, each in fields.pop("scores").items()}
    return CaseResult(**fields, scores=scores)


def _packed(value: CaseResult | MeasuredResult) -> str:
    return json.dumps(_shortened(asdict(value)), ensure_ascii=False, separators=(",", ":"))


def _shortened(value: Any) -> Any:
    """Numbers with the digits that mean something, and no fields that are as they are by default.

    What is left out of a score is empty or 0 and comes back as the default of its field.
    """
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        shortened = {key: _shortened(each) for key, each in value.items()}
        if "placing" in value:
            optional = ("n_bytes", "refused", "is_infeasible", "is_skipped")
            return {k: v for k, v in shortened.items() if v or k not in optional}
        return shortened
    if isinstance(value, list | tuple):
        return [_shortened(each) for each in value]
    return value
