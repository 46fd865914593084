"""Verifies that the comparators of sorts define an order.

`std::sort`, which XLA calls on a CPU, leaves its buffer if its comparator is no strict weak order:
if values compare less in a circle, or a NaN compares like all others. Whether any function is an
order cannot be decided, so comparators must have the form of those that JAX emits: keys of the left
and of the right values are compared lexicographically,

    order := less(key) | less(key) or (equal(key) and order)

where a key is one function of either side, and floats are compared by their total order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.plan.xla.internals import MLIR
from jflow.plan.xla.vocabulary import names

_OF_KEYS = frozenset(
    f"stablehlo.{name}"
    for name in names(
        "abs and bitcast_convert compare complex constant convert imag is_finite negate not or real"
        " select sign xor"
    )
)
"""Operations that keys may consist of: exact ones, which give the same result each time."""

_LEFT, _RIGHT, _BOTH = 1, 2, 3


@dataclass(frozen=True)
class _Key:
    """A value as a function of the left or right elements; equal functions have equal numbers."""

    number: int
    sides: int


@dataclass(frozen=True)
class _Less:
    key: int


@dataclass(frozen=True)
class _Equal:
    key: int


@dataclass(frozen=True)
class _Tied:
    """The condition that one key is equal on both sides and another order holds."""

    key: int


@dataclass(frozen=True)
class _Order:
    """A lexicographic order by several keys."""


_Meaning = _Key | _Less | _Equal | _Tied | _Order | None


def check_comparator(block: Any) -> None:
    """Rejects a comparator that is not certain to be an order.

    Args:
      block: an MLIR block whose arguments are pairs of a left and a right value.

    Raises:
      InvalidArgumentError: if it does not have the form of those of JAX.
    """
    if not _Comparator(block).is_order():
        raise InvalidArgumentError(
            "a program sorts by a comparator that is not one of those of jax.lax.sort; sort by "
            "keys instead (jax.lax.sort with num_keys)"
        )


def compare_totally(block: Any) -> None:
    """Makes all comparisons of floats in an MLIR block use their total order.

    `jax.lax.approx_max_k` compares floats as numbers, which is no order where there are NaNs.
    """
    for op in block.operations:
        operation = op.operation
        if operation.name != "stablehlo.compare":
            continue
        if isinstance(_element(operation.operands[0]), MLIR.FloatType):
            total = MLIR.Attribute.parse("#stablehlo<comparison_type TOTALORDER>")
            operation.attributes["compare_type"] = total


def _element(value: Any) -> Any:
    return MLIR.RankedTensorType(value.type).element_type


class _Comparator:
    """Abstract interpretation of a comparator: the meaning of each of its values."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._numbers: dict[Any, int] = {}
        self._meanings: dict[Any, _Meaning] = {
            value: self._key(("argument", number // 2), _RIGHT if number % 2 else _LEFT)
            for number, value in enumerate(block.arguments)
        }

    def is_order(self) -> bool:
        """Whether the comparator returns a strict order of its arguments."""
        for op in self._block.operations:
            operation = op.operation
            operands = [self._meaning(value) for value in operation.operands]
            if operation.name.endswith(".return"):
                return len(operands) == 1 and isinstance(operands[0], _Less | _Order)
            if len(operation.results) != 1 or len(operation.regions):
                return False
            self._meanings[operation.results[0]] = self._result(operation, operands)
        return False

    def _meaning(self, value: Any) -> _Meaning:
        if value not in self._meanings:
            # From outside of the comparator, so it is the same in all comparisons.
            self._meanings[value] = self._key(("outside", value), 0)
        return self._meanings[value]

    def _key(self, form: tuple[Any, ...], sides: int) -> _Key:
        return _Key(self._numbers.setdefault(form, len(self._numbers)), sides)

    def _result(self, operation: Any, operands: list[_Meaning]) -> _Meaning:
        name = operation.name
        keys = [one for one in operands if isinstance(one, _Key)]
        if len(keys) < len(operands):
            return _combined(name, operands)
        sides = 0
        for key in keys:
            sides |= key.sides
        if sides == _BOTH:
            return self._comparison(operation, keys)
        if name not in _OF_KEYS:
            return None
        attributes = tuple(sorted((key, str(one)) for key, one in operation.attributes.items()))
        form = (name, str(operation.results[0].type), attributes, *(key.number for key in keys))
        return self._key(form, sides)

    def _comparison(self, operation: Any, keys: list[_Key]) -> _Meaning:
        if operation.name != "stablehlo.compare" or len(keys) != 2:
            return None
        left, right = keys
        if left.number != right.number or {left.sides, right.sides} != {_LEFT, _RIGHT}:
            return None
        element = _element(operation.operands[0])
        if isinstance(element, MLIR.FloatType):
            if "TOTALORDER" not in str(operation.attributes.get("compare_type")):
                return None
        elif not isinstance(element, MLIR.IntegerType):
            return None
        direction = str(operation.attributes["comparison_direction"])
        if "LT" in direction or "GT" in direction:
            return _Less(left.number)
        return _Equal(left.number) if "EQ" in direction else None


def _combined(name: str, operands: list[_Meaning]) -> _Meaning:
    if len(operands) != 2:
        return None
    for one, other in (operands, operands[::-1]):
        if name == "stablehlo.and" and isinstance(one, _Equal):
            return _Tied(one.key) if isinstance(other, _Less | _Order) else None
        if name == "stablehlo.or" and isinstance(one, _Less) and isinstance(other, _Tied):
            return _Order() if one.key == other.key else None
    return None
