"""`run_program`: calls the program of a linked `Run` on slots and variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jflow.base.cluster import Device
from jflow.errors import InvalidArgumentError
from jflow.plan.xla import internals
from jflow.plan.xla.mesh_program import Kept
from jflow.task.execution.linked import LinkedRun


def run_program(
    linked: LinkedRun,
    slots: list[Any],
    old: Sequence[jax.Array],
    device: Device,
    kept: Kept | None = None,
    n_steps: int = 1,
) -> list[jax.Array]:
    """Runs a program and stores its outputs in slots.

    Args:
      linked: the program.
      slots: the slots of its plan.
      old: its first arguments, the values of variables.
      device: the device of the plan, for messages.
      kept: on a mesh, how the variables that it writes are sharded.
      n_steps: how often to run it, each time on the variables that it has written.

    Returns:
      All results, those for variables first. The device completes them together, so any of them
      tells when the program has ended.

    Raises:
      InvalidArgumentError: if the program does not accept its arguments.
    """
    if linked.executable is None:
        return []
    run = linked.instruction
    options = {} if kept is None else {"kept": kept}
    try:
        args = arguments_of(linked, slots, old)
        results = linked.executable(*args, **options)
        for _ in range(n_steps - 1):
            args = linked.arguments_again(args, results)
            results = linked.executable(*args)
    except internals.ARGUMENT_ERRORS as error:
        # JAX checks sizes that were unknown before only here.
        raise InvalidArgumentError(
            f"a program on {device} does not accept its arguments: {error}"
        ) from error
    n_written = len(run.writes)
    if run.outputs or len(results) > n_written:
        for slot, value in zip(run.outputs, results[n_written:], strict=True):
            slots[slot] = value
    return results


def arguments_of(
    linked: LinkedRun, slots: Sequence[Any], old: Sequence[jax.Array]
) -> tuple[Any, ...]:
    """Returns the arguments of a program: values of variables, of slots, and constants."""
    return (*old, *map(slots.__getitem__, linked.instruction.inputs), *linked.constants)
