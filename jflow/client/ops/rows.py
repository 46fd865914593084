"""Operations of input pipelines on the rows of tensors, also of strings.

They run on the host, because the rows are on their way into a queue, which is on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.base.values import HostArray, abstract, is_known, unknown_dim
from jflow.client.ops.queues import RandomShuffleQueue
from jflow.compiler.graph import Tensor, control_dependencies
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call
from jflow.errors import InvalidArgumentError


def check_rows(value: Any) -> Tensor:
    """Returns the tensor, and checks that it has at least one row.

    Args:
      value: T[n, ...].

    Raises:
      ValueError: if it is a scalar.
      InvalidArgumentError: if n is 0; in the step, if n is unknown before.
    """
    graph = _default_graph()
    rows = graph.as_tensor(value)
    sizes = rows.aval.shape
    if sizes == ():
        raise ValueError(f"expected a tensor of rows, got the scalar {rows!r}")
    if sizes is None or not is_known(sizes[0]):
        return call(graph, "check_rows", [rows], [rows.aval], name="check_rows").outputs[0]
    if sizes[0] == 0:
        raise InvalidArgumentError(f"expected at least one row, got {rows!r}")
    return rows


def shuffle_rows(rows: Tensor, shape: Sequence[int], seed: int | None = None) -> Tensor:
    """Shuffles the rows of a tensor, differently in each step.

    Args:
      rows: T[n, *shape].
      shape: shape of a row.
      seed: seed of the order; None for a random one.

    Returns:
      T[n, *shape].
    """
    queue = RandomShuffleQueue(-1, 0, [rows.dtype], [shape], seed=seed, name="shuffle_rows")
    with control_dependencies([queue.enqueue_many([rows])]):
        shuffled: Tensor = queue.dequeue_many(queue.size())
    return shuffled


def take_row(rows: Tensor, index: Tensor) -> Tensor:
    """Returns one row of a tensor.

    Args:
      rows: T[n, ...].
      index: i32[].
    """
    if not isinstance(rows.aval, HostArray):
        row: Tensor = rows[index]
        return row
    aval = abstract(rows.shape[1:], rows.dtype)
    return call(rows.graph, "take_row", [rows, index], [aval], name="take_row").outputs[0]


def keep_rows(values: Sequence[Tensor], keep: Tensor, *, single: bool) -> list[Tensor]:
    """Selects rows of tensors by a mask.

    Args:
      values: T[n, ...] each; if `single`, T[...], one row each.
      keep: bool[n], the mask; bool[] to keep all rows or none.
      single: whether the values are single rows.

    Returns:
      T[m, ...] for each.
    """
    m = unknown_dim()
    shapes = [value.shape if single else value.shape[1:] for value in values]
    avals = [
        abstract((m, *shape), value.dtype) for shape, value in zip(shapes, values, strict=True)
    ]
    attributes = {"single": single}
    inputs = [keep, *values]
    op = call(keep.graph, "keep_rows", inputs, avals, name="keep_rows", attributes=attributes)
    return list(op.outputs)
