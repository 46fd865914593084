"""Saves graphs to files and loads them."""

from __future__ import annotations

import os
import re

from jflow.client.export.archive import write_archive
from jflow.client.export.graph_reading import GraphReader, open_archive
from jflow.client.export.graph_writing import write_graph
from jflow.compiler.graph import Graph, get_default_graph

_SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


def save_graph(path: str | os.PathLike[str], graph: Graph | None = None) -> None:
    """Writes a graph to a file, for `load_graph` in another process.

    The file has the operations with their devices, control inputs and source lines; definitions of
    variables, queues and other resources with their containers, but not their values (which a
    checkpoint has); and the collections. The same graph gives the same bytes.

    Args:
      path: the file, which is replaced if it exists.
      graph: the graph; None for the default graph.

    Raises:
      UnimplementedError: if an operation cannot be exported, such as one that calls a Python
        function; with its name and the user's line.
      OSError: as `open`.
    """
    write_archive(os.fspath(path), write_graph(get_default_graph() if graph is None else graph))


def load_graph(
    path: str | os.PathLike[str], *, clear_devices: bool = False, import_scope: str | None = None
) -> None:
    """Adds the operations and collections of an exported graph to the default graph.

    Args:
      path: a file that `save_graph` wrote.
      clear_devices: whether to leave out the requested devices; colocation stays. The enclosing
        `jflow.device` scopes fill in what an operation does not request.
      import_scope: what the names of operations and variables begin with, followed by "/"; made
        unique in the graph. None for the names in the file, which must be free.

    Raises:
      NotFoundError: if there is no such file.
      InvalidArgumentError: if `save_graph` did not write it, or it is malformed.
      DataLossError: if a part of it is damaged or missing.
      FailedPreconditionError: if `jax_enable_x64` is not what it was.
      ValueError: if the graph has an operation of such a name already, or the scope is no name.
    """
    archive = open_archive(os.fspath(path), "graph")
    graph = get_default_graph()
    prefix = ""
    if import_scope:
        if not _SCOPE.fullmatch(import_scope):
            raise ValueError(f"import_scope {import_scope!r} is not a valid name scope")
        prefix = graph.unique_name(import_scope.rstrip("/")) + "/"
    GraphReader(archive, graph, prefix, clear_devices).read()
