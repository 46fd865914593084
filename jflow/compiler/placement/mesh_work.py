"""Counts the work of operations and programs that run on a mesh.

The counts are those of all devices together: what each of two devices computes counts twice, and
what is divided between them once. So they are the counts of one device (`work.py`), times how often
the partitioned program computes them (`spmd.py`), with its collectives. Where that is not known,
all work is taken to be divided, and nothing to be sent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from jflow.base.cluster import Axes
from jflow.base.values import Dim, is_known
from jflow.compiler.graph import Operation, VariableRef
from jflow.compiler.graph.primitives import WRITES, is_on_host, state_of
from jflow.compiler.lowering import Lowered, lower
from jflow.compiler.placement.equations import INPUTS, UNKNOWN_SIZE, Count, Vector
from jflow.compiler.placement.spmd import Work, partitioned_work
from jflow.compiler.placement.work import count_program
from jflow.errors import InvalidArgumentError
from jflow.plan.xla import jaxprs
from jflow.plan.xla.validation import is_dynamic

_NOT_COMPUTED = INPUTS - {"constant", "read"} | {"final"}
"""What is an input of a program, or only orders operations."""

_PRODUCTS = (Count.FLOPS, Count.CONVOLUTIONS)
_OTHERS = (Count.ELEMENTS, Count.TRANSCENDENTALS, Count.NEAR_BYTES, Count.FAR_BYTES)
_FIXED = (Count.KERNELS, Count.REDUCTIONS, Count.ITERATIONS)


def on_mesh(
    counts: Vector, ops: Sequence[Operation], axes: Axes, members: Collection[Operation]
) -> Vector:
    """Returns the counts of operations on a mesh: f64[operations, N_COUNTS].

    Args:
      counts: those of the operations on one device, f64[operations, N_COUNTS].
      ops: operations of a step, in the order of the graph.
      axes: those of the mesh.
      members: the operations that may run there; the shardings of their results depend on each
        other. The counts of others stay.
    """
    numbers = [i for i, op in enumerate(ops) if op in members and _is_computed(op)]
    computed = [ops[i] for i in numbers]
    work = _work_of_operations(computed, axes)
    if work is None:
        return counts
    together = counts.copy()
    together[numbers] = _together(counts[numbers], work, axes)
    return together


def count_program_on_mesh(
    lowered: Lowered, arguments: Sequence[str] = (), results: Sequence[str] = ()
) -> Vector:
    """Counts the work of a program on its mesh: f64[N_COUNTS].

    Args:
      lowered: the program.
      arguments, results: the shardings of the first ones, as for `partitioned_work`.
    """
    counts = count_program(lowered.jaxpr.jaxpr)
    work = _partitioned(lowered, arguments, results)
    if work is None:
        return counts
    together: Vector = _together(counts[None], work.sum(axis=0)[None], lowered.axes)[0]
    return together


def _is_computed(op: Operation) -> bool:
    return op.eqn.primitive.name not in _NOT_COMPUTED and not is_on_host(op.eqn)


def _work_of_operations(ops: Sequence[Operation], axes: Axes) -> Vector | None:
    """Returns the work of operations, as if they were one program: f64[operations, Work]."""
    if not ops:
        return None
    made = {tensor for op in ops for tensor in op.outputs}
    used = dict.fromkeys(tensor for op in ops for tensor in op.inputs)
    refs = dict.fromkeys(
        (ref, op.eqn.primitive in WRITES)
        for op in ops
        for ref in state_of(op.eqn)
        if isinstance(ref, VariableRef)
    )
    read = [*dict.fromkeys(ref for ref, _ in refs)]
    written = [ref for ref, is_written in refs if is_written]
    given = [tensor for tensor in used if tensor not in made]
    results = [tensor for op in ops for tensor in op.outputs if tensor not in used]
    try:
        lowered = lower(ops, read, given, written, results, axes=axes)
    except InvalidArgumentError:
        return None
    work = _partitioned(lowered, [ref.sharding for ref in read], [ref.sharding for ref in written])
    if work is None:
        return None
    until = np.concatenate([np.zeros((1, len(Work))), np.cumsum(work, axis=0)])
    ends = [*lowered.starts[1:], len(work)]
    by_operation: Vector = until[ends] - until[list(lowered.starts)]
    return by_operation


def _partitioned(
    lowered: Lowered, arguments: Sequence[str], results: Sequence[str]
) -> Vector | None:
    """Returns the work of each equation, f64[equations, Work]; None if it is not known.

    What JAX cannot lower is an error where the step is compiled, and of the operation. A kernel for
    accelerators only may be lowered there, and not here.
    """
    program = lowered.jaxpr
    try:
        if is_dynamic(program.in_avals):
            program = jaxprs.Resizing(_assumed).closed(program)
        return partitioned_work(program, lowered.axes, arguments, results)
    except Exception:  # of JAX and MLIR, which raise many kinds
        return None


def _assumed(size: Dim) -> Dim:
    return size if is_known(size) else UNKNOWN_SIZE


def _together(counts: Vector, work: Vector, axes: Axes) -> Vector:
    """Returns the counts of all devices, from those of one: f64[n, N_COUNTS].

    Args:
      counts: f64[n, N_COUNTS].
      work: f64[n, len(Work)].
      axes: those of the mesh.
    """
    n_devices = math.prod(size for _, size in axes)
    together = counts.copy()
    part = np.ones(len(work))
    for columns, whole, own in (
        (_PRODUCTS, Work.PRODUCTS, Work.OWN_PRODUCTS),
        # What only a product reads and writes is divided as the product.
        (_OTHERS, Work.OTHERS, Work.OWN_OTHERS),
    ):
        has_any = work[:, whole] > 0
        part = np.divide(work[:, own], work[:, whole], out=part.copy(), where=has_any)
        together[:, columns] *= n_devices * part[:, None]
    together[:, _FIXED] *= n_devices
    together[:, Count.MESSAGES] += work[:, Work.MESSAGES]
    together[:, Count.SENT_BYTES] += n_devices * work[:, Work.BYTES]
    return together
