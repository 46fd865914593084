"""Checks StableHLO modules before native code compiles them.

XLA trusts what it compiles: sizes whose product overflows abort the process, deep nesting and
recursion overflow its stack, and `std::sort` leaves its buffer if a comparator is no order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

from jflow.errors import InvalidArgumentError
from jflow.plan.xla.collectives import COLLECTIVES, check_collective
from jflow.plan.xla.comparators import check_comparator, compare_totally
from jflow.plan.xla.custom_calls import CustomCall, check_custom_calls, is_native
from jflow.plan.xla.internals import MLIR, axes_in, axes_of, mesh_size, meshes_in
from jflow.plan.xla.native_calls import emit_as_checked, native_call
from jflow.plan.xla.vocabulary import ATTRIBUTES, BITS, OPERATIONS

MAX_BYTES = 1 << 48
"""The largest tensor of a program, in bytes, and the largest size; no machine has as much memory.

Products of a few such sizes still fit 64 bits.
"""

_MAX_CONSTANTS = 1 << 30
"""The bytes of all constants of a program, which the compiler writes out."""

MAX_DEPTH = 200
"""How deep branches, loops and calls are nested; the compiler's stack holds more than 1,000."""

_MAX_OPERATIONS = 1 << 22
"""The operations of a program once each call of a function is replaced by its body."""

_MAX_NESTING_OF_ATTRIBUTES = 8
_SORTS = frozenset({"ApproxTopK", "stablehlo.dynamic_approx_top_k"})
_REDUCES = "stablehlo.dynamic_reduce_window"


@dataclass(frozen=True)
class ModuleFacts:
    """Facts that the check of a module found.

    Attributes:
      has_loops: whether it has loops.
      is_pure: whether it gives the same results whenever it is given the same arguments.
      calls_native: whether it calls native functions.
    """

    has_loops: bool
    is_pure: bool
    calls_native: bool


def check_module(
    module: Any, *, sizes_known: bool, is_refined: bool = False, n_devices: int = 1
) -> ModuleFacts:
    """Rejects a module that could crash or hang a process that compiles and runs it.

    Its native calls keep only the attributes that were checked.

    Args:
      module: a StableHLO module of MLIR.
      sizes_known: whether it has static sizes only, so that native calls can be checked.
      is_refined: whether it was checked before its sizes were known, and XLA has changed it since.
      n_devices: the number of devices of its mesh; 1 if it is for a device.

    Raises:
      InvalidArgumentError: if it is refused; the message says why.
    """
    check = _Check(sizes_known, is_refined, n_devices)
    check.module(module)
    return ModuleFacts(
        "stablehlo.while" in check.used,
        "stablehlo.rng" not in check.used,
        any(map(is_native, check.native_calls)),
    )


@dataclass
class _Function:
    """A function of the module, as the check sees it.

    Attributes:
      operation: its operation.
      n_operations: the number of operations inside.
      depth: how deep they are nested.
      calls: the functions that they refer to, and how deep.
    """

    operation: Any
    n_operations: int = 0
    depth: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)


class _Check:
    """The check of one module, function by function.

    Attributes:
      used: the names of its operations.
      native_calls: its native calls.
    """

    def __init__(self, sizes_known: bool, is_refined: bool, n_devices: int) -> None:
        self.used: set[str] = set()
        self.native_calls: list[CustomCall] = []
        self._sizes_known = sizes_known
        self._is_refined = is_refined
        self._n_devices = n_devices
        self._functions: dict[str, _Function] = {}
        self._checked: set[Any] = set()
        self._n_constants = 0
        self._meshes: dict[str, list[tuple[str, int]]] = {}

    def module(self, module: Any) -> None:
        self._attributes(module.operation)
        if "sym_name" in module.operation.attributes:
            _symbol(module.operation)
        others = []
        for top in module.body.operations:
            operation = top.operation
            if operation.name == "func.func":
                self._functions[_symbol(operation)] = _Function(operation)
            else:
                others.append(operation)
        outside = _Function(module.operation)
        for operation in (*others, *(one.operation for one in self._functions.values())):
            self._operation(operation, self._function_of(operation) or outside, 0)
        self._check_calls()

    def _function_of(self, operation: Any) -> _Function | None:
        if operation.name != "func.func":
            return None
        return self._functions[_symbol(operation)]

    def _operation(self, operation: Any, function: _Function, depth: int) -> None:
        name = operation.name
        if name not in OPERATIONS and not self._is_refined:
            raise InvalidArgumentError(
                f"a program has the operation {name!r}, which is not one that JAX lowers functions "
                "of arrays to; programs cannot communicate or use dynamic types"
            )
        if depth > MAX_DEPTH:
            _refuse_depth()
        self.used.add(name)
        function.n_operations += 1
        function.depth = max(function.depth, depth)
        for result in operation.results:
            self._type(result.type)
        special = _SPECIAL.get(name)
        if special is not None:
            special(self, operation, function, depth)
        self._attributes(operation)
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    self._type(argument.type)
                for inner in block.operations:
                    self._operation(inner.operation, function, depth + 1)

    # Types and attributes ---------------------------------------------------------------------

    def _type(self, kind: Any) -> None:
        if kind in self._checked:
            return
        if not isinstance(kind, MLIR.RankedTensorType) or kind.encoding is not None:
            raise InvalidArgumentError(
                f"a program has a value of the type {kind!s:.80}, expected tensors of numbers"
            )
        bits = BITS.get(str(kind.element_type))
        if bits is None:
            raise InvalidArgumentError(
                f"a program has a tensor of {kind.element_type!s:.80}, which is not a dtype of JAX"
            )
        _check_size(kind, bits)
        self._checked.add(kind)

    def _attributes(self, operation: Any) -> None:
        attributes = operation.attributes
        for name in attributes.keys():  # noqa: SIM118 - no dictionary
            if name not in ATTRIBUTES and not self._is_refined:
                raise InvalidArgumentError(
                    f"a program has the attribute {name!r:.80}, which is unknown"
                )
            if name != "value":  # a constant, whose numbers may be any
                self._attribute(name, attributes[name], 0)

    def _attribute(self, name: str, value: Any, depth: int) -> None:
        if value in self._checked:
            return
        if depth > _MAX_NESTING_OF_ATTRIBUTES:
            raise InvalidArgumentError(f"a program has an attribute {name!r:.80} of many levels")
        if isinstance(value, MLIR.DictAttr):
            for one in value:
                self._attribute(one.name, one.attr, depth + 1)
        elif isinstance(value, MLIR.ArrayAttr):
            for inner in value:
                self._attribute(name, inner, depth + 1)
        elif any(abs(n) > MAX_BYTES for n in _integers(value)):
            raise InvalidArgumentError(
                f"a program has the attribute {name!r:.80} of {value!s:.80}, which is larger than "
                f"any tensor (at most {MAX_BYTES} bytes)"
            )
        for mesh in meshes_in(value):
            self._check_mesh(mesh)
        self._checked.add(value)

    # Single operations ------------------------------------------------------------------------

    def _constant(self, operation: Any, *_: Any) -> None:
        kind = operation.results[0].type
        # Python has no class for dense complex numbers.
        is_complex = isinstance(kind.element_type, MLIR.ComplexType)
        if not is_complex and not isinstance(operation.attributes["value"], MLIR.DenseElementsAttr):
            raise InvalidArgumentError("a program has a constant whose values are not in it")
        self._n_constants += _n_bytes(kind)
        if self._n_constants > _MAX_CONSTANTS:
            raise InvalidArgumentError(
                f"a program has constants of more than {_MAX_CONSTANTS} bytes; pass large arrays "
                "as arguments"
            )

    def _sort(self, operation: Any, *_: Any) -> None:
        check_comparator(operation.regions[0].blocks[0])

    def _window(self, operation: Any, *_: Any) -> None:
        check_window(operation)

    def _mesh(self, operation: Any, *_: Any) -> None:
        mesh = operation.attributes["mesh"]
        self._check_mesh(mesh)
        # StableHLO has it in a form of its own, of which groups of collectives are made.
        repeated = operation.attributes.get("stablehlo.mesh")
        if repeated is not None and axes_in(repeated) != axes_of(mesh):
            raise InvalidArgumentError(
                f"a program has the mesh {mesh!s:.80} in another form, {repeated!s:.80}"
            )
        self._meshes[_symbol(operation)] = axes_of(mesh)

    def _check_mesh(self, mesh: Any) -> None:
        if (size := mesh_size(mesh)) not in (1, self._n_devices):
            raise InvalidArgumentError(
                f"a program has the mesh {mesh!s:.80} of {size} devices, but it is for "
                f"{self._n_devices}"
            )

    def _collective(self, operation: Any, *_: Any) -> None:
        check_collective(operation, self._n_devices, self._meshes)

    def _call(self, operation: Any, function: _Function, depth: int) -> None:
        self._refer(operation.attributes["callee"], function, depth)

    def _composite(self, operation: Any, function: _Function, depth: int) -> None:
        self._refer(operation.attributes["decomposition"], function, depth)

    def _refer(self, symbol: Any, function: _Function, depth: int) -> None:
        function.calls.append((MLIR.FlatSymbolRefAttr(symbol).value, depth))

    def _custom_call(self, operation: Any, function: _Function, depth: int) -> None:
        call = native_call(operation)
        check_custom_calls([call], sizes_known=self._sizes_known)
        emit_as_checked(operation, call)
        self.native_calls.append(call)
        for symbol in operation.attributes.get("called_computations") or ():
            self._refer(symbol, function, depth)
            if call.target in _SORTS:
                self._check_comparator(symbol)
            elif call.target != _REDUCES:
                raise InvalidArgumentError(
                    f"a program calls the native function {call.target!r} with functions to call"
                )

    def _check_comparator(self, symbol: Any) -> None:
        """Checks the comparator of an approximate top k, which XLA replaces by a sort."""
        comparator = self._functions.get(MLIR.FlatSymbolRefAttr(symbol).value)
        if comparator is None or len(comparator.operation.regions[0].blocks) != 1:
            raise InvalidArgumentError(f"a program has no function {symbol!s:.80}")
        block = comparator.operation.regions[0].blocks[0]
        compare_totally(block)
        check_comparator(block)

    # Functions --------------------------------------------------------------------------------

    def _check_calls(self) -> None:
        """Rejects recursion, and programs that are too deep or too large once calls are inlined."""
        whole: dict[str, tuple[int, int]] = {}
        for name in self._functions:
            self._expand(name, whole, [])

    def _expand(
        self, name: str, whole: dict[str, tuple[int, int]], callers: list[str]
    ) -> tuple[int, int]:
        """Returns the depth and number of operations of a function with its callees inlined."""
        if name in whole:
            return whole[name]
        if name in callers:
            raise InvalidArgumentError(
                f"a program is recursive: its function {name!r:.80} calls itself"
            )
        function = self._functions.get(name)
        if function is None:
            raise InvalidArgumentError(f"a program calls {name!r:.80}, which it does not have")
        if len(callers) > MAX_DEPTH:
            _refuse_depth()
        depth, n_operations = function.depth, function.n_operations
        for called, at in function.calls:
            inner_depth, n_inner = self._expand(called, whole, [*callers, name])
            depth, n_operations = max(depth, at + inner_depth), n_operations + n_inner
        if depth > MAX_DEPTH:
            _refuse_depth()
        if n_operations > _MAX_OPERATIONS:
            raise InvalidArgumentError(
                f"a program has more than {_MAX_OPERATIONS} operations, if each call of a function "
                "is counted"
            )
        whole[name] = depth, n_operations
        return whole[name]


_SPECIAL: dict[str, Any] = {
    "func.call": _Check._call,
    "sdy.mesh": _Check._mesh,
    "stablehlo.composite": _Check._composite,
    "stablehlo.constant": _Check._constant,
    "stablehlo.convolution": _Check._window,
    "stablehlo.custom_call": _Check._custom_call,
    "stablehlo.reduce_window": _Check._window,
    "stablehlo.select_and_scatter": _Check._window,
    "stablehlo.sort": _Check._sort,
    **{f"stablehlo.{name}": _Check._collective for name in COLLECTIVES},
}
"""What is checked of single operations."""


def check_window(operation: Any) -> None:
    """Rejects windows whose operand is too large after padding and dilation."""
    attributes = operation.attributes
    kind = operation.operands[0].type
    if not isinstance(kind, MLIR.RankedTensorType) or not kind.has_static_shape:
        return
    paddings = _integers(attributes.get("padding"))
    dilations = _integers(attributes.get("base_dilations") or attributes.get("lhs_dilation"))
    padded = 1
    for number, size in enumerate(kind.shape):
        dilation = dilations[number] if number < len(dilations) else max(dilations, default=1)
        margin = paddings[2 * number : 2 * number + 2] if paddings else []
        padded *= max(size * max(dilation, 1) + sum(map(abs, margin)), 1)
    window = math.prod(max(n, 1) for n in _integers(attributes.get("window_dimensions")))
    if max(padded, window) > MAX_BYTES:
        raise InvalidArgumentError(
            f"a program has a window over {padded} elements once they are padded and dilated, of "
            f"{window} elements, expected at most {MAX_BYTES}"
        )


def check_name(name: str) -> str:
    """Returns a name that XLA may log unescaped. Raises InvalidArgumentError if unprintable."""
    if not name.isprintable():
        raise InvalidArgumentError(f"a program has a name that cannot be printed: {name!r:.80}")
    return name


def _symbol(operation: Any) -> str:
    return check_name(MLIR.StringAttr(operation.attributes["sym_name"]).value)


def _integers(value: Any) -> list[int]:
    """Returns the integers of an array attribute."""
    if isinstance(value, MLIR.IntegerAttr):
        return [value.value]
    if isinstance(value, MLIR.DenseI64ArrayAttr):
        return list(value)
    if isinstance(value, MLIR.DenseIntElementsAttr):
        return [value[i] for i in range(len(value))]
    return []


def _check_size(kind: Any, bits: int) -> None:
    n_bits = bits
    for i in range(kind.rank):
        if not kind.is_dynamic_dim(i):
            size = kind.get_dim_size(i)
            n_bits *= max(size, 1)
            if size < 0 or n_bits > 8 * MAX_BYTES:
                raise InvalidArgumentError(
                    f"a program has a value of the type {kind!s:.80}, expected at most {MAX_BYTES} "
                    "bytes"
                )


def _n_bytes(kind: Any) -> int:
    n_elements: int = math.prod(kind.shape)
    return -(-BITS.get(str(kind.element_type), 0) * n_elements // 8)


def _refuse_depth() -> NoReturn:
    raise InvalidArgumentError(
        f"a program nests branches, loops and calls deeper than {MAX_DEPTH}; write what repeats "
        "as a loop (jax.lax.fori_loop, jax.lax.scan)"
    )
