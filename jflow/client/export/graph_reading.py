"""Reads graphs: adds the operations, state and collections of an archive to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.base.values import SaveSliceInfo, is_switched_off
from jflow.client.export.archive import Archive, read_archive
from jflow.client.export.document import VERSION, LiteralEntry, Node
from jflow.client.export.members import read_members
from jflow.client.export.primitives import check_types
from jflow.client.export.reading import ProgramReader
from jflow.client.ops import Variable
from jflow.client.stateful import GraphVariable
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.importing import Imported, add_equation, add_primitive, taken_names
from jflow.errors import FailedPreconditionError, InvalidArgumentError

_LOADERS = {"graph": "jflow.export.load_graph", "function": "jflow.export.load"}


def open_archive(path: str, kind: str) -> Archive:
    """Reads the archive of a graph or a function of this version and these settings of JAX.

    Args:
      path: the file.
      kind: "graph" or "function", which it has to be.

    Raises:
      InvalidArgumentError: if the version of the format, or what it has, is another one.
      FailedPreconditionError: if `jax_enable_x64` is different here.
      OpError: as `read_archive`.
    """
    archive = read_archive(path)
    document = archive.document
    if document.version != VERSION:
        raise InvalidArgumentError(
            f"{path!r}: expected version {VERSION} of the format, got {document.version}; read it "
            "with the version of jflow that wrote it"
        )
    if document.has_64_bits == is_switched_off(np.dtype(np.int64)):
        raise FailedPreconditionError(
            f"{path!r} was written with jax_enable_x64={document.has_64_bits}; call "
            f"jax.config.update('jax_enable_x64', {document.has_64_bits}) before reading it"
        )
    if document.kind != kind:
        raise InvalidArgumentError(
            f"{path!r}: expected an exported {kind}, got an exported {document.kind}; use "
            f"{_LOADERS[document.kind]}"
        )
    if len(document.signatures) != (kind == "function"):
        raise InvalidArgumentError(
            f"{path!r} is malformed: it is a {kind} with {len(document.signatures)} signatures"
        )
    return archive


class GraphReader:
    """Adds the contents of an archive to a graph.

    Args:
      archive: the file's content.
      graph: the graph.
      prefix: what the names of operations begin with, such as "model/".
      clear_devices: whether to leave out device requests.
    """

    def __init__(self, archive: Archive, graph: Graph, prefix: str, clear_devices: bool) -> None:
        self._document = archive.document
        self._graph = graph
        self._prefix = prefix
        self._reader = ProgramReader(archive, graph, prefix=prefix, clear_devices=clear_devices)
        self._operations: list[Operation] = []
        self._tensors: list[Tensor] = []
        self._objects: dict[int, Variable] = {}
        # By operation what it is the handle of.
        self._handles: dict[int, list[tuple[Callable[[int], Any], int]]] = {}
        for index, variable in enumerate(self._document.variables):
            self._handles.setdefault(variable.node, []).append((self._reader.variable, index))
        for index, resource in enumerate(self._document.resources):
            self._handles.setdefault(resource.node, []).append((self._reader.resource, index))

    def read(self) -> None:
        """Adds all operations, then the members of the collections.

        Raises:
          ValueError: if the graph has an operation of such a name already.
          InvalidArgumentError: if the document is malformed.
        """
        names = [self._prefix + node.name for node in self._document.nodes]
        names_in_use = taken_names(self._graph, names)
        if names_in_use:
            raise ValueError(
                f"the graph already has an operation {names_in_use[0]!r}; import into another "
                "graph, or pass import_scope"
            )
        for node in self._document.nodes:
            try:
                op = self._add_node(node)
            except (TypeError, ValueError, KeyError) as error:
                raise self._reader.error_of(node, str(error)) from error
            self._operations.append(op)
            self._tensors.extend(op.outputs)
        self._reserve_scopes()
        for key, members in self._document.collections.items():
            for member in read_members(members, self.decode):
                self._graph.add_to_collection(key, member)

    def _reserve_scopes(self) -> None:
        """Reserves the imported operations' name scopes, so that new scopes get other names."""
        operation_names = {op.name for op in self._operations} | {self._prefix.rstrip("/")}
        scopes: dict[str, None] = {}
        for op in self._operations:
            parts = op.name.split("/")
            scopes.update(dict.fromkeys("/".join(parts[:n]) for n in range(1, len(parts))))
        with self._graph.scopes.replaced(names=""):
            for scope in scopes:
                if scope not in operation_names:
                    self._graph.unique_name(scope)

    # Operations -------------------------------------------------------------------------------

    def _add_node(self, node: Node) -> Operation:
        if any(not 0 <= i < len(self._operations) for i in node.controls):
            raise self._reader.error_of(node, "it waits for an operation that is not before it")
        imported = Imported(
            self._prefix + node.name,
            tuple(self._operations[i] for i in node.controls),
            self._reader.spec(node.device),
            tuple(self._prefix + name for name in node.colocated),
            node.location,
        )
        inputs = [self._input(node, x) for x in node.inputs]
        if node.primitive:
            op = self._own(node, imported, inputs)
        else:
            op = self._add_program(node, imported, inputs)
        avals = [self._reader.aval(number) for number in node.outputs]
        types = [(tensor.aval.shape, tensor.dtype) for tensor in op.outputs]
        if types != [(aval.shape, aval.dtype) for aval in avals]:
            raise self._reader.error_of(node, f"it gives {types!r:.200}, expected {avals!r:.200}")
        return op

    def _own(self, node: Node, imported: Imported, inputs: list[Any]) -> Operation:
        primitive, params = self._reader.own(node)
        avals = [self._reader.aval(number) for number in node.outputs]
        check_types(primitive, params, [x.aval for x in inputs], avals)
        op = add_primitive(self._graph, primitive, inputs, avals, imported, params)
        for ref_of, index in self._handles.get(len(self._operations), ()):
            self._graph.declare(ref_of(index), op)
        return op

    def _add_program(self, node: Node, imported: Imported, inputs: list[Any]) -> Operation:
        if node.program is None or not 0 <= node.program < len(self._document.programs):
            raise self._reader.error_of(node, f"there is no program {node.program}")
        program = self._reader.operation(node.program)
        types = [(var.aval.shape, var.aval.dtype) for var in inputs]
        if types != [(aval.shape, aval.dtype) for aval in program.in_avals]:
            what = f"its program takes {program.in_avals}, not {types!r:.200}"
            raise self._reader.error_of(node, what)
        return add_equation(self._graph, program, inputs, imported)

    def _input(self, node: Node, atom: int | LiteralEntry) -> Any:
        if isinstance(atom, LiteralEntry):
            return jex.Literal(self._reader.scalar(atom), self._reader.aval(atom.aval))
        if not 0 <= atom < len(self._tensors):
            raise self._reader.error_of(node, f"it takes tensor {atom}, which is not before it")
        return self._tensors[atom].var

    # What refers to operations ------------------------------------------------------------------

    def decode(self, value: Any) -> Any:
        """Returns the value that the writer's `encode` wrote. Raises InvalidArgumentError."""
        if not isinstance(value, Mapping):
            return value
        ((kind, content),) = value.items()
        readers: dict[str, Callable[[Any], Any]] = {
            "tensor": lambda i: self._tensors[i],
            "operation": lambda i: self._operations[i],
            "variable": self._object,
            "tuple": lambda items: tuple(map(self.decode, items)),
            "list": lambda items: [*map(self.decode, items)],
            "dict": lambda items: {key: self.decode(item) for key, item in items},
        }
        try:
            return readers[kind](content)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._reader.error(f"{value!r:.80} refers to nothing") from error

    def _object(self, index: int) -> Variable:
        if index not in self._objects:
            entry = self._document.objects[index]
            ref = self._reader.variable(entry.variable)
            operations = GraphVariable.of_parts(
                self._graph.handle_of(ref),
                ref,
                self._tensors[entry.initial_value],
                self._operations[entry.initializer],
                self._tensors[entry.value],
            )
            part = entry.slice
            info = None
            if part is not None:
                info = SaveSliceInfo(
                    part.full_name, part.full_shape, part.var_offset, part.var_shape
                )
            self._objects[index] = Variable.of_operations(operations, entry.is_trainable, info)
        return self._objects[index]
