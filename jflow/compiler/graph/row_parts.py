"""Host functions that split and stitch rows of partitioned tables, with their derivatives.

How many of some ids belong to a part is known only when a step runs. A program of XLA would be
compiled again for each number, so ids are divided and rows are joined by calls of the host, and
only the gather of a part has an unknown size. Joining is linear in the rows; dividing is its
transpose. No other call of the host has a derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.interpreters import ad

from jflow.base.packing import pack
from jflow.base.values import abstract, unknown_dim
from jflow.compiler.graph import origin
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.graph import Graph, Tensor
from jflow.compiler.graph.primitives import LINEAR_FUNCTIONS, host_p


def split_ids(
    graph: Graph, ids: Tensor, sizes: Sequence[int], strategy: str
) -> tuple[list[Tensor], list[Tensor]]:
    """Splits ids by the part of the table that has their row.

    Args:
      graph: the graph of the ids.
      ids: integers of any shape.
      sizes: the number of rows of each part.
      strategy: "mod" or "div", see `embedding_lookup`.

    Returns:
      For each part the rows of it that the ids name, i32[k_i], padded with indices beyond its rows;
      and their positions among the ids, i32[k_i], padded with -1. An id that is out of range is an
      index beyond the rows of the first part.
    """
    avals = [abstract((unknown_dim(),), jnp.int32) for _ in sizes]
    attributes = {"sizes": [*sizes], "strategy": strategy}
    outputs = call(
        graph, "split_ids", [ids], [*avals, *avals], name="split_ids", attributes=attributes
    ).outputs
    return [*outputs[: len(sizes)]], [*outputs[len(sizes) :]]


def stitch_rows(
    graph: Graph, ids: Tensor, places: Sequence[Tensor], rows: Sequence[Tensor]
) -> Tensor:
    """Puts the rows read from the parts of a table back into the order of the ids.

    Args:
      graph: the graph of the ids.
      ids: integers of any shape.
      places: for each part positions among the ids, as `split_ids` gives them.
      rows: for each part its rows, T[k_i, *row].

    Returns:
      T[*ids.shape, *row].
    """
    stitched: Tensor = graph.apply(_stitched, (ids, [*places], [*rows]), name="stitch_rows")
    return stitched


def _stitched(ids: Any, places: Sequence[Any], rows: Sequence[Any]) -> Any:
    aval = abstract((*ids.shape, *rows[0].shape[1:]), rows[0].dtype)
    return _bind("stitch_rows", [ids, *places, *rows], [aval])[0]


def _split(ids: Any, rows: Any, places: Sequence[Any]) -> list[Any]:
    row = rows.shape[ids.ndim :]
    avals = [abstract((*at.shape, *row), rows.dtype) for at in places]
    return _bind("split_rows", [ids, rows, *places], avals)


def _bind(function: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    values: list[Any] = host_p.bind(
        *inputs,
        function=function,
        attributes=pack({}),
        resources=(),
        is_blocking=False,
        outputs=tuple(outputs),
        line=origin.describe(origin.user_location()),
    )
    return values


def _linear(function: str, n_inputs: int) -> slice:
    """Returns the inputs of a call in which its results are linear."""
    if function not in LINEAR_FUNCTIONS:
        raise NotImplementedError(f"Differentiation rule for 'host' not implemented: {function}")
    return slice(1 + n_inputs // 2, None) if function == "stitch_rows" else slice(1, 2)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    linear = _linear(params["function"], len(primals))
    values = host_p.bind(*primals, **params)
    inputs = [*primals]
    inputs[linear] = [ad.instantiate_zeros(tangent) for tangent in tangents[linear]]
    return values, host_p.bind(*inputs, **params)


def _transpose(cotangents: Sequence[Any], *inputs: Any, **params: Any) -> list[Any]:
    instantiated = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    linear = _linear(params["function"], len(inputs))
    results: list[Any] = [None] * len(inputs)
    if params["function"] == "stitch_rows":
        results[linear] = _split(inputs[0], instantiated[0], inputs[1 : linear.start])
    else:
        results[linear] = [_stitched(inputs[0], inputs[2:], instantiated)]
    return results


ad.primitive_jvps[host_p] = _jvp
ad.primitive_transposes[host_p] = _transpose
