"""Reads the native calls of a StableHLO module, and rewrites them to exactly what was read.

XLA reads the options of a call from one of two attributes, by rules of its own. A call that has
both must have the same in them; it is emitted with the one that JAX writes.
"""

from __future__ import annotations

from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.plan.xla.custom_calls import UNKNOWN, CallBuffer, CustomCall, is_replaced_by_xla
from jflow.plan.xla.internals import MLIR, output_operand_alias

_OPTIONS = "mhlo.backend_config"
_OTHER_OPTIONS = "backend_config"
_OF_REPLACED = frozenset({"api_version", _OTHER_OPTIONS, "mhlo.sharding", "sdy.sharding"})
_EMITTED = frozenset(
    {"call_target_name", "operand_layouts", "result_layouts", "output_operand_aliases", _OPTIONS}
    | {"called_computations", "has_side_effect", "error_message", "indices_of_shape_operands"}
)


def native_call(operation: Any) -> CustomCall:
    """Parses a `stablehlo.custom_call`.

    Raises:
      InvalidArgumentError: if it has two different sets of options, or aliases buffers of
        different types.
    """
    target = MLIR.StringAttr(operation.attributes["call_target_name"]).value
    call = CustomCall(
        target,
        tuple(_buffer(operand.type) for operand in operation.operands),
        tuple(_buffer(result.type) for result in operation.results),
        _options(target, operation.attributes),
    )
    _check_aliases(call, operation)
    return call


def emit_as_checked(operation: Any, call: CustomCall) -> None:
    """Removes all attributes of a native call that were not read."""
    attributes = _EMITTED | _OF_REPLACED if is_replaced_by_xla(call) else _EMITTED
    for name in [name for name in operation.attributes.keys() if name not in attributes]:  # noqa: SIM118
        del operation.attributes[name]


def _options(target: str, attributes: Any) -> dict[str, Any]:
    written, other = attributes.get(_OPTIONS), attributes.get(_OTHER_OPTIONS)
    if isinstance(other, MLIR.DictAttr) and written is not None and other != written:
        raise InvalidArgumentError(
            f"a program calls the native function {target!r} with the options {written} and other "
            f"ones, {other}, of which XLA would take one"
        )
    if isinstance(other, MLIR.DictAttr) and written is None:
        attributes[_OPTIONS] = written = other
    if written is None:
        return {}
    # Numbers and booleans have a value; other attributes are kept as text.
    return {one.name: getattr(one.attr, "value", str(one.attr)) for one in MLIR.DictAttr(written)}


def _check_aliases(call: CustomCall, operation: Any) -> None:
    """Checks that aliased buffers have the same type."""
    n = len(call.results)
    for one in operation.attributes.get("output_operand_aliases") or ():
        alias = output_operand_alias(one)
        results, operand = list(alias.output_tuple_indices), alias.operand_index
        result = results[0] if results else 0
        is_one = results == ([] if n == 1 else [result]) and not list(alias.operand_tuple_indices)
        if (
            not is_one
            or not (0 <= result < n and 0 <= operand < len(call.operands))
            or call.results[result] != call.operands[operand]
        ):
            raise InvalidArgumentError(
                f"a program calls the native function {call.target!r}, a result of which shares "
                f"memory with an operand of another type: {one}; got {call}"
            )


def _buffer(kind: Any) -> CallBuffer:
    if not isinstance(kind, MLIR.RankedTensorType):
        return CallBuffer((), str(kind))  # a token
    sizes = range(kind.rank)
    shape = tuple(UNKNOWN if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in sizes)
    return CallBuffer(shape, str(kind.element_type))
