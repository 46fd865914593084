"""Assertions and `Print`: operations that look at values while a step runs.

An assertion is an operation that fails the step, as in TensorFlow 1: what depends on it waits for
it by `control_dependencies`. Dtypes, and ranks that the graph knows, are checked when it is built.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype, declared
from jflow.client.ops.arrays import graph_of, identity, no_op
from jflow.client.ops.math.shapes import rank as _rank
from jflow.client.ops.math.shapes import shape as _shape
from jflow.client.ops.math.sizes import known_int, known_ints
from jflow.compiler.graph import Graph, Operation, Tensor, control_dependencies, name_scope
from jflow.compiler.graph.calls import call

_RANK_IS_KNOWN = "static_checks_determined_all_ok"
"""TensorFlow's name for the operation of a rank that was checked when the graph was built."""


def Assert(  # noqa: N802 - TensorFlow's name
    condition: Any, data: Sequence[Any], summarize: int | None = None, name: str | None = None
) -> Operation:
    """Returns an operation that fails the step unless a condition holds.

    Args:
      condition: bool[], or bool[...], of which all elements must be true.
      data: what the message shows: texts, tensors and values.
      summarize: how many elements of each tensor it shows; None for 3, -1 for all.
      name: name of the operation.

    Raises:
      InvalidArgumentError: in the step, if the condition does not hold.
    """
    graph = graph_of([condition, *data])
    texts, tensors = _parts(graph, data)
    attributes: dict[str, Any] = {"texts": texts} | _limit(summarize)
    inputs = [graph.as_tensor(condition), *tensors]
    return call(graph, "assert_true", inputs, [], name=name or "Assert", attributes=attributes)


def Print(  # noqa: N802 - TensorFlow's name
    input_: Any,
    data: Sequence[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Returns a tensor, and writes values to the standard error of its task when it is computed.

    Args:
      input_: the tensor.
      data: what is written: texts and tensors.
      message: a text before them.
      first_n: how often the task writes them; None for each time. A task counts for the thousand
        operations that it wrote last.
      summarize: how many elements of each tensor are written; None for 3, -1 for all.
      name: name of the operation that returns the tensor.
    """
    graph = graph_of([input_, *data])
    name = name or "Print"
    texts, tensors = _parts(graph, data)
    limit = -1 if first_n is None else first_n
    attributes: dict[str, Any] = {
        "texts": [*([] if message is None else [message]), *texts],
        "first_n": limit,
        # Equal graphs have equal plans, but for what is counted: a task counts for all sessions,
        # so that names, which are equal in different graphs, would share one count.
        "key": "" if limit < 0 else secrets.token_hex(8),
    }
    attributes |= _limit(summarize)
    op = call(graph, "print_values", tensors, [], name=f"{name}/write", attributes=attributes)
    with graph.as_default(), control_dependencies([op]):
        return identity(input_, name)


def _limit(summarize: int | None) -> dict[str, Any]:
    return {} if summarize is None else {"summarize": summarize}


def _parts(graph: Graph, data: Sequence[Any]) -> tuple[list[str | None], list[Tensor]]:
    texts: list[str | None] = []
    tensors: list[Tensor] = []
    for part in data:
        if isinstance(part, str):
            texts.append(part)
        else:
            texts.append(None)
            tensors.append(graph.as_tensor(part))
    return texts, tensors


def _comparison(fun: Callable[[Any, Any], Any], sign: str, what: str) -> Callable[..., Any]:
    def holds(left: Any, right: Any) -> Any:
        return jnp.all(fun(left, right))

    def compare(
        x: Any,
        y: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        graph = graph_of([x, y])
        left, right = graph.as_tensor(x), graph.as_tensor(y)
        with graph.as_default(), name_scope(name, what):
            condition = graph.apply(holds, (left, right), name="All")
            shown = data if data is not None else _operands(sign, left, right)
            return Assert(condition, [*_told(message), *shown], summarize, name="Assert/Assert")

    compare.__doc__ = (
        f"Returns an operation that fails the step unless `x {sign} y` holds elementwise.\n\n"
        "    `data` is what the message shows instead of x and y; see `Assert`.\n    "
    )
    return compare


def _operands(sign: str, left: Tensor, right: Tensor) -> list[Any]:
    about = f"Condition x {sign} y did not hold element-wise:"
    return [about, f"x ({left.name}) = ", left, f"y ({right.name}) = ", right]


def _told(message: str | None) -> list[str]:
    return [] if message is None else [message]


def _sign(fun: Callable[[Any, Any], Any], sign: str, what: str) -> Callable[..., Any]:
    compare = _comparison(fun, sign, what)

    def check(
        x: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Operation:
        tensor = graph_of([x]).as_tensor(x)
        zero, shown = np.zeros((), tensor.dtype), data
        if shown is None:
            about = f"Condition x {sign} 0 did not hold element-wise:"
            shown = [about, f"x ({tensor.name}) = ", tensor]
        op: Operation = compare(tensor, zero, shown, summarize, message, name or what)
        return op

    check.__doc__ = (
        f"Returns an operation that fails the step unless `x {sign} 0` holds elementwise."
    )
    return check


assert_equal = _comparison(jnp.equal, "==", "assert_equal")
assert_greater = _comparison(jnp.greater, ">", "assert_greater")
assert_greater_equal = _comparison(jnp.greater_equal, ">=", "assert_greater_equal")
assert_less = _comparison(jnp.less, "<", "assert_less")
assert_less_equal = _comparison(jnp.less_equal, "<=", "assert_less_equal")
assert_none_equal = _comparison(jnp.not_equal, "!=", "assert_none_equal")
assert_negative = _sign(jnp.less, "<", "assert_negative")
assert_non_negative = _sign(jnp.greater_equal, ">=", "assert_non_negative")
assert_non_positive = _sign(jnp.less_equal, "<=", "assert_non_positive")
assert_positive = _sign(jnp.greater, ">", "assert_positive")


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Returns an operation that fails the step unless `|x - y| <= atol + rtol * |y|` elementwise.

    Args:
      x, y: tensors of floats.
      rtol, atol: the tolerances; None for ten times the distance from 1 to the next number.
      data, summarize: as for `Assert`.
      message: a text before them.
      name: scope of the operations.
    """
    graph = graph_of([x, y])
    left = graph.as_tensor(x)
    step = 10 * float(jnp.finfo(left.dtype).eps)  # type: ignore[no-untyped-call]
    relative, absolute = (step if one is None else one for one in (rtol, atol))

    def is_near(one: Any, other: Any) -> Any:
        return jnp.abs(one - other) <= absolute + relative * jnp.abs(other)

    about = f"within relative {relative} and absolute {absolute} tolerance of"
    compare = _comparison(is_near, about, "assert_near")
    op: Operation = compare(left, y, data, summarize, message, name or "assert_near")
    return op


def assert_rank(
    x: Any,
    rank: int,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Checks that a tensor has a rank: now if the graph knows it, else in the step.

    Args:
      x: the tensor.
      rank: the rank.
      data, summarize: of a check in the step, as for `Assert`; None for the shape.
      message: a text before that of the error.
      name: scope of the operation.

    Returns:
      An operation for `control_dependencies`, which does nothing if the rank is checked now.

    Raises:
      ValueError: if the tensor has another rank, or `rank` is a tensor that only a step knows.
      InvalidArgumentError: in the step, if its rank was unknown and is another one.
    """
    scope, rank = name or "assert_rank", known_int(rank, "rank")
    shown = data, summarize, message
    return _assert_rank(x, lambda n: n == rank, f"rank {rank}", shown, scope)


def assert_rank_at_least(
    x: Any,
    rank: int,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Checks that a tensor has at least a rank; see `assert_rank`."""
    rank, shown = known_int(rank, "rank"), (data, summarize, message)
    scope, wanted = name or "assert_rank_at_least", f"rank at least {rank}"
    return _assert_rank(x, lambda n: n >= rank, wanted, shown, scope)


def assert_rank_in(
    x: Any,
    ranks: Sequence[int],
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Checks that a tensor has one of several ranks; see `assert_rank`."""
    ranks, shown = known_ints(ranks, "ranks"), (data, summarize, message)
    scope, wanted = name or "assert_rank_in", f"a rank of {tuple(ranks)}"

    def is_wanted(n: Any) -> Any:
        return reduce(operator.or_, [n == rank for rank in ranks], False)

    return _assert_rank(x, is_wanted, wanted, shown, scope)


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """Returns a tensor. Raises ValueError unless it is a scalar."""
    return _check_rank(tensor, lambda n: n == 0, "rank 0", message)


def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Operation:
    """Returns an operation that does nothing. Raises TypeError unless a tensor has a dtype."""
    found = graph_of([tensor]).as_tensor(tensor)
    if found.dtype != as_dtype(tf_type):
        raise TypeError(_with(message, f"{found!r} must be of type {as_dtype(tf_type)}"))
    return _nothing(found, name or "assert_type", "statically_determined_correct_type")


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """Returns an operation that does nothing. Raises TypeError unless a tensor is of integers."""
    found = graph_of([x]).as_tensor(x)
    if not jnp.issubdtype(found.dtype, jnp.integer):
        raise TypeError(_with(message, f"expected a tensor of integers, got {found!r}"))
    return _nothing(found, name or "assert_integer", "statically_determined_was_integer")


def _nothing(tensor: Tensor, scope: str, name: str) -> Operation:
    """Returns an operation that does nothing, for what was checked when the graph was built."""
    with tensor.graph.as_default(), name_scope(scope):
        return no_op(name)


def _assert_rank(
    x: Any,
    is_wanted: Callable[[Any], Any],
    wanted: str,
    shown: tuple[Sequence[Any] | None, int | None, str | None],
    scope: str,
) -> Operation:
    """Checks a rank; `shown` is data, summarize and message of `assert_rank`."""
    data, summarize, message = shown
    tensor: Tensor = graph_of([x]).as_tensor(x)
    if tensor.aval.shape is not None:
        return _nothing(_check_rank(tensor, is_wanted, wanted, message), scope, _RANK_IS_KNOWN)
    graph = tensor.graph
    with graph.as_default(), name_scope(scope):
        holds = graph.apply(is_wanted, (_rank(tensor),), name="Equal")
        parts = data if data is not None else _shape_shown(tensor, wanted)
        return Assert(holds, [*_told(message), *parts], summarize, name="Assert/Assert")


def _shape_shown(tensor: Tensor, wanted: str) -> list[Any]:
    return [f"Tensor {tensor.name} must have {wanted}. Received shape:", _shape(tensor)]


def _check_rank(
    x: Any, is_wanted: Callable[[int], bool], wanted: str, message: str | None
) -> Tensor:
    tensor: Tensor = graph_of([x]).as_tensor(x)
    shape = declared(tensor.aval.shape)
    if shape is None:
        raise ValueError(_with(message, f"the rank of {tensor!r} is unknown until it is fed"))
    if not is_wanted(len(shape)):
        raise ValueError(_with(message, f"{tensor!r} must have {wanted}, got rank {len(shape)}"))
    return tensor


def _with(message: str | None, text: str) -> str:
    return text if message is None else f"{message} {text}"
