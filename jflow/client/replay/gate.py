"""`VersionGate`: the order of a replay, by the versions of variables.

A program may run when each variable that it uses has the version that it had in the run, and may
write one when all others that used this version there have run. So every program of the replay
reads what it has read in the run, whatever order the steps are in.

A version is made by a program of the logs, or else it is *former*: the log has its value, because
the variable had it before the recording began, or a checkpoint was restored. What a restarted
server had comes after all that it had before, and nothing goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from jflow.errors import DataLossError
from jflow.state.resources import VariableId


class Version(NamedTuple):
    """A value that a variable had.

    Attributes:
      life: which incarnation of the server it was in, counted from 0 on.
      n_updates: how many updates it had had there before; -1 if it had no value.
    """

    life: int
    n_updates: int


class VersionUse(NamedTuple):
    """A use of a variable by a program in the run.

    Attributes:
      variable: the variable.
      number: its position in the plan.
      version: the value that it had.
      is_written: whether the program wrote it, which made the next version.
    """

    variable: VariableId
    number: int
    version: Version
    is_written: bool

    @property
    def made(self) -> Version:
        """The version that it makes, if it is written."""
        return self.version._replace(n_updates=self.version.n_updates + 1)


class VersionGate:
    """Says which programs may run.

    Args:
      uses: all uses of variables in the run.
      former: the versions whose values are in the log.

    Raises:
      DataLossError: if two programs made the same version.
    """

    def __init__(
        self, uses: Iterable[VersionUse], former: Collection[tuple[VariableId, Version]]
    ) -> None:
        self._n_left: Counter[tuple[VariableId, Version]] = Counter()
        self._n_left_in: Counter[tuple[VariableId, int]] = Counter()
        self._present: dict[VariableId, Version] = {}
        self._life: dict[VariableId, int] = {}
        made: set[tuple[VariableId, Version]] = set()
        for use in uses:
            self._n_left[use.variable, use.version] += 1
            self._n_left_in[use.variable, use.version.life] += 1
            if use.is_written:
                key = use.variable, use.made
                if key in made:
                    raise DataLossError(
                        f"the run logs contradict each other, or {use.variable} was freed and made "
                        f"again: two steps made its version {use.made.n_updates}"
                    )
                made.add(key)
        self._former = {*former} - made
        self._made = {*former} | made

    def may_run(self, uses: Collection[VersionUse]) -> bool:
        """Whether a program may run now, once `changes` are made."""
        return all(map(self._may_use, uses))

    def changes(self, uses: Collection[VersionUse]) -> Iterator[VersionUse]:
        """Yields the uses whose variables must get a former version, or lose their value, first."""
        return (use for use in uses if not self._is_present(use))

    def changed(self, use: VersionUse) -> None:
        """Notes that a variable has the version that a use needs."""
        self._life[use.variable] = use.version.life
        if use.version.n_updates < 0:
            self._present.pop(use.variable, None)
        else:
            self._present[use.variable] = use.version

    def has_run(self, uses: Collection[VersionUse]) -> None:
        """Notes that a program has run."""
        for use in uses:
            self._n_left[use.variable, use.version] -= 1
            self._n_left_in[use.variable, use.version.life] -= 1
            if use.is_written:
                self._present[use.variable] = use.made

    def unknown(self, uses: Collection[VersionUse]) -> VersionUse | None:
        """Returns a use of a version that nothing in the logs has made; None if there is none."""
        return next(
            (
                use
                for use in uses
                if use.version.n_updates >= 0 and (use.variable, use.version) not in self._made
            ),
            None,
        )

    def _is_present(self, use: VersionUse) -> bool:
        present = self._present.get(use.variable)
        if use.version.n_updates < 0:
            return present is None and use.version.life == self._life.get(use.variable, 0)
        return present == use.version

    def _may_use(self, use: VersionUse) -> bool:
        key = use.variable, use.version
        if use.is_written and self._n_left[key] > 1:
            return False
        return self._is_present(use) or self._may_change(use)

    def _may_change(self, use: VersionUse) -> bool:
        """Whether a variable may get a former version, or lose its value, for a use."""
        variable, version = use.variable, use.version
        if version.n_updates >= 0 and (variable, version) not in self._former:
            return False
        present = self._present.get(variable)
        if present is not None and self._n_left[variable, present]:
            return False
        life = self._life.get(variable, 0)
        if version.life == life:  # forward only
            return present is None or present.n_updates < version.n_updates
        earlier = range(life, version.life)
        return version.life > life and not any(self._n_left_in[variable, n] for n in earlier)
