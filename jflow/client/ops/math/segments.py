"""Reductions of the rows of each segment, under TensorFlow's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jflow.client.ops.lift import operation, target_graph
from jflow.client.ops.math.conversions import limits_of
from jflow.client.ops.math.sizes import size_of
from jflow.errors import UnimplementedError


def _max(rows: Any, ids: Any, n: Any) -> Any:
    return _present(jax.ops.segment_max(rows, ids, n), rows, ids, n)


def _min(rows: Any, ids: Any, n: Any) -> Any:
    return _present(jax.ops.segment_min(rows, ids, n), rows, ids, n)


def _lowest_or_max(rows: Any, ids: Any, n: Any) -> Any:
    return _present(jax.ops.segment_max(rows, ids, n), rows, ids, n, limits_of(rows.dtype)[0])


def _highest_or_min(rows: Any, ids: Any, n: Any) -> Any:
    return _present(jax.ops.segment_min(rows, ids, n), rows, ids, n, limits_of(rows.dtype)[1])


def _mean(rows: Any, ids: Any, n: Any) -> Any:
    """Returns the means; of integers they are rounded towards zero, as in TensorFlow."""
    if not jnp.issubdtype(rows.dtype, jnp.integer):
        return _quotients(rows, ids, n)
    kind = rows.dtype if rows.dtype.itemsize >= 4 else jnp.int32
    sums = jax.ops.segment_sum(rows.astype(kind), ids, n)
    counts = jnp.maximum(_counts(ids, n, rows.ndim), 1).astype(kind)
    return jax.lax.div(sums, jnp.broadcast_to(counts, sums.shape)).astype(rows.dtype)


def _quotients(rows: Any, ids: Any, n: Any) -> Any:
    """Returns the means; of integers they are floats, as in TensorFlow."""
    counts = jnp.maximum(_counts(ids, n, rows.ndim), 1)
    sums = jax.ops.segment_sum(rows, ids, n)
    is_integer = jnp.issubdtype(rows.dtype, jnp.integer)
    return sums / (counts if is_integer else counts.astype(rows.dtype))


def _sqrt_n(rows: Any, ids: Any, n: Any) -> Any:
    counts = _counts(ids, n, rows.ndim)
    return jax.ops.segment_sum(rows, ids, n) / jnp.sqrt(jnp.maximum(counts, 1)).astype(rows.dtype)


def _counts(ids: Any, n: Any, rank: int) -> Any:
    counts = jax.ops.segment_sum(jnp.ones(ids.shape, jnp.int32), ids, n)
    return jnp.reshape(counts, (-1,) + (1,) * (rank - 1))


def _present(values: Any, rows: Any, ids: Any, n: Any, other: Any = 0) -> Any:
    """Replaces the results of segments without rows by zeros, or by another value."""
    absent = jnp.asarray(other, values.dtype)
    return jnp.where(_counts(ids, n, rows.ndim) > 0, values, absent)


def _segments(
    fun: Callable[..., Any], op_name: str, what: str, absent: str = "zero"
) -> Callable[..., Any]:
    call = operation(_joined(fun), op_name)

    def segment(data: Any, segment_ids: Any, name: str | None = None) -> Any:
        graph = target_graph(data, segment_ids)
        if graph is None:
            raise UnimplementedError(
                "the number of segments follows from values, and JAX traces functions for known "
                "sizes; use the form that bounds it, jflow.unsorted_segment_sum(…, num_segments)"
            )
        ids = graph.as_tensor(segment_ids)
        n = graph.apply(_number, (ids,), name="size")
        return call(data, ids, n=size_of(n), name=name)

    segment.__doc__ = (
        f"Returns {what} of the rows of each segment, T[n, *row]; {absent} without rows.\n"
        "\n    Row i, of T[m, *row], belongs to the segment with the number `segment_ids[i]`, the"
        "\n    greatest of which is n - 1; a step finds it out.\n    "
    )
    return segment


def _unsorted(fun: Callable[..., Any], op_name: str, what: str) -> Callable[..., Any]:
    call = operation(_joined(fun), op_name)

    def segment(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        return call(data, segment_ids, n=size_of(num_segments), name=name)

    segment.__doc__ = (
        f"Returns {what} of the rows of each of `num_segments` segments.\n"
        "\n    Row i, of T[*m, *row], belongs to the segment with the number `segment_ids[i]`, of"
        "\n    i[*m]; a number that is out of range belongs to none.\n    "
    )
    return segment


def _joined(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function for ids of any shape."""

    def segments(data: Any, ids: Any, n: Any) -> Any:
        rows, ids = jnp.asarray(data), jnp.asarray(ids)
        rows = jnp.reshape(rows, (-1, *rows.shape[ids.ndim :]))
        return fun(rows, jnp.ravel(ids), n)

    return segments


def _number(ids: Any) -> Any:
    return jnp.max(ids, initial=-1) + 1


segment_max = _segments(_max, "SegmentMax", "the maximum")
segment_mean = _segments(_mean, "SegmentMean", "the mean")
segment_min = _segments(_min, "SegmentMin", "the minimum")
segment_prod = _segments(jax.ops.segment_prod, "SegmentProd", "the product", absent="one")
segment_sum = _segments(jax.ops.segment_sum, "SegmentSum", "the sum")

unsorted_segment_max = _unsorted(
    _lowest_or_max, "UnsortedSegmentMax", "the maximum, or the least finite number,"
)
unsorted_segment_mean = _unsorted(_quotients, "UnsortedSegmentMean", "the mean")
unsorted_segment_min = _unsorted(
    _highest_or_min, "UnsortedSegmentMin", "the minimum, or the greatest finite number,"
)
unsorted_segment_prod = _unsorted(jax.ops.segment_prod, "UnsortedSegmentProd", "the product")
unsorted_segment_sqrt_n = _unsorted(
    _sqrt_n, "UnsortedSegmentSqrtN", "the sum, divided by the root of their number,"
)
unsorted_segment_sum = _unsorted(jax.ops.segment_sum, "UnsortedSegmentSum", "the sum")
