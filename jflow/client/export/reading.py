"""Reads programs by tracing them again, so that JAX checks every primitive and type."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.experimental.xla_metadata
import jax.export
import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import MESH, DeviceSpec
from jflow.base.values import AbstractValue, Array, HostArray, host_abstract, parsed_dim
from jflow.client.export import special
from jflow.client.export.archive import Archive
from jflow.client.export.document import (
    DEVICE_KEY,
    WINDOW_KEY,
    Equation,
    LiteralEntry,
    Node,
    ProgramEntry,
    ResourceEntry,
    VariableEntry,
)
from jflow.client.export.params import decode_param, dtype_of
from jflow.client.export.primitives import OWN, check_params, primitives
from jflow.compiler.graph import ResourceRef, VariableRef, device, loop
from jflow.compiler.graph.request import empty_request_scope
from jflow.errors import InvalidArgumentError
from jflow.plan.state import check_sharding
from jflow.plan.validator import VALIDATOR
from jflow.plan.xla import jaxprs


class ProgramReader:
    """Looks up the entries of a document's tables and converts them for this process.

    Args:
      archive: the file's content.
      owner: what the variables and resources belong to: a graph or a connection.
      symbols: sizes for symbols in the document; others are new symbols of this process.
      prefix: what the names of variables and resources begin with, unless they are shared.
      clear_devices: whether to leave out the requested devices.
    """

    def __init__(
        self,
        archive: Archive,
        owner: Any,
        symbols: dict[str, Any] | None = None,
        *,
        prefix: str = "",
        clear_devices: bool = False,
    ) -> None:
        self._owner = owner
        self._prefix = prefix
        self._clear_devices = clear_devices
        self._archive = archive
        self._document = archive.document
        self._symbols: dict[str, Any] = dict(symbols or {})
        self._avals: dict[int, AbstractValue] = {}
        self._programs: dict[int, jex.ClosedJaxpr] = {}
        self._exported: dict[int, jax.export.Exported] = {}
        self._variables: dict[int, VariableRef] = {}
        self._resources: dict[int, ResourceRef] = {}
        self._reading = len(self._document.programs)

    def dim(self, text: str) -> Any:
        """Parses the expression of a size. Raises InvalidArgumentError if it is malformed."""
        try:
            return parsed_dim(text, self._symbols)
        except ValueError as error:
            raise self.error(f"a size is malformed: {error}") from None

    def aval(self, index: int) -> AbstractValue:
        """Returns an abstract value by index."""
        aval = self._avals.get(index)
        if aval is None:
            entry = self._at(self._document.avals, index, "type")
            shape = entry.shape
            sizes = (
                None
                if shape is None
                else tuple(self.dim(n) if isinstance(n, str) else n for n in shape)
            )
            if any(isinstance(size, int) and size < 0 for size in sizes or ()):
                raise self.error(f"the shape {sizes} has a negative size")
            dtype = dtype_of(entry.dtype)
            aval = host_abstract(sizes, dtype)
            if entry.is_on_host:
                aval = HostArray(sizes, dtype)
            elif isinstance(aval, HostArray):
                raise self.error(f"a program cannot have a value of dtype {entry.dtype}")
            elif entry.is_weak:
                aval = jax.core.ShapedArray(aval.shape, dtype, weak_type=True)
            self._avals[index] = aval
        return aval

    def array(self, index: int) -> Array:
        """Returns an array by index."""
        array: Array = self._at(self._archive.arrays, index, "array")
        return array

    def exported(self, index: int) -> jax.export.Exported:
        """Returns a StableHLO program by index, as the validator process has written it."""
        if index not in self._exported:
            data = self._at(self._archive.programs, index, "StableHLO program")
            try:
                digest = hashlib.sha256(data).hexdigest()
                valid = VALIDATOR.validate(digest, data).result()
            except InvalidArgumentError as error:
                raise self.error(f"programs/{index}: {error.message}") from error
            self._exported[index] = jax.export.deserialize(bytearray(valid.data))
        return self._exported[index]

    def variable(self, index: int) -> VariableRef:
        """Returns a variable by index."""
        if index not in self._variables:
            entry: VariableEntry = self._at(self._document.variables, index, "variable")
            aval = self.aval(entry.aval)
            assert aval.shape is not None
            spec = self.spec(entry.device)
            self._variables[index] = VariableRef(
                self._prefix + entry.name if entry.is_own else entry.name,
                entry.container,
                aval.shape,
                aval.dtype,
                spec,
                self._owner,
                _sharding(entry, len(aval.shape), spec),
            )
        return self._variables[index]

    def resource(self, index: int) -> ResourceRef:
        """Returns a resource by index."""
        if index not in self._resources:
            entry: ResourceEntry = self._at(self._document.resources, index, "resource")
            self._resources[index] = ResourceRef(
                entry.kind,
                entry.name if entry.is_shared else self._prefix + entry.name,
                entry.container,
                entry.definition,
                entry.is_shared,
                self.spec(entry.device),
                self._owner,
            )
        return self._resources[index]

    def spec(self, device_name: str) -> DeviceSpec:
        """Returns the request of a device, which is empty if devices are left out."""
        return DeviceSpec() if self._clear_devices else DeviceSpec.parse(device_name)

    def own(self, node: Node) -> tuple[jex.Primitive, dict[str, Any]]:
        """Returns jflow's primitive of an operation, and its parameters.

        Raises:
          InvalidArgumentError: if there is no such primitive.
          TypeError: if it does not take such parameters.
        """
        primitive = OWN.get(node.primitive)
        if primitive is None:
            raise self.error_of(node, f"there is no primitive {node.primitive!r:.80}")
        params = self._params(node.params)
        check_params(primitive, params)
        return primitive, params

    def _params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {key: decode_param(value, self) for key, value in params.items()}

    def program(self, index: int) -> jex.ClosedJaxpr:
        """Returns a program by index, which may refer only to programs before it."""
        if index not in self._programs:
            if index >= self._reading:
                raise self.error(f"program {self._reading} refers to program {index}")
            before, self._reading = self._reading, index
            try:
                self._programs[index] = self._trace_program(index)
            finally:
                self._reading = before
        return self._programs[index]

    def operation(self, index: int) -> jex.ClosedJaxpr:
        """Returns a program by index, wrapped as a single equation without constants."""
        closed = self.program(index)
        if len(closed.eqns) != 1 or closed.consts:
            shapes = [*map(jaxprs.shape_of, closed.in_avals)]
            with empty_request_scope():
                closed = jax.make_jaxpr(jax.jit(jex.jaxpr_as_fun(closed)))(*shapes)
            self._programs[index] = closed
        return closed

    def _trace_program(self, index: int) -> jex.ClosedJaxpr:
        program = self._at(self._document.programs, index, "program")

        def call(*args: Any) -> Any:
            return self.evaluate(program, args)

        shapes = []
        for number in program.inputs:
            aval = self.aval(number)
            if isinstance(aval, HostArray):
                raise self.error(f"program {index} takes a value of the host")
            shapes.append(jaxprs.shape_of(aval))
        with empty_request_scope():
            return jax.make_jaxpr(call)(*shapes)

    def evaluate(self, program: ProgramEntry, args: Sequence[Any]) -> list[Any]:
        """Evaluates or traces a program by binding each of its primitives."""
        values = [*args, *(self.array(number) for number in program.constants)]
        for equation in program.equations:
            values.extend(self._results(equation, self.operands(equation.inputs, values)))
        return self.operands(program.outputs, values)

    def operands(self, atoms: Sequence[int | LiteralEntry], values: Sequence[Any]) -> list[Any]:
        """Returns the values of operands, which are numbers or literals."""
        return [
            self.scalar(x) if isinstance(x, LiteralEntry) else self._at(values, x, "value")
            for x in atoms
        ]

    def scalar(self, entry: LiteralEntry) -> Any:
        """Decodes a literal to a NumPy scalar, or to a Python number if it is weakly typed."""
        aval: Any = self.aval(entry.aval)
        kind = np.dtype(bool) if aval.dtype == jax.dtypes.float0 else aval.dtype
        if aval.shape != () or not isinstance(kind, np.dtype) or len(entry.value) != kind.itemsize:
            raise self.error(f"{entry.value!r:.40} is not a scalar of {aval}")
        if aval.dtype == jax.dtypes.float0:
            return np.zeros((), jax.dtypes.float0)
        value = np.frombuffer(entry.value, kind)[0]
        if not aval.weak_type:
            return value
        plain = value.item()
        # Python has one float and one int; a weak value of another dtype is converted to it.
        if jax.dtypes.canonicalize_dtype(type(plain)) == kind:
            return plain
        convert_p = jex.primitives.convert_element_type_p
        return convert_p.bind(value, new_dtype=kind, weak_type=True, sharding=None)

    def _results(self, equation: Equation, operands: list[Any]) -> list[Any]:
        name = equation.primitive
        params = self._params(equation.params)
        compute: Any = special.READERS.get(name)
        if compute is None and name in primitives():
            compute = primitives()[name].bind
        if compute is None:
            raise self.error(f"JAX {jax.__version__} has no primitive {name!r:.80}")
        settings: Any = jax.config
        try:
            with ExitStack() as blocks:
                if equation.is_partitionable != settings.jax_threefry_partitionable:
                    blocks.enter_context(jax.threefry_partitionable(equation.is_partitionable))
                metadata = dict(equation.metadata)
                device_name = metadata.pop(DEVICE_KEY, None)
                if device_name is not None and not self._clear_devices:
                    blocks.enter_context(device(device_name))
                if (window := metadata.pop(WINDOW_KEY, None)) is not None:
                    blocks.enter_context(loop(window=window))
                if metadata:
                    scope = jax.experimental.xla_metadata.set_xla_metadata(**metadata)
                    blocks.enter_context(scope)
                results = compute(*operands, **params)
        except InvalidArgumentError:
            raise
        except Exception as error:  # of JAX's rules, which raise many kinds
            raise self.error(f"JAX refuses {name!r:.80}: {error}") from error
        is_many = isinstance(results, list | tuple)
        return self._check_results(name, list(results) if is_many else [results], equation.outputs)

    def _check_results(self, name: str, results: list[Any], outputs: Sequence[int]) -> list[Any]:
        expected_avals = [self.aval(number) for number in outputs]
        types = [(np.shape(value), value.dtype) for value in results]
        if types != [(aval.shape, aval.dtype) for aval in expected_avals]:
            raise self.error(
                f"{name!r:.80} gives {types!r:.200}, "
                f"expected {[str(x) for x in expected_avals]!r:.200}"
            )
        return results

    def _at(self, table: Sequence[Any], index: Any, what: str) -> Any:
        if not isinstance(index, int) or not 0 <= index < len(table):
            raise self.error(f"there is no {what} {index!r:.40}")
        return table[index]

    def error(self, what: str) -> InvalidArgumentError:
        """Returns the error for a malformed document; names the versions of JAX if they differ."""
        written, here = self._document.jax, jax.__version__
        versions = "" if written == here else f" (written with JAX {written}, read with {here})"
        return InvalidArgumentError(f"malformed exported graph: {what}{versions}")

    def error_of(self, node: Node, what: str) -> InvalidArgumentError:
        """Returns the error for a malformed operation."""
        return self.error(f"operation {node.name!r}: {what}")


def _sharding(entry: VariableEntry, n_dimensions: int, spec: DeviceSpec) -> str:
    """Returns the sharding of a variable, "" if it is not imported on a mesh.

    Raises:
      InvalidArgumentError: if it does not fit the mesh or the dimensions.
    """
    if not entry.sharding or spec.type != MESH:
        return ""
    try:
        check_sharding(entry.sharding, spec.axes or (), n_dimensions)
    except ValueError as error:
        raise InvalidArgumentError(f"variable {entry.name!r}: {error}") from None
    return entry.sharding
