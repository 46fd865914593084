"""`Replay`: computes a run again from its logs, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from jflow.base.cards import Card, Carded, CardTable
from jflow.base.cluster import LOCAL_TASK, Device
from jflow.base.handles import Closing
from jflow.base.machine import this_platform
from jflow.base.values import Array
from jflow.client.replay.attempt import AttemptReplay, ReplayState, uses_of
from jflow.client.replay.gate import Version, VersionGate, VersionUse
from jflow.client.replay.programs import DevicesOfRun, ReplayPrograms
from jflow.client.run_log import RunLog, read_logs
from jflow.client.run_log.reader import RecordedAttempt, well_formed
from jflow.errors import FailedPreconditionError, NotFoundError
from jflow.plan import Fetch
from jflow.plan import Run as ProgramRun
from jflow.plan.xla.host_view import host_view
from jflow.state.resources import Containers, VariableId


@dataclass(frozen=True)
class ReplayedStep:
    """A step that was computed again.

    Attributes:
      number: its position among the steps that updated variables, from 1 on; 0 if it updated none.
      title: the operations that it computes.
      program: the path of the log of the program that ran it.
      time: when it began in the run, in seconds since 1970.
      tasks: the names of the tasks that took part.
      updated: the names of the variables that it updated.
      staleness: how many updates a variable that it updated had had since the step read it, at
        most; 0 if none came between.
      was_cut_off: whether it did not end in the run, because a task or its program was lost, or it
        failed.
      n_compared: how many of the values that it returned were compared with those in the run.
      n_different: how many of these were not equal, bit for bit.
    """

    number: int
    title: str
    program: str
    time: float
    tasks: tuple[str, ...]
    updated: tuple[str, ...]
    staleness: int
    was_cut_off: bool
    n_compared: int
    n_different: int


class Replay(Carded, Closing):
    """A run that is computed again from its logs, in this process.

    Each program reads the versions of the variables that it has read in the run, so the same values
    come out, bit for bit, if the processor has the same features and jaxlib is the same. Values
    that steps returned are compared on the way.

    Args:
      paths: the run logs of the programs that took part (`ConfigProto.record`).

    Attributes:
      problems: what the logs lack, as sentences.
      doubts: why results may have other bits here than they had in the run.
      n_steps: how many steps updated variables so far.

    Raises:
      NotFoundError: if a log, or the file of its values, is not there.
      InvalidArgumentError: if it is not a log, or of another version.
      DataLossError: if a log was changed, or the logs contradict each other.
      FailedPreconditionError: if the run used devices that this process does not have.
    """

    def __init__(self, *paths: str) -> None:
        self._log: RunLog = read_logs(paths)
        self.problems = [*self._log.problems]
        self.doubts = sorted(
            {
                f"{task} had {why}"
                for task, platform in self._log.platforms.items()
                for why in platform.differences(this_platform())
            }
        )
        self.n_steps = 0
        attempts = self._log.attempts
        with well_formed(paths):
            steps = dict.fromkeys(attempt.run.step for attempt in attempts)
            devices = DevicesOfRun(plan for step in steps for plan in step.plans)
            self._former = dict(_former_values(attempts))
            found = [uses for attempt in attempts for uses in uses_of(attempt).values()]
        self._gate = VersionGate([use for uses in found for use in uses], self._former)
        self._programs = ReplayPrograms(devices)
        self._containers = Containers(LOCAL_TASK)
        self._state = ReplayState(
            self._gate,
            self._containers,
            self._former_value,
            lambda key: devices[Device.parse(key.device)],
        )
        self._running: list[AttemptReplay] = []
        self._coming = iter(attempts)
        self._steps = self._computed()

    def __repr__(self) -> str:
        return f"<jflow.Replay after {self.n_steps} steps of {len(self._log.attempts)}>"

    def __iter__(self) -> Iterator[ReplayedStep]:
        return self

    def __next__(self) -> ReplayedStep:
        """Computes the next step; its variables can be read afterwards.

        Raises:
          StopIteration: if there is no step any more.
          FailedPreconditionError: if a step needs what a program has written that did not record.
        """
        return next(self._steps)

    def run(self, until: int | None = None) -> Replay:
        """Computes steps until `until` of them have updated variables, or to the end of the logs.

        Returns:
          The replay itself.

        Raises:
          FailedPreconditionError: as `__next__`.
        """
        while until is None or self.n_steps < until:
            if next(self._steps, None) is None:
                break
        return self

    @property
    def variables(self) -> Mapping[str, Array]:
        """The present values of all variables, by name.

        Those of a container other than the default one have its name in front, as "container/name".
        Several with one name, on other devices, have "name@device".
        """
        found = sorted(self._containers.variables().items())
        names = [_name_of(key) for key, _ in found]
        return MappingProxyType(
            {
                f"{name}@{key.device}" if names.count(name) > 1 else name: host_view(
                    state.buffer.array
                ).copy()
                for name, (key, state) in zip(names, found, strict=True)
            }
        )

    def value(self, name: str) -> Array:
        """Returns the present value of a variable. Raises NotFoundError if it has none."""
        variables = self.variables
        if name not in variables:
            raise NotFoundError(
                f"the replay has no variable {name!r} after {self.n_steps} steps; it has "
                f"{', '.join(variables) or 'none'}"
            )
        return variables[name]

    def close(self) -> None:
        """Frees the variables. May be called again."""
        for attempt in self._running:
            attempt.close()
        self._running = []
        self._coming = iter(())
        self._containers.clear_all()
        self._programs.close()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _card(self) -> Card:
        variables = self.variables.items()
        rows = [(name, str(value.dtype), str(value.shape)) for name, value in variables]
        table = CardTable("variables", ("name", "dtype", "shape"), rows)
        facts = [("steps", self.n_steps), ("problems", "; ".join(self.problems))]
        return Card("Replay", "", facts, [table])

    # Steps --------------------------------------------------------------------------------------

    def _computed(self) -> Iterator[ReplayedStep]:
        for attempt in self._coming:
            plans = self._programs.plans_of(attempt.run.step)
            self._running.append(AttemptReplay(attempt, plans, self._state))
            yield from self._advanced()
        self._check_end()

    def _advanced(self) -> Iterator[ReplayedStep]:
        """Runs what may run, and yields the steps that end."""
        has_advanced = True
        while has_advanced:
            has_advanced = False
            for attempt in [*self._running]:
                has_advanced |= attempt.advance()
                if attempt.has_ended:
                    self._running.remove(attempt)
                    yield self._ended(attempt)

    def _ended(self, replayed: AttemptReplay) -> ReplayedStep:
        attempt, computed = replayed.attempt, replayed.checksums()
        run = attempt.run
        uses = [use for found in replayed.uses.values() for use in found]
        updated = dict.fromkeys(_name_of(use.variable) for use in uses if use.is_written)
        if replayed.n_left:
            why = f": {replayed.error.message}" if replayed.error else ""
            self.problems.append(
                f"{run.step.title!r} did not do again all that it did in the run{why}"
            )
        expected = None if run.returned is None else run.returned.checksums
        pairs = [*zip_longest(computed, expected)] if computed and expected else []
        replayed.close()
        self.n_steps += bool(updated)
        return ReplayedStep(
            self.n_steps if updated else 0,
            run.step.title,
            run.file.path,
            run.record.time,
            tuple(attempt.lives),
            tuple(updated),
            _staleness(uses),
            computed is None,
            len(pairs),
            sum(one != other for one, other in pairs),
        )

    def _check_end(self) -> None:
        """Notes why steps did not end, and ends them."""
        for attempt in self._running:
            use = self._gate.unknown(attempt.wanted)
            if use is not None and not self.problems:
                raise FailedPreconditionError(
                    f"the run logs lack version {use.version.n_updates} of {use.variable}, which "
                    f"{attempt.attempt.run.step.title!r} used: a program that did not record has "
                    "written it; record all programs, and give all their logs"
                )
        if self._running:
            first = self._running[0]
            use = self._gate.unknown(first.wanted) or next(iter(first.wanted), None)
            needs = "" if use is None else f"version {use.version.n_updates} of {use.variable}"
            self.problems.append(
                f"{len(self._running)} steps cannot be computed, such as "
                f"{first.attempt.run.step.title!r}, which needs {needs or 'another step'}"
            )
        for attempt in self._running:
            attempt.close()
        self._running = []

    def _former_value(self, variable: VariableId, version: Version) -> Array:
        attempt, index = self._former[variable, version]
        return attempt.run.fetched()[index]


def _former_values(
    attempts: list[RecordedAttempt],
) -> Iterator[tuple[tuple[VariableId, Version], tuple[RecordedAttempt, int]]]:
    """Yields the versions whose values are in the log, and where they are."""
    for attempt in attempts:
        if attempt.run.returned is None or not attempt.run.returned.values:
            continue
        for plan in attempt.run.step.plans:
            index = {one.slot: one.index for one in plan.instructions if isinstance(one, Fetch)}
            for run in plan.instructions:
                if not isinstance(run, ProgramRun):
                    continue
                uses = {use.number: use for use in uses_of(attempt).get(id(run), ())}
                for number, slot in run.before:
                    if (use := uses.get(number)) is not None:
                        yield (use.variable, use.version), (attempt, index[slot])


def _name_of(variable: VariableId) -> str:
    return f"{variable.container}/{variable.name}" if variable.container else variable.name


def _staleness(uses: list[VersionUse]) -> int:
    """Returns how many updates came between a step's reads and its writes, at most."""
    read: dict[VariableId, int] = {}
    for use in uses:
        if not use.is_written:
            known = read.get(use.variable, use.version.n_updates)
            read[use.variable] = min(known, use.version.n_updates)
    return max(
        (
            use.version.n_updates - read.get(use.variable, use.version.n_updates)
            for use in uses
            if use.is_written
        ),
        default=0,
    )
