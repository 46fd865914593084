"""What the devices of a mesh compute and send for a program, as Shardy partitions it.

Shardy is the partitioner of XLA. It needs no devices: here it propagates the shardings of a program
and inserts all-reduces and reshards, as it does when the program is compiled, and what it gives is
counted. Collectives that the program itself has, in `jax.shard_map`, are counted beside them.

A collective takes the time of a ring. Of n devices, with B bytes on each, an all-reduce takes
2 (n - 1) messages of B / n bytes one after another; an all-gather, a reduce-scatter and an
all-to-all take n - 1, where B is the larger of operand and result. A permutation is one message.
See Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
2005.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, auto
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import sdy, stablehlo
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from jflow.base.cluster import Axes
from jflow.compiler.placement.equations import Vector
from jflow.plan.xla import internals
from jflow.plan.xla.collectives import COLLECTIVES, group_size
from jflow.plan.xla.hardware import in_mesh, mesh_of_axes
from jflow.plan.xla.jaxprs import allow_64_bits, needs_64_bits
from jflow.plan.xla.shardings import spec_of_text
from jflow.plan.xla.vocabulary import BITS


class Work(IntEnum):
    """What is summed over the operations of an equation; values are positions in vectors.

    Attributes:
      PRODUCTS, OTHERS: the work of matrix products and convolutions, and of all else, in the sizes
        that the operations have in the program.
      OWN_PRODUCTS, OWN_OTHERS: the same for one device, in the sizes that it computes.
      MESSAGES: how many messages of collectives a device sends one after another.
      BYTES: their bytes.
    """

    PRODUCTS = 0
    OTHERS = auto()
    OWN_PRODUCTS = auto()
    OWN_OTHERS = auto()
    MESSAGES = auto()
    BYTES = auto()


_PASSES = (
    "builtin.module(func.func(cse),sdy-propagation-pipeline,"
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true},cse))"
)
_LABEL = re.compile(r"equation=(\d+)")
_AXIS = re.compile(r'"([^"]+)"(?::\(\d+\)(\d+))?')
"""An axis, or a part of one with its size; `sdy` has no Python class for lists of them."""

_MANUAL = re.compile(r'"([^"]+)"')

_FREE = frozenset(
    f"stablehlo.{name}" for name in ("constant", "iota", "broadcast_in_dim", "reshape", "return")
) | {"sdy.constant", "sdy.return", "func.return", "sdy.sharding_constraint"}
_PRODUCTS = frozenset({"stablehlo.dot_general", "stablehlo.convolution"})

_Axes = Mapping[str, int]
"""Axes, or parts of axes, with their sizes."""

_Sharding = tuple[_Axes, ...]
"""The axes over which each dimension is divided."""


def partitioned_work(
    program: jex.ClosedJaxpr, axes: Axes, arguments: Sequence[str], results: Sequence[str]
) -> Vector:
    """Returns what each equation of a program takes on a mesh: f64[equations, len(Work)].

    Args:
      program: a pure program of static sizes.
      axes: those of the mesh.
      arguments: the shardings of the first arguments as text, see `jflow.plan.xla.shardings`;
        Shardy chooses those of others, and where the text is "".
      results: likewise of the first results.

    Raises:
      Exception: whatever JAX or MLIR raises if they cannot lower it.
    """
    module = _lowered(program, axes, arguments, results)
    with module.context:
        passmanager.PassManager.parse(_PASSES).run(module.operation)
        return _Module(module, axes).by_equation(len(program.jaxpr.eqns))


def _lowered(
    program: jex.ClosedJaxpr, axes: Axes, arguments: Sequence[str], results: Sequence[str]
) -> Any:
    fun = jex.jaxpr_as_fun(jex.ClosedJaxpr(_labelled(program.jaxpr), program.consts))
    mesh = mesh_of_axes(axes)
    given = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=declared or _open(mesh, aval))
        for aval, declared in _declared(mesh, program.in_avals, arguments)
    ]
    made = [declared for _, declared in _declared(mesh, program.out_avals, results)]
    with (
        allow_64_bits(needs_64_bits(program.jaxpr)),
        internals.no_source_locations(),
        in_mesh(mesh),
    ):
        jitted = jax.jit(fun, keep_unused=True, out_shardings=made)
        return jitted.trace(*given).lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")


def _declared(
    mesh: AbstractMesh, avals: Sequence[Any], texts: Sequence[str]
) -> Iterator[tuple[Any, NamedSharding | None]]:
    for i, aval in enumerate(avals):
        spec = spec_of_text(texts[i]) if i < len(texts) else None
        yield aval, None if spec is None else NamedSharding(mesh, spec)


def _open(mesh: AbstractMesh, aval: Any) -> NamedSharding:
    """Returns a sharding that says on which mesh a value is, and nothing else."""
    return NamedSharding(mesh, PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * len(aval.shape)))


def _labelled(jaxpr: jex.Jaxpr) -> jex.Jaxpr:
    """Returns a jaxpr whose equations have their numbers in their names for MLIR."""
    labelled = []
    for number, eqn in enumerate(jaxpr.eqns):
        origin = eqn.source_info
        name = type(origin.name_stack)().extend(f"equation={number}")
        labelled.append(eqn.replace(source_info=origin.replace(traceback=None, name_stack=name)))
    numbered: jex.Jaxpr = jaxpr.replace(eqns=labelled)
    return numbered


class _Module:
    """A partitioned module, whose values have shardings."""

    def __init__(self, module: Any, axes: Axes) -> None:
        self._axes = dict(axes)
        self._n_devices = math.prod(self._axes.values())
        self._functions: dict[str, Any] = {}
        self._of_functions: dict[str, Vector] = {}
        self._shardings: dict[Any, _Sharding] = {}
        self._meshes: dict[str, Sequence[tuple[str, int]]] = {}
        for top in module.body.operations:
            name = ir.StringAttr(top.attributes["sym_name"]).value
            if top.operation.name == "func.func":
                self._functions[name] = top.operation
            else:
                self._meshes[name] = internals.axes_of(top.attributes["mesh"])

    def by_equation(self, n_equations: int) -> Vector:
        """Returns the sums by the equations of the function "main"."""
        work = np.zeros((n_equations, len(Work)))
        number = 0
        for operation in self._operations_of("main"):
            # What Shardy adds for a result has no label; it belongs to what made the value.
            label = _LABEL.search(str(operation.location))
            number = int(label[1]) if label else number
            if n_equations:
                work[number] += self._work_of(operation)
        return work

    def _operations_of(self, name: str) -> list[Any]:
        """Returns the operations of a function, and notes the shardings of its arguments."""
        function = self._functions[name]
        block = function.regions[0].blocks[0]
        attributes = function.attributes
        given = ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else ()
        for argument, attribute in zip(block.arguments, given, strict=False):
            if "sdy.sharding" in ir.DictAttr(attribute):
                sharding = ir.DictAttr(attribute)["sdy.sharding"]
                self._shardings[argument] = self._sharding(sharding)
        return self._operations(block)

    def _operations(self, block: Any) -> list[Any]:
        """Returns the operations of a block, and notes the shardings of their results."""
        operations = [each.operation for each in block.operations]
        for operation in operations:
            shardings = self._result_shardings(operation)
            self._shardings.update(zip(operation.results, shardings, strict=False))
        return operations

    def _result_shardings(self, operation: Any) -> list[_Sharding]:
        attributes = operation.attributes
        if "sdy.sharding" in attributes:
            each = sdy.TensorShardingPerValueAttr(attributes["sdy.sharding"]).shardings
            return [*map(self._sharding, each)]
        for name in ("out_sharding", "sharding"):
            if name in attributes:
                return [self._sharding(attributes[name])]
        if operation.name == "sdy.manual_computation":
            each = sdy.TensorShardingPerValueAttr(attributes["out_shardings"]).shardings
            return [*map(self._sharding, each)]
        return []

    def _sharding(self, attribute: Any) -> _Sharding:
        sharding = sdy.TensorShardingAttr(attribute)
        by_dimension = []
        for dimension in map(sdy.DimensionShardingAttr, sharding.dimension_shardings):
            refs = map(sdy.AxisRefAttr, dimension.axes)
            by_dimension.append(dict(map(self._axis, refs)))
        return tuple(by_dimension)

    def _axis(self, ref: Any) -> tuple[str, int]:
        """Returns the name and size of an axis, or of a part of one."""
        if ref.sub_axis_info is None:
            return ref.name, self._axes[ref.name]
        part = sdy.SubAxisInfoAttr(ref.sub_axis_info)
        return f"{ref.name}:{part.pre_size}", part.size

    def _sharding_of(self, value: Any) -> _Sharding:
        return self._shardings.get(value, ())

    # Sums over operations ---------------------------------------------------------------------

    def _work_of(self, operation: Any) -> Vector:
        """Returns the sums of an operation with all that it runs: f64[len(Work)]."""
        name = operation.name
        if name in _FREE:
            return _no_work()
        if name.removeprefix("stablehlo.") in COLLECTIVES:
            return self._collective(operation)
        return _RULES.get(name, _Module._computed)(self, operation)

    def _call(self, operation: Any) -> Vector:
        name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
        if name not in self._of_functions:
            self._of_functions[name] = self._sum(self._operations_of(name))
        return self._of_functions[name]

    def _loop(self, operation: Any) -> Vector:
        condition, body = (region.blocks[0] for region in operation.regions)
        for result, argument in zip(operation.results, body.arguments, strict=True):
            self._shardings[argument] = self._sharding_of(result)
        return _trips(condition, operation.operands) * self._sum(self._operations(body))

    def _branches(self, operation: Any) -> Vector:
        bodies = [self._sum(self._operations(region.blocks[0])) for region in operation.regions]
        longest: Vector = np.max(bodies, axis=0)
        return longest

    def _manual(self, operation: Any) -> Vector:
        """Returns the sums of a `shard_map`, whose operations see parts of the arguments."""
        body = operation.regions[0].blocks[0]
        manual = _MANUAL.findall(str(operation.attributes["manual_axes"]))
        given = sdy.TensorShardingPerValueAttr(operation.attributes["in_shardings"]).shardings
        for argument, sharding in zip(body.arguments, map(self._sharding, given), strict=True):
            self._shardings[argument] = tuple(
                {axis: size for axis, size in axes.items() if axis.split(":")[0] not in manual}
                for axes in sharding
            )
        return self._sum(self._operations(body))

    def _sum(self, operations: Iterable[Any]) -> Vector:
        return sum(map(self._work_of, operations), _no_work())

    def _computed(self, operation: Any) -> Vector:
        values = [*operation.operands, *operation.results]
        amount = _amount(operation, values)
        own = amount / _n_parts(*map(self._sharding_of, values))
        work = _no_work()
        is_product = operation.name in _PRODUCTS
        work[Work.PRODUCTS if is_product else Work.OTHERS] = amount
        work[Work.OWN_PRODUCTS if is_product else Work.OWN_OTHERS] = own
        return work

    def _all_reduce(self, operation: Any) -> Vector:
        (result,) = operation.results
        named = _AXIS.findall(str(operation.attributes["reduction_axes"]))
        n = math.prod(int(part) if part else self._axes[axis] for axis, part in named)
        return _ring(2, n, _bytes(result) / _n_parts(self._sharding_of(result)))

    def _reshard(self, operation: Any) -> Vector:
        """Returns the messages of a change of sharding.

        Dimensions are divided further before anything is sent, which sends nothing itself.
        """
        (operand,), (result,) = operation.operands, operation.results
        before, after = self._sharding_of(operand), self._sharding_of(result)
        gathered: dict[str, int] = {}
        moved: dict[str, int] = {}
        left = {axis for axes in after for axis in axes}
        for i, axes in enumerate(before):
            kept = after[i] if i < len(after) else {}
            for axis, size in axes.items():
                if axis not in kept:
                    (moved if axis in left else gathered)[axis] = size
        own = _bytes(result) / _n_parts(after)
        work = _ring(1, math.prod(gathered.values()), own)
        work += _ring(1, math.prod(moved.values()), own)
        is_reordered = any(
            [axis for axis in b if axis in a] != [axis for axis in a if axis in b]
            for b, a in zip(before, after, strict=False)
        )
        return work + _sent(1, own) if is_reordered else work

    def _collective(self, operation: Any) -> Vector:
        """Returns the messages of a collective that the program itself has, in `shard_map`."""
        name = operation.name.removeprefix("stablehlo.")
        n_bytes = [_bytes(value) for value in (*operation.operands, *operation.results)]
        if name == "collective_permute":
            pairs = np.array(ir.DenseIntElementsAttr(operation.attributes["source_target_pairs"]))
            moves = pairs.reshape(-1, 2)
            return _sent(1, max(n_bytes)) if (moves[:, 0] != moves[:, 1]).any() else _no_work()
        if name == "collective_broadcast":
            return _sent(1, max(n_bytes))
        n = group_size(operation, self._n_devices, self._meshes)
        n_operands = len(operation.operands)
        largest = map(max, n_bytes[:n_operands], n_bytes[n_operands:])
        return sum((_ring(2 if name == "all_reduce" else 1, n, b) for b in largest), _no_work())


_RULES = {
    "func.call": _Module._call,
    "stablehlo.while": _Module._loop,
    "stablehlo.case": _Module._branches,
    "stablehlo.if": _Module._branches,
    "sdy.manual_computation": _Module._manual,
    "sdy.all_reduce": _Module._all_reduce,
    "sdy.reshard": _Module._reshard,
}


def _no_work() -> Vector:
    return np.zeros(len(Work))


def _sent(messages: float, n_bytes: float) -> Vector:
    work = _no_work()
    work[Work.MESSAGES], work[Work.BYTES] = messages, n_bytes
    return work


def _ring(rounds: int, n: int, n_bytes: float) -> Vector:
    """Returns the messages of a device in so many rounds of a ring of n devices."""
    return _sent(rounds * (n - 1), rounds * (n - 1) / n * n_bytes)


def _n_parts(*shardings: _Sharding) -> int:
    """Returns into how many parts an operation on values of these shardings is divided."""
    axes = {axis: size for one in shardings for each in one for axis, size in each.items()}
    return math.prod(axes.values())


def _shape(value: Any) -> Sequence[int]:
    return ir.RankedTensorType(value.type).shape


def _bytes(value: Any) -> float:
    bits = BITS.get(str(ir.RankedTensorType(value.type).element_type), 32)
    return float(math.prod(_shape(value)) * bits / 8)


def _amount(operation: Any, values: Sequence[Any]) -> float:
    """Returns the work of an operation, in the unit of its kind: products, else elements."""
    n_results = sum(math.prod(_shape(result)) for result in operation.results)
    match operation.name:
        case "stablehlo.dot_general":
            numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
            sizes = _shape(operation.operands[0])
            return float(
                n_results * math.prod(sizes[i] for i in numbers.lhs_contracting_dimensions)
            )
        case "stablehlo.convolution":
            of_kernel = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
            sizes = _shape(operation.operands[1])
            summed = math.prod(sizes) // max(sizes[of_kernel.kernel_output_feature_dimension], 1)
            return float(n_results * summed)
    tensors = [value for value in values if isinstance(value.type, ir.RankedTensorType)]
    return float(max((math.prod(_shape(value)) for value in tensors), default=0))


def _trips(condition: Any, initial: Sequence[Any]) -> int:
    """Returns how often a loop runs if it counts from 0 up to a number, as a `scan` does; else 1.

    Args:
      condition: the block of its condition.
      initial: the values that the loop begins with.
    """
    compared = [op for op in condition.operations if op.operation.name == "stablehlo.compare"]
    if len(compared) != 1 or "LT" not in str(compared[0].attributes["comparison_direction"]):
        return 1
    counter, limit = compared[0].operands
    arguments = list(condition.arguments)
    if counter not in arguments or _integer(initial[arguments.index(counter)]) != 0:
        return 1
    return max(1, _integer(limit) or 1)


def _integer(value: Any) -> int | None:
    """Returns the number that a value is, if it is a constant integer."""
    maker = getattr(value.owner, "operation", None)  # None for a block
    if maker is None or maker.name not in ("sdy.constant", "stablehlo.constant"):
        return None
    kind = ir.RankedTensorType(value.type)
    if kind.rank or str(kind.element_type) not in ("i32", "i64", "ui32", "ui64"):
        return None
    return int(ir.DenseIntElementsAttr(maker.attributes["value"])[0])
