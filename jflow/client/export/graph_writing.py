"""Writes graphs: converts operations, state and collections to an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.values import is_switched_off
from jflow.client.export.archive import Archive
from jflow.client.export.document import (
    VERSION,
    Document,
    Member,
    Node,
    ResourceEntry,
    Signature,
    Slice,
    VariableEntry,
    VariableObject,
)
from jflow.client.export.members import write_members
from jflow.client.export.params import UnexportableError, UnwritableError, encode_param
from jflow.client.export.primitives import OWN
from jflow.client.export.writing import EntryTable, Tables
from jflow.client.ops import Variable
from jflow.client.stateful import GraphVariable
from jflow.compiler.graph import Graph, Operation, ResourceRef, Tensor, VariableRef, request
from jflow.compiler.graph.gradient import is_recorded
from jflow.compiler.graph.importing import location_of
from jflow.compiler.graph.primitives import calls_client, is_stateful_control_flow
from jflow.errors import UnimplementedError
from jflow.plan.xla import jaxprs


def write_graph(graph: Graph, signatures: Sequence[Any] = ()) -> Archive:
    """Returns the archive of a graph.

    Args:
      graph: the graph.
      signatures: of a function, functions from the writer to a `Signature`.

    Raises:
      UnimplementedError: if an operation cannot be exported, with its name and line.
    """
    return _GraphWriter(graph).archive(signatures)


class _GraphWriter:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tables = Tables(self._variable, self._resource)
        self._variables: EntryTable[VariableEntry] = EntryTable()
        self._resources: EntryTable[ResourceEntry] = EntryTable()
        self._objects: EntryTable[VariableObject] = EntryTable()
        self._operations = graph.get_operations()
        self._numbers = {op: i for i, op in enumerate(self._operations)}
        self._tensors: dict[Any, int] = {}

    def archive(self, signatures: Sequence[Any]) -> Archive:
        nodes = [self._node(op) for op in self._operations]
        collections: dict[str, tuple[Member, ...]] = {}
        for key in self._graph.get_all_collection_keys():
            members = self._graph.get_collection(key)
            collections[key] = write_members(key, members, self.encode)
        records = tuple(Signature(name, *map(self.encode, trees)) for name, *trees in signatures)
        tables = self._tables
        document = Document(
            "function" if records else "graph",
            VERSION,
            jax.__version__,
            not is_switched_off(np.dtype(np.int64)),
            len(tables.blobs),
            tuple(tables.avals),
            tables.entries,
            tuple(tables.programs),
            tuple(self._variables),
            tuple(self._resources),
            tuple(nodes),
            tuple(self._objects),
            collections,
            records,
        )
        return Archive(document, tables.arrays, tables.blobs)

    # Operations -------------------------------------------------------------------------------

    def _node(self, op: Operation) -> Node:
        try:
            return self._encode_node(op)
        except (UnwritableError, UnexportableError) as error:
            raise UnimplementedError(
                f"operation {op.name!r} (made at {op.origin}) cannot be exported: {error}",
                op=op.name,
            ) from None

    def _encode_node(self, op: Operation) -> Node:
        eqn = op.eqn
        if calls_client(eqn):
            raise UnexportableError(
                "it calls a Python function of this process; leave it out of the graph, or "
                "compute it before and feed the result"
            )
        if is_stateful_control_flow(eqn):
            raise UnexportableError(
                "it is a branch or loop with effects, which files do not have; leave it out of the "
                "graph, or make it anew in the program that loads the graph"
            )
        if is_recorded(op):
            raise UnexportableError(
                "it needs a rank that is not known when the graph is built; declare the shape of "
                "the placeholder or queue that it depends on, with shape=, set_shape or "
                "jflow.ensure_shape"
            )
        name, program, params = eqn.primitive.name, None, {}
        if OWN.get(name) is eqn.primitive:
            params = {key: self._param(key, value) for key, value in eqn.params.items()}
            inputs = self._tables.atoms(eqn.invars, self._tensors)
        else:
            name, program = "", self._program(eqn)
            inputs = tuple(self._tensors[tensor.var] for tensor in op.inputs)
        for tensor in op.outputs:
            self._tensors[tensor.var] = len(self._tensors)
        return Node(
            op.name,
            name,
            program,
            params,
            inputs,
            tuple(self._numbers[one] for one in op.control_inputs),
            tuple(self._tables.aval(tensor.aval) for tensor in op.outputs),
            op.device,
            op.colocated_with,
            location_of(op),
        )

    def _param(self, name: str, value: Any) -> Any:
        try:
            return encode_param(value, self._tables)
        except UnwritableError as error:
            raise UnexportableError(f"its parameter {name!r} is {error}") from None

    def _program(self, eqn: jex.JaxprEqn) -> int:
        inputs = [jex.Var(x.aval) for x in eqn.invars if not isinstance(x, jex.Literal)]
        rest = iter(inputs)
        atoms = [x if isinstance(x, jex.Literal) else next(rest) for x in eqn.invars]
        window = request.Request(window=request.requested(eqn).window)
        unplaced_eqn = request.replaced(eqn, window).replace(invars=atoms)
        return self._tables.program(jaxprs.close(inputs, eqn.outvars, [unplaced_eqn]))

    # State ------------------------------------------------------------------------------------

    def _variable(self, ref: VariableRef) -> int:
        return self._variables.add(
            ref,
            lambda: VariableEntry(
                ref.name,
                ref.container,
                str(ref.spec),
                self._tables.aval(ref.aval),
                self._handle(ref),
                ref.owner is self._graph,
                ref.sharding,
            ),
        )

    def _resource(self, ref: ResourceRef) -> int:
        return self._resources.add(
            ref,
            lambda: ResourceEntry(
                ref.kind,
                ref.name,
                ref.container,
                str(ref.spec),
                ref.definition,
                ref.is_shared,
                self._handle(ref),
            ),
        )

    def _handle(self, ref: VariableRef | ResourceRef) -> int:
        return self._numbers[self._graph.handle_of(ref)]

    # What refers to operations ------------------------------------------------------------------

    def encode(self, value: Any) -> Any:
        """Returns a value with its operations, tensors and variables replaced by references.

        Raises:
          TypeError: if it contains anything but these and plain values.
        """
        if isinstance(value, Tensor) and value.graph is self._graph:
            return {"tensor": self._tensors[value.var]}
        if isinstance(value, Operation) and value.graph is self._graph:
            return {"operation": self._numbers[value]}
        if isinstance(value, Variable) and isinstance(value.operations, GraphVariable):
            return {"variable": self._objects.add(value, partial(self._object, value))}
        if value is None or type(value) in (bool, int, float, str, bytes):
            return value
        if type(value) is tuple or type(value) is list:
            kind = type(value).__name__
            return {kind: [self.encode(item) for item in value]}
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": [[key, self.encode(item)] for key, item in value.items()]}
        raise TypeError(f"no written form for {value!r:.80}")

    def _object(self, variable: Variable) -> VariableObject:
        info = variable.save_slice_info
        return VariableObject(
            self._variable(variable.operations.ref),
            self._tensors[variable.initial_value.var],
            self._numbers[variable.initializer],
            self._tensors[variable.graph_element().var],
            variable.trainable,
            None if info is None else Slice(**dataclasses.asdict(info)),
        )
