"""Functions in files: `jflow.function`s, each traced for one signature."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values import TensorSpec, from_physical
from jflow.client.eager import EagerVariable
from jflow.client.export.archive import Archive, write_archive
from jflow.client.export.document import Aval, Document, LiteralEntry, Node
from jflow.client.export.graph_reading import open_archive
from jflow.client.export.graph_writing import write_graph
from jflow.client.export.reading import ProgramReader
from jflow.client.functions import Function, function
from jflow.client.functions.current import current
from jflow.client.ops import Variable, placeholder
from jflow.compiler.graph import Graph, Operation, Tensor, tracing
from jflow.compiler.graph.primitives import HANDLES, constant_p, group_p, host_p, placeholder_p
from jflow.compiler.graph.request import Request, request_scope


def save(fun: Callable[..., Any], path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
    """Traces a function for arguments of given shapes and dtypes, and writes it to a file.

    The file has the function's equations with their devices and derivatives, and the definitions of
    the variables that it uses, but not their values.

    Args:
      fun: a `jflow.function`, or a JAX function.
      path: the file, which is replaced if it exists.
      args, kwargs: pytrees (tuples, lists, dictionaries with text as keys, None) of arrays,
        `jax.ShapeDtypeStruct`s or `jflow.data.TensorSpec`s in place of the arguments; a size of
        None may vary from call to call.

    Raises:
      UnimplementedError: if it cannot be exported, such as a function that calls Python.
      TypeError: if an argument or a result has another structure.
      Exception: as a call of the function while it is traced.
    """
    call = fun if isinstance(fun, Function) else function(fun)
    graph = Graph()
    with graph.as_default():
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=_is_spec)
        tensors = [_argument(leaf) for leaf in leaves]
        positional, named = jax.tree.unflatten(tree, tensors)
        results = jax.tree.map(graph.as_tensor, call(*positional, **named), is_leaf=_is_operation)
    signature = (tracing.name_of(fun), (positional, named), results)
    write_archive(os.fspath(path), write_graph(graph, [signature]))


def _is_spec(value: Any) -> bool:
    return isinstance(value, TensorSpec)


def _is_operation(value: Any) -> bool:
    return isinstance(value, Operation)


def _argument(leaf: Any) -> Tensor:
    value = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
    return placeholder(value.dtype, value.shape, name="argument")


def load(path: str | os.PathLike[str]) -> ExportedFunction:
    """Reads a function that `save` wrote.

    Args:
      path: the file.

    Returns:
      A function that runs on the current connection, like a `jflow.function`.

    Raises:
      NotFoundError: if there is no such file.
      InvalidArgumentError: if `save` did not write it, or it is malformed.
      DataLossError: if a part of it is damaged or missing.
      FailedPreconditionError: if `jax_enable_x64` is not what it was.
    """
    return ExportedFunction(open_archive(os.fspath(path), "function"))


class ExportedFunction:
    """A function from a file: call, differentiate and compose it like a `jflow.function`.

    Its variables are found by container and name where it runs. One that has no value there
    has to be set first, such as by `assign` or by restoring a checkpoint.

    Args:
      archive: the file's content.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        (signature,) = archive.document.signatures
        self.__name__ = self.__qualname__ = signature.name
        self._arguments = _structure(signature.arguments)
        self._results = _structure(signature.results)
        self._function = function(self._run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on the current connection.

        Raises:
          TypeError: if the arguments have another structure, shape or dtype than those that it was
            saved for.
          OpError: as a `jflow.function`; FailedPreconditionError if a variable has no value.
        """
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<jflow.export function {self.__name__}>"

    @property
    def variables(self) -> list[Variable]:
        """The variables that the function uses on the current connection, initialized or not."""
        reader = _Evaluation(self._archive, {}).reader
        refs = [reader.variable(i) for i in range(len(self._archive.document.variables))]
        return [Variable.of_operations(EagerVariable.of_ref(current(), ref)) for ref in refs]

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        tensor_numbers, tree = jax.tree.flatten(self._arguments)
        given_tree: Any
        leaves, given_tree = jax.tree.flatten((args, kwargs))
        if tree != given_tree:
            raise TypeError(f"{self!r} takes arguments of the structure {tree}, got {given_tree}")
        symbols: dict[str, Any] = {}
        document = self._archive.document
        types = _types(document)
        for number, leaf in zip(tensor_numbers, leaves, strict=True):
            _bind_sizes(document.avals[types[number]], jnp.shape(leaf), symbols)
        evaluation = _Evaluation(self._archive, symbols)
        for number, leaf in zip(tensor_numbers, leaves, strict=True):
            evaluation.set_argument(number, leaf, types[number])
        evaluation.evaluate()
        return jax.tree.map(evaluation.value, self._results)


def _structure(value: Any) -> Any:
    """Returns the structure that the graph writer encoded, with tensor numbers as leaves."""
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "tensor":
        return content
    if kind == "dict":
        return {key: _structure(item) for key, item in content}
    return {"tuple": tuple, "list": list}[kind](map(_structure, content))


def _types(document: Document) -> list[int]:
    """Returns the index of each tensor's abstract value."""
    return [number for node in document.nodes for number in node.outputs]


def _bind_sizes(aval: Aval, shape: tuple[Any, ...], symbols: dict[str, Any]) -> None:
    """Binds the symbols of an argument's unknown dimensions to the sizes of its shape."""
    expected_shape = aval.shape or ()
    if len(expected_shape) != len(shape) or any(
        isinstance(size, int) and size != actual
        for size, actual in zip(expected_shape, shape, strict=True)
    ):
        raise TypeError(f"expected an argument of shape {expected_shape}, got {shape}")
    for size, actual in zip(expected_shape, shape, strict=True):
        if (
            isinstance(size, str)
            and size.isidentifier()
            and symbols.setdefault(size, actual) != actual
        ):
            raise TypeError(
                f"expected arguments with equal sizes {size}, got {symbols[size]} and {actual}"
            )


class _Evaluation:
    """A trace of the operations of an exported function, for arguments of known types.

    Args:
      archive: the file's content.
      symbols: the sizes of unknown dimensions by name.
    """

    def __init__(self, archive: Archive, symbols: dict[str, Any]) -> None:
        self._document = archive.document
        self.reader = ProgramReader(archive, current(), symbols)
        self._values: dict[int, Any] = {}

    def set_argument(self, number: int, value: Any, aval_number: int) -> None:
        """Sets an argument of the trace. Raises TypeError if its dtype differs."""
        aval = self.reader.aval(aval_number)
        array = jnp.asarray(value)
        if array.dtype != aval.dtype:
            promoted = getattr(array, "weak_type", False) or isinstance(value, int | float)
            if not promoted or jnp.promote_types(array.dtype, aval.dtype) != aval.dtype:
                raise TypeError(f"expected an argument of dtype {aval.dtype}, got {array.dtype}")
            array = array.astype(aval.dtype)
        self._values[number] = array

    def value(self, number: int) -> Any:
        """Returns the value of a tensor that has been evaluated."""
        if number not in self._values:
            raise self.reader.error(f"there is no tensor {number} before its use")
        return self._values[number]

    def evaluate(self) -> None:
        """Evaluates all operations in file order, which is also the effect order."""
        number = 0
        for node in self._document.nodes:
            if node.primitive != placeholder_p.name:
                spec = self.reader.spec(node.device)
                with request_scope(Request((spec,) if not spec.is_empty else ())):
                    results = self._evaluate_node(node)
                self._values.update(enumerate(results, number))
            number += len(node.outputs)

    def _evaluate_node(self, node: Node) -> list[Any]:
        inputs = [
            self.reader.scalar(x) if isinstance(x, LiteralEntry) else self.value(x)
            for x in node.inputs
        ]
        if not node.primitive:
            program = self.reader.program(-1 if node.program is None else node.program)
            return list(jex.jaxpr_as_fun(program)(*inputs))
        primitive, params = self.reader.own(node)
        if primitive in HANDLES or primitive is group_p:
            return []
        if primitive is constant_p:
            aval = self.reader.aval(node.outputs[0])
            return [jnp.asarray(from_physical(params["value"], aval.dtype))]
        if primitive is host_p:
            params["outputs"] = tuple(self.reader.aval(i) for i in node.outputs)
        results = primitive.bind(*inputs, **params)
        return list(results) if primitive.multiple_results else [results]
