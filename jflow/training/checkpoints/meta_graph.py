"""Graphs in files under TensorFlow's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jflow.base.files import replace_file
from jflow.client.export.graphs import load_graph, save_graph
from jflow.client.export.members import MemberKind, register_member_kind
from jflow.client.ops import global_variables
from jflow.compiler.graph import Graph, Operation
from jflow.errors import OpError, UnimplementedError
from jflow.state.records.graph_def import GraphDef, graph_def_text
from jflow.training.checkpoints.saver import Saver
from jflow.training.input_queues.queue_runner import QueueRunner

GRAPH_FILE = "graph.pbtxt"
"""The file in which trainings write the definition of their graph."""


def export_meta_graph(filename: str | os.PathLike[str], graph: Graph | None = None) -> None:
    """Writes a graph to a file, for `import_meta_graph` in another process.

    Args:
      filename: the file, which is replaced if it exists.
      graph: the graph; None for the default graph.

    Raises:
      UnimplementedError: if an operation cannot be exported, with its name and the user's line.
      OSError: as `open`.
    """
    save_graph(filename, graph)


def import_meta_graph(
    meta_graph_or_file: str | os.PathLike[str],
    clear_devices: bool = False,
    import_scope: str | None = None,
) -> Saver | None:
    """Adds the operations and collections of a file to the default graph.

    Args:
      meta_graph_or_file: a file that `export_meta_graph` wrote.
      clear_devices, import_scope: as for `jflow.export.load_graph`.

    Returns:
      A `Saver` of the graph's variables; None if it has none.

    Raises:
      NotFoundError, InvalidArgumentError, DataLossError, FailedPreconditionError, ValueError: as
        `jflow.export.load_graph`.
    """
    load_graph(meta_graph_or_file, clear_devices=clear_devices, import_scope=import_scope)
    return Saver() if global_variables() else None


def write_graph(
    graph_or_graph_def: Graph | GraphDef,
    logdir: str | os.PathLike[str],
    name: str,
    as_text: bool = True,
) -> str:
    """Writes the definition of a graph to a file, which TensorBoard draws.

    Args:
      graph_or_graph_def: a graph, or what its `as_graph_def` has returned.
      logdir: the directory, which is made if it does not exist.
      name: name of the file, which is replaced if it exists.
      as_text: whether it is the text of the message, else its bytes.

    Returns:
      The path of the file.

    Raises:
      TypeError: if it is neither a graph nor a definition.
      UnimplementedError: if the directory is not local.
      OSError: as `open`.
    """
    definition = graph_or_graph_def
    if isinstance(definition, Graph):
        definition = definition.as_graph_def()
    if not isinstance(definition, GraphDef):
        raise TypeError(f"expected a graph or a GraphDef, got {type(definition).__name__}")
    folder = os.fspath(logdir)
    if "://" in folder:
        raise UnimplementedError(f"a graph is written to a local directory only, got {folder!r}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    data = definition.SerializeToString(deterministic=True)
    replace_file(path, graph_def_text(definition) if as_text else data)
    return path


class _ImportedQueue:
    """The queue of an imported queue runner, by name; the runner has operations that close it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<the imported queue {self.name!r}>"

    def close(self, cancel_pending_enqueues: bool = False) -> Operation:
        """Raises TypeError: the operations that close it belong to its queue runner."""
        raise TypeError(f"{self!r} is closed by close_op and cancel_op of its QueueRunner")


def _written(runner: QueueRunner, encode: Any) -> Any:
    return encode(
        {
            "queue": runner.name,
            "enqueue": runner.enqueue_ops,
            "close": runner.close_op,
            "cancel": runner.cancel_op,
            "errors": [kind.__name__ for kind in runner.queue_closed_exception_types],
        }
    )


def _read(value: Any, decode: Any) -> QueueRunner:
    document: Mapping[str, Any] = decode(value)
    known = {kind.__name__: kind for kind in OpError.__subclasses__()}
    kinds = tuple(known[name] for name in document["errors"])
    return QueueRunner(
        _ImportedQueue(document["queue"]),
        document["enqueue"],
        document["close"],
        document["cancel"],
        kinds,
    )


def _saver_written(saver: Saver, encode: Any) -> Any:
    if saver.settings is None:
        raise TypeError("a saver of some of the variables has no written form")
    return encode(saver.settings)


def _saver_read(value: Any, decode: Any) -> Saver:
    return Saver(defer_build=True, **decode(value))


register_member_kind(MemberKind("saver", Saver, _saver_written, _saver_read))
register_member_kind(MemberKind("queue_runner", QueueRunner, _written, _read))
