"""Checks, each time before a program runs, that certain sizes of its inputs are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jflow.errors import InvalidArgumentError
from jflow.plan import EqualSizes, InputSize, Run
from jflow.plan.xla import CompiledProgram


def with_checks(executable: CompiledProgram, run: Run) -> CompiledProgram:
    """Wraps a program with the checks of its `Run.sizes`."""
    n_reads = len(run.reads)

    def call(*args: Any, **options: Any) -> list[jax.Array]:
        for sizes in run.sizes:
            _check(sizes, args[n_reads:])
        return executable(*args, **options)

    return call


def _check(sizes: EqualSizes, inputs: Sequence[Any]) -> None:
    first, second = sizes.first, sizes.second
    size = _size(first, inputs)
    expected_size = _size(second, inputs) if isinstance(second, InputSize) else second
    if size == expected_size:
        return
    if isinstance(second, InputSize):
        expectation = f"equal sizes, got {size} ({first}) and {expected_size} ({second})"
    else:
        expectation = f"the size {expected_size} as {first}, got {size}"
    hint = ""
    if 1 in (size, expected_size):
        hint = "; a size of 1 is broadcast only if the shape of the tensor declares it"
    raise InvalidArgumentError(f"{sizes.op!r} needs {expectation}{hint}", op=sizes.op)


def _size(size: InputSize, inputs: Sequence[Any]) -> int:
    shape: tuple[int, ...] = inputs[size.input].shape
    if size.dimension >= len(shape):
        raise InvalidArgumentError(f"expected a {size}, got the shape {shape}")
    return shape[size.dimension]
