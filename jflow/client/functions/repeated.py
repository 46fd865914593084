"""The fast path of functions: calls whose arguments are of the types of the last call.

Most calls pass arrays as positional arguments, under the settings of the call before, and are one
program of this process. They go to that program without flattening what is flat, and without a key
for the table of compiled calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from jflow.base.cluster import DeviceSpec
from jflow.client.functions.concrete import Concrete
from jflow.client.functions.connection import Connection
from jflow.client.functions.current import current
from jflow.client.runtime.tracing import BLOCKS
from jflow.plan.xla import internals
from jflow.plan.xla.compile import CompiledProgram
from jflow.plan.xla.internals import ConcreteArray

Key = tuple[Any, Sequence[Any], Any, Any, DeviceSpec | None]
"""The key of a compiled call.

Structure and kinds of the arguments, JAX's settings, whether it checks for NaN, and the device that
it requests because of its arguments or of `jax.default_device`.
"""


class RepeatableCall:
    """The program of a call, which repeats it for arguments of the same types.

    Args:
      connection: the connection that the call ran on.
      key: the key of the call.
      program: the program that it runs.
      used: the arguments that the program takes; None for all of them.
      unflatten: makes its result of those of the program.
    """

    __slots__ = (
        *("_connection", "_is_alone", "_kinds", "_nans", "_pick", "_program", "_settings"),
        "_unflatten",
    )

    def __init__(
        self,
        connection: Connection | None,
        key: Key,
        program: CompiledProgram,
        used: Sequence[int] | None,
        unflatten: Callable[[Any], Any],
    ) -> None:
        _, kinds, self._settings, self._nans, _ = key
        self._kinds: list[Any] | None = list(kinds)
        self._connection = connection
        self._is_alone = connection is None or connection.has_one_device
        self._program = program
        self._pick = None if used is None else _picking(used)
        self._unflatten = unflatten

    def accepts(self, args: Sequence[Any]) -> bool:
        """Whether a call with these positional arguments can run the same program."""
        return (
            self._kinds == [x.aval if type(x) is ConcreteArray else None for x in args]
            and current() is self._connection
            and internals.trace_context() == self._settings
            and internals.debug_nans.value == self._nans
            and not BLOCKS.n_open
            and (self._is_alone or current().default_device(args) is None)
        )

    def run(self, args: Sequence[Any]) -> Any:
        """Runs the program with the arguments of a call that `accepts` has accepted.

        Raises:
          TypeError, ValueError: if an argument is on another device, so nothing was done; this
            accepts no other call then.
        """
        try:
            values = self._program(*(args if self._pick is None else self._pick(args)))
        except (TypeError, ValueError):
            self._kinds = None
            raise
        return self._unflatten(values)

    def __repr__(self) -> str:
        return f"<RepeatableCall of {len(self._kinds or ())} arrays>"


def _picking(indices: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Returns a function that picks the items at `indices` of a sequence, as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return itemgetter(slice(indices[0], indices[0] + 1)) if indices else itemgetter(slice(0))


def _nothing(*_: Any) -> Any:
    raise AssertionError("it accepts no call")


@dataclass
class CompiledCall:
    """A function compiled for one signature.

    Attributes:
      run: the traced function.
      out_tree: the structure of its result.
      has_static: whether some of its leaves are static, so that `run` does not take them.
      repeated: the fast path of calls like it; None until it has run.
    """

    run: Concrete
    out_tree: Any
    has_static: bool
    repeated: RepeatableCall | None = None

    def repeated_from(
        self, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> RepeatableCall:
        """Returns the fast path for calls like the last one; `NEVER` if there is none."""
        if self.repeated is None:
            self.repeated = NEVER
            # Structures that happen to have as many leaves as there are arguments do no harm: they
            # are not arrays, which is all that a repeated call accepts.
            is_flat = not kwargs and len(args) == len(key[1]) and not self.has_static
            # The program would move arrays of another device to its own.
            is_first = key[4] is None
            program = self.run.single_program() if is_flat and is_first else None
            if program is not None:
                self.repeated = RepeatableCall(current(), key, *program, self.out_tree.unflatten)
        return self.repeated


NEVER = RepeatableCall(None, (None, (), None, None, None), _nothing, None, _nothing)
"""Accepts no call, because no connection is None."""
