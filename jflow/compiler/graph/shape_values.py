"""Values of integer tensors that follow from the graph: constants, and sizes of other tensors.

TensorFlow's programs pass shapes as tensors, such as `tf.shape(x)` or `[tf.shape(x)[0], 10]`. XLA
needs each size as a number or a symbol, so the operations between are computed with symbols here,
like `constant_value_as_shape` of TensorFlow does for known sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.compiler.graph.graph import Operation, Tensor
from jflow.compiler.graph.primitives import constant_p
from jflow.plan.xla import internals

_MAX_SIZE = 64
"""Larger arrays are no shapes."""

_Value = Any
"""An ndarray of objects: an int, a symbolic size, or None for what is not known."""


def shape_value(tensor: Tensor) -> Any:
    """Returns the elements of an integer tensor as far as the graph determines them.

    The tensors that it follows from cannot be fed any more, because what is built with the value
    would not depend on it.

    Args:
      tensor: i[*shape], of known shape.

    Returns:
      object[*shape]: ints, symbolic sizes, and None where only a step knows the value.
    """
    evaluation = _Evaluation()
    value = evaluation.of(tensor)
    for used in evaluation.known_tensors():
        tensor.graph.prevent_feeding(used)
    return value


class _Evaluation:
    def __init__(self) -> None:
        self._known: dict[Operation, Sequence[_Value]] = {}

    def of(self, tensor: Tensor) -> _Value:
        pending = [tensor.op]
        while pending:  # not by recursion: a graph can be deeper than Python's stack
            op = pending[-1]
            missing = [x.op for x in op.inputs if x.op not in self._known] if _is_pure(op) else []
            if missing and all(map(_may_be_a_shape, op.outputs)):
                pending.extend(missing)
                continue
            pending.pop()
            self._known[op] = self._outputs(op)
        return self._known[tensor.op][tensor.index]

    def known_tensors(self) -> Iterator[Tensor]:
        """Yields the tensors of which elements are known."""
        for op, values in self._known.items():
            for tensor, value in zip(op.outputs, values, strict=True):
                if any(element is not None for element in np.ravel(value)):
                    yield tensor

    def _outputs(self, op: Operation) -> Sequence[_Value]:
        if op.eqn.primitive is constant_p:
            return [_constant(op.eqn.params["value"], op.outputs[0])]
        if not _is_pure(op) or not all(map(_may_be_a_shape, op.outputs)):
            return [_unknown(getattr(x.aval, "shape", None)) for x in op.outputs]
        inputs = iter([self._known[x.op][x.index] for x in op.inputs])
        atoms = op.eqn.invars
        values = [_literal(x) if isinstance(x, jex.Literal) else next(inputs) for x in atoms]
        return _equation(op.eqn, values)


def _is_pure(op: Operation) -> bool:
    name = op.eqn.primitive.name
    return op.loop is None and (name in _RULES or name == "jit")


def _may_be_a_shape(tensor: Tensor) -> bool:
    return _is_small_and_integer(tensor.aval)


def _is_small_and_integer(aval: Any) -> bool:
    sizes = aval.shape
    is_static = sizes is not None and all(isinstance(dim, int) for dim in sizes)
    return is_static and np.prod(sizes) <= _MAX_SIZE and np.issubdtype(aval.dtype, np.integer)


def _unknown(shape: Any) -> _Value:
    is_static = shape is not None and all(isinstance(dim, int) for dim in shape)
    # A value of unknown shape is only a source of sizes, which equations name themselves.
    sizes = shape if is_static and np.prod(shape) <= _MAX_SIZE else ()
    return np.full(sizes, None, object)


def _constant(value: Any, tensor: Tensor) -> _Value:
    return np.asarray(value, object) if _may_be_a_shape(tensor) else _unknown(tensor.aval.shape)


def _literal(atom: jex.Literal) -> _Value:
    return np.asarray(np.asarray(atom.val), object)


def _equation(eqn: jex.JaxprEqn, values: Sequence[_Value]) -> Sequence[_Value]:
    """Returns the results of an equation, None where they are not known."""
    outputs = [var.aval for var in eqn.outvars]
    if not all(map(_is_small_and_integer, outputs)):
        return [_unknown(getattr(aval, "shape", None)) for aval in outputs]
    if eqn.primitive.name == "jit":
        return _call(eqn, values)
    rule = _RULES.get(eqn.primitive.name)
    if rule is None:
        return [_unknown(getattr(aval, "shape", None)) for aval in outputs]
    return [np.asarray(rule(values, eqn.params), object)]


def _call(eqn: jex.JaxprEqn, values: Sequence[_Value]) -> Sequence[_Value]:
    closed: jex.ClosedJaxpr = eqn.params["jaxpr"]
    if eqn.params.get("name") == "floor_divide":
        return [_each(operator.floordiv)(values, {})]
    env: dict[Any, _Value] = dict(zip(closed.jaxpr.invars, values, strict=True))
    consts = [np.asarray(np.asarray(x), object) for x in closed.consts]
    env.update(zip(closed.jaxpr.constvars, consts, strict=True))

    def read(atom: Any) -> _Value:
        return _literal(atom) if isinstance(atom, jex.Literal) else env[atom]

    for inner in closed.jaxpr.eqns:
        results = _equation(inner, [read(x) for x in inner.invars])
        env.update(zip(inner.outvars, results, strict=True))
    return [read(x) for x in closed.jaxpr.outvars]


_Rule = Callable[[Sequence[_Value], Any], _Value]


def _each(fun: Callable[..., Any]) -> _Rule:
    """Returns the rule of an elementwise function; what is computed from None is None."""

    def of_elements(*elements: Any) -> Any:
        return None if any(x is None for x in elements) else fun(*elements)

    def rule(values: Sequence[_Value], _: Any) -> _Value:
        return np.frompyfunc(of_elements, len(values), 1)(*values)

    return rule


def _reduced(fun: Callable[[Any, Any], Any]) -> _Rule:
    def rule(values: Sequence[_Value], params: Any) -> _Value:
        result = values[0]
        for axis in sorted(params["axes"], reverse=True):
            rows = list(np.moveaxis(result, axis, 0))
            if not rows:
                return np.full(np.delete(result.shape, axis), None, object)
            result = rows[0]
            for row in rows[1:]:
                result = _each(fun)([result, row], params)
        return result

    return rule


def _extreme(is_better: Callable[[Any, Any], bool], a: Any, b: Any) -> Any:
    """Returns the larger or smaller number, None if that depends on the step.

    JAX takes every size for at least 1, and here one may be 0.
    """
    with_zeros = internals.with_smaller_symbols(None)
    try:
        return a if is_better(with_zeros(a), with_zeros(b)) else b
    except jax.errors.InconclusiveDimensionOperation:
        return None


def _broadcast(values: Sequence[_Value], params: Any) -> _Value:
    shape, kept = params["shape"], params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for axis, size in zip(kept, np.shape(values[0]), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(values[0], sizes), shape)


def _slice(values: Sequence[_Value], params: Any) -> _Value:
    starts, limits = params["start_indices"], params["limit_indices"]
    steps = params["strides"] or [1] * len(starts)
    return values[0][tuple(map(slice, starts, limits, steps))]


_RULES: dict[str, _Rule] = {
    "add": _each(operator.add),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda values, params: np.concatenate(values, params["dimension"]),
    "convert_element_type": lambda values, _: values[0],
    "copy": lambda values, _: values[0],
    "copy_p": lambda values, _: values[0],
    "dim_as_value": lambda _, params: params["dim"],
    "max": _each(partial(_extreme, operator.ge)),
    "min": _each(partial(_extreme, operator.le)),
    "mul": _each(operator.mul),
    "neg": _each(operator.neg),
    "reduce_prod": _reduced(operator.mul),
    "reduce_sum": _reduced(operator.add),
    "reshape": lambda values, params: np.reshape(values[0], params["new_sizes"]),
    "rev": lambda values, params: np.flip(values[0], params["dimensions"]),
    "slice": _slice,
    "squeeze": lambda values, params: np.squeeze(values[0], tuple(params["dimensions"])),
    "stack": lambda values, params: np.stack(values, params["axis"]),
    "sub": _each(operator.sub),
}
"""Rules by the names of JAX's primitives."""
