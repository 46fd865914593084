"""Kernels: operations on resources, written as generators that yield the attempts they wait for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.cell import Cell

Wanted = tuple[Cell, Attempt]
"""An attempt that a kernel waits for, and the cell to submit it to."""

KernelRun = Generator[Wanted, None, Sequence[Array]]
"""A running kernel: it yields what it waits for and returns arrays."""

Kernel = Callable[..., KernelRun]
"""A generator function of the cells of its resources, its arrays, and attributes by name.

The generator yields what it waits for and is resumed when that has completed, so a thread and an
event loop can run the same kernel. If it is closed instead, it leaves no effect behind.
"""


def wait_for(cell: Cell, attempt: Attempt) -> Generator[Wanted, None, tuple[Any, ...]]:
    """Waits for an attempt and returns its values.

    Raises:
      OpError: the error that the attempt failed with.
    """
    try:
        yield cell, attempt
    except BaseException:  # such as GeneratorExit: the step goes no further
        # The attempt may have completed already, and its values would be lost.
        cell.unread(attempt)
        raise
    return attempt.result()


def single_attempt(make: Callable[..., Attempt]) -> Kernel:
    """Makes a kernel that submits the attempt that `make` returns, and waits for it."""

    @wraps(make, updated=())  # for its signature
    def kernel(cells: Sequence[Cell], values: Sequence[Array], **attributes: Any) -> KernelRun:
        return (yield from wait_for(cells[0], make(*values, **attributes)))

    return kernel


def query(read: Callable[[Any], Any]) -> Kernel:
    """Makes a kernel that reads a property of a resource, without waiting."""

    def kernel(cells: Sequence[Cell], values: Sequence[Array]) -> KernelRun:
        yield from ()
        return (np.asarray(cells[0].query(read)),)

    return kernel
