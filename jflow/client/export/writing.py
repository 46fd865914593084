"""Writes jaxprs: fills the tables of a document, with an entry for each equation.

An equation is written by the name of its primitive and its parameters. One whose parameters have no
written form, such as Python functions, is exported alone as StableHLO with its derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import jax
import jax.export
import jax.extend.core as jex
import numpy as np

from jflow.base.values import Array, HostArray, is_key, is_known, is_string_tensor, type_name
from jflow.client.export import special
from jflow.client.export.document import (
    DEVICE_KEY,
    WINDOW_KEY,
    ArrayEntry,
    Aval,
    Equation,
    LiteralEntry,
    ProgramEntry,
)
from jflow.client.export.params import UnexportableError, UnwritableError, dtype_text, encode_param
from jflow.client.export.primitives import primitives
from jflow.compiler.graph import ResourceRef, VariableRef, origin, request
from jflow.compiler.graph.hoisting import spans_devices
from jflow.compiler.lowering.limits import mesh_required
from jflow.plan.xla import jaxprs

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_SMALL = 4096
"""Arrays of at most this many bytes are compared with others by their content."""

T = TypeVar("T")


class EntryTable(list[T]):
    """A list of entries that are deduplicated by key."""

    def __init__(self) -> None:
        super().__init__()
        self._index: dict[Hashable, int] = {}

    def add(self, key: Hashable, make: Callable[[], T]) -> int:
        """Returns the index of the entry with a key; makes the entry if the key is new."""
        index = self._index.get(key)
        if index is None:
            entry = make()  # may add others before
            index = self._index[key] = len(self)
            self.append(entry)
        return index


class Tables:
    """The tables of the document that is being written, which its programs refer to.

    Args:
      variable, resource: give the index of a variable or resource.
    """

    def __init__(
        self, variable: Callable[[VariableRef], int], resource: Callable[[ResourceRef], int]
    ) -> None:
        self.variable = variable
        self.resource = resource
        self.avals: EntryTable[Aval] = EntryTable()
        self.arrays: EntryTable[Array] = EntryTable()
        self.programs: EntryTable[ProgramEntry] = EntryTable()
        self.blobs: EntryTable[bytes] = EntryTable()
        self._known: dict[jex.ClosedJaxpr, int] = {}
        self._alive: list[Any] = []  # so that ids are not reused
        self._depth = special.Depth()
        self._in_spanning = False

    @property
    def entries(self) -> tuple[ArrayEntry, ...]:
        """The entries of the arrays."""
        return tuple(ArrayEntry(tuple(array.shape), type_name(array)) for array in self.arrays)

    def aval(self, aval: Any) -> int:
        """Returns the index of an abstract value. Raises UnwritableError if it is no array."""
        if not isinstance(aval, jax.core.ShapedArray | HostArray):
            raise UnwritableError(f"a value of the type {aval}")
        shape = aval.shape
        sizes = None if shape is None else tuple(n if is_known(n) else str(n) for n in shape)
        is_weak = bool(getattr(aval, "weak_type", False))
        entry = Aval(sizes, dtype_text(aval.dtype), is_weak, isinstance(aval, HostArray))
        return self.avals.add(entry, lambda: entry)

    def array(self, array: Any) -> int:
        """Returns the index of an array. Raises UnwritableError if it holds random keys."""
        if is_key(array.dtype):
            raise UnwritableError("an array of random keys")
        values = np.asarray(array)
        key: Hashable = id(array)
        if values.nbytes <= _SMALL and not is_string_tensor(values):
            key = (values.shape, values.dtype.name, values.tobytes())
        else:
            self._alive.append(array)
        return self.arrays.add(key, lambda: values)

    def exported(self, exported: jax.export.Exported) -> int:
        """Returns the index of a StableHLO program, which is written with its derivative."""
        order = 1 if exported.has_vjp() else 0
        return self.blob(bytes(exported.serialize(vjp_order=order)))

    def blob(self, data: bytes) -> int:
        """Returns the index of a serialized StableHLO program."""
        return self.blobs.add(data, lambda: data)

    def program(self, jaxpr: jex.ClosedJaxpr) -> int:
        """Returns the index of a program, which follows the programs that it refers to."""
        index = self._known.get(jaxpr)
        if index is None:
            entry = self._program(jaxpr)
            index = self._known[jaxpr] = self.programs.add(repr(entry), lambda: entry)
        return index

    def _program(self, closed: jex.ClosedJaxpr) -> ProgramEntry:
        jaxpr = closed.jaxpr
        numbers = {var: i for i, var in enumerate((*jaxpr.invars, *jaxpr.constvars))}
        equations = []
        for eqn in jaxpr.eqns:
            equations.append(self.equation(eqn, numbers))
            for var in eqn.outvars:
                numbers[var] = len(numbers)
        return ProgramEntry(
            tuple(self.aval(var.aval) for var in jaxpr.invars),
            tuple(self.array(value) for value in closed.consts),
            tuple(equations),
            self.atoms(jaxpr.outvars, numbers),
        )

    def atoms(
        self, atoms: Sequence[jaxprs.Atom], numbers: dict[jex.Var, int]
    ) -> tuple[int | LiteralEntry, ...]:
        """Converts operands to their numbers, and literals to their types and bytes."""
        return tuple(self._scalar(x) if isinstance(x, jex.Literal) else numbers[x] for x in atoms)

    def _scalar(self, literal: jex.Literal) -> LiteralEntry:
        aval: Any = literal.aval
        if aval.shape != () or not isinstance(aval.dtype, np.dtype):
            raise UnwritableError(f"a literal of the type {aval}")
        kind = np.dtype(bool) if aval.dtype == jax.dtypes.float0 else aval.dtype
        return LiteralEntry(self.aval(aval), np.asarray(literal.val, kind).tobytes())

    def equation(self, eqn: jex.JaxprEqn, numbers: dict[jex.Var, int]) -> Equation:
        """Returns the entry of an equation.

        Raises:
          UnexportableError: if it has neither a written nor a StableHLO form; with its line.
        """
        inputs: Sequence[jaxprs.Atom] = eqn.invars
        metadata: dict[str, Any] = {}
        try:
            spanning, is_loop = self._in_spanning, spans_devices(eqn)
            self._in_spanning = spanning or is_loop
            try:
                name, params = self._structural(eqn)
            finally:
                self._in_spanning = spanning
            metadata = _metadata(eqn) | self._requested(eqn)
        except UnwritableError as reason:
            if is_loop:
                raise UnexportableError(
                    f"{_name_of(eqn)} runs on several devices, and has {reason}, which only "
                    "StableHLO for one device has"
                ) from None
            inputs = [*dict.fromkeys(x for x in inputs if not isinstance(x, jex.Literal))]
            name, params = special.EXPORTED, self._export_equation(eqn, inputs, str(reason))
        return Equation(
            name,
            params,
            self.atoms(inputs, numbers),
            tuple(self.aval(var.aval) for var in eqn.outvars),
            bool(eqn.ctx.threefry_partitionable),
            metadata,
        )

    def _requested(self, eqn: jex.JaxprEqn) -> dict[str, Any]:
        """Returns the request of an equation in the body of a loop over devices, and its window.

        Raises:
          UnexportableError: if the request is a function or another operation.
        """
        requested = request.requested(eqn)
        entries: dict[str, Any] = {}
        if requested.window is not None:
            entries[WINDOW_KEY] = requested.window
        if self._in_spanning and not requested.is_empty:
            if not requested.alone.is_resolved:
                raise UnexportableError(
                    f"{_name_of(eqn)} is in a loop over several devices, and a function or a "
                    "colocation requests its device; give the device by name"
                )
            entries[DEVICE_KEY] = str(requested.alone.spec)
        return entries

    def _structural(self, eqn: jex.JaxprEqn) -> tuple[str, dict[str, Any]]:
        _check_context(eqn)
        name = eqn.primitive.name
        rule = special.WRITERS.get(name)
        if rule is not None:
            name, params = rule(eqn, self._depth)
        elif primitives().get(name) is eqn.primitive:
            params = dict(eqn.params)
        else:
            raise UnwritableError(f"the primitive {name!r}, which jax.extend.core does not name")
        with self._depth.inside(params):
            return name, {key: self._param(key, value) for key, value in params.items()}

    def _param(self, name: str, value: Any) -> Any:
        try:
            return encode_param(value, self)
        except UnwritableError as error:
            raise UnwritableError(f"the parameter {name!r}, {error}") from None

    def _export_equation(
        self, eqn: jex.JaxprEqn, inputs: Sequence[jex.Var], reason: str
    ) -> dict[str, Any]:
        """Exports a single equation as a function of `inputs` for all possible platforms."""
        if (mesh := mesh_required(eqn)) is not None:
            raise UnexportableError(
                f"{_name_of(eqn)} requires {mesh}, and files hold no programs for meshes; leave it "
                "out of what is exported"
            )
        unplaced_eqn = request.replaced(eqn, None)
        fun = jax.jit(jex.jaxpr_as_fun(jaxprs.close(inputs, eqn.outvars, [unplaced_eqn])))
        module, cause = _export(fun, [jaxprs.shape_of(var.aval) for var in inputs])
        if module is None:
            raise UnexportableError(
                f"{_name_of(eqn)} has {reason}, and JAX cannot export it: {cause:.200}"
            )
        return {"program": {"exported": self.blob(module)}}


def _export(fun: Any, shapes: Sequence[Any]) -> tuple[bytes | None, str]:
    """Serializes a program for all platforms that can lower it; otherwise returns why none can."""
    causes: list[str] = []

    def serialize(platforms: Sequence[str]) -> bytes | None:
        for order in (1, 0):  # some programs have no derivative
            try:
                exported = jax.export.export(fun, platforms=platforms)(*shapes)
                return bytes(exported.serialize(vjp_order=order))
            except Exception as error:  # JAX raises many kinds
                causes.append(str(error).split("\n")[0])
        return None

    platforms = [platform for platform in _PLATFORMS if serialize([platform]) is not None]
    return (serialize(platforms), "") if platforms else (None, causes[-1])


def _name_of(eqn: jex.JaxprEqn) -> str:
    """Returns the name and the line of an equation, for messages."""
    return f"{eqn.primitive.name!r} (at {origin.line_of(eqn) or 'an unknown line'})"


def _check_context(eqn: jex.JaxprEqn) -> None:
    context: Any = eqn.ctx
    if eqn.effects:
        raise UnwritableError(f"effects ({', '.join(map(str, eqn.effects))[:200]})")
    if context.compute_type is not None:
        raise UnwritableError(f"the compute type {context.compute_type!r}")
    if (mesh := mesh_required(eqn)) is not None:
        raise UnwritableError(mesh)


def _metadata(eqn: jex.JaxprEqn) -> dict[str, Any]:
    """Returns the user's XLA metadata of an equation. Raises UnwritableError if it is not plain."""
    metadata = request.user_metadata(eqn)
    if not all(isinstance(value, str | int | float) for value in metadata.values()):
        raise UnwritableError(f"the XLA metadata {metadata!r:.80}")
    return dict(metadata)
