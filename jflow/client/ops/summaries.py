"""Summaries for TensorBoard: operations of a graph, and values that are recorded at once.

In a graph a summary is an operation, whose value `FileWriter.add_summary` takes. Where variables
are eager, inside `jflow.connect` and outside of graphs, a summary of a value is recorded by the
default writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from jflow.base.context import Stack
from jflow.base.values import abstract, as_strings, shape_text, string
from jflow.client.ops.host_calls import strings_of
from jflow.compiler.graph import Graph, GraphKeys, Tensor, name_scope, owners
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call
from jflow.plan.xla import internals
from jflow.state.records import SUMMARIES

Summary = Tensor | bytes
"""A summary: string[] of a graph, or serialized."""


class SummaryWriter(Protocol):
    """Writes summaries somewhere, such as into an event file."""

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        """Writes a serialized summary of a step."""


class DefaultWriter(NamedTuple):
    """The writer that records summaries, and their step where they name none."""

    writer: SummaryWriter
    step: int | None


WRITERS: Stack[DefaultWriter] = Stack(is_strict=False)
"""The default writers of this thread."""

_ILLEGAL = re.compile(r"[^-/\w.]")


def scalar(
    name: str,
    tensor: Any,
    collections: Sequence[str] | None = None,
    family: str | None = None,
    *,
    step: int | None = None,
) -> Summary:
    """Returns the serialized summary of a scalar, string[]; records it if there is no graph.

    Args:
      name: the tag under which TensorBoard shows it; other characters than letters, digits and
        "-/_." become "_". In a graph it is below the current name scope, and "_1", "_2", … make
        it unique.
      tensor: number[].
      collections: names of the graph collections that list it; None for the summaries.
      family: prefix of the tag, by which TensorBoard groups.
      step: the step that a value without a graph belongs to; None for that of the writer.

    Raises:
      ValueError: if the tensor is not a scalar; if there is a step in a graph, or none without one.
      TypeError: if it is a value inside of a function, which has no number yet.
    """
    return _summary("scalar_summary", name, tensor, collections, family, step)


def histogram(
    name: str,
    values: Any,
    collections: Sequence[str] | None = None,
    family: str | None = None,
    *,
    step: int | None = None,
) -> Summary:
    """Returns the serialized histogram summary of a tensor's elements, string[].

    Args:
      name, collections, family, step: as for `scalar`.
      values: number[...].

    Raises:
      InvalidArgumentError: in the step, if a number is not finite.
      ValueError, TypeError: as `scalar`.
    """
    return _summary("histogram_summary", name, values, collections, family, step)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
    *,
    step: int | None = None,
) -> Summary:
    """Returns the serialized summary of images as PNG, string[].

    Args:
      name, collections, family, step: as for `scalar`.
      tensor: u8[n, height, width, 1, 3 or 4], or floats, which are scaled: without negative ones
        so that the largest of an image becomes 255, others so that 0 becomes 127.
      max_outputs: how many of them to show.

    Raises:
      ValueError: if `max_outputs` is not positive.
      InvalidArgumentError: in the step, if these are not images.
      UnimplementedError: in the step, if Pillow is not installed (`jflow[image]`).
    """
    if max_outputs < 1:
        raise ValueError(f"expected max_outputs of at least 1, got {max_outputs}")
    given = {"max_outputs": max_outputs}
    return _summary("image_summary", name, tensor, collections, family, step, **given)


def text(
    name: str,
    tensor: Any,
    collections: Sequence[str] | None = None,
    *,
    step: int | None = None,
) -> Summary:
    """Returns the serialized summary of text, string[]; TensorBoard shows it as Markdown.

    Args:
      name, collections, step: as for `scalar`.
      tensor: string[...].

    Raises:
      TypeError: if these are not strings.
      ValueError: as `scalar`.
    """
    return _summary("text_summary", name, tensor, collections, None, step)


def merge(
    inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str = "merge"
) -> Summary:
    """Merges several serialized summaries into one, string[].

    Args:
      inputs: serialized summaries, string[...] each.
      collections: names of the graph collections that list it; None for none.
      name: name of the operation.

    Raises:
      ValueError: if `inputs` is empty.
      TypeError: if these are not strings.
      InvalidArgumentError: in the step, if two of them have the same tag.
    """
    if not inputs:
        raise ValueError("expected at least one summary to merge, got none")
    if owners.current() is not None and all(isinstance(one, bytes) for one in inputs):
        (merged_bytes,) = SUMMARIES["merge_summaries"](*map(as_strings, inputs))
        summary: bytes = merged_bytes.item()
        return summary
    graph = _default_graph()
    strings = [strings_of(graph, value) for value in inputs]
    merged = call(graph, "merge_summaries", strings, [abstract((), string)], name=name).outputs[0]
    for key in collections or ():
        graph.add_to_collection(key, merged)
    return merged


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str = "merge"
) -> Summary | None:
    """Merges all summaries in a collection of the default graph into one; None if it has none.

    Args:
      key: name of the collection.
      scope: a regular expression that matches the beginning of the names of those to merge; None
        for all of them.
      name: name of the operation.

    Returns:
      string[]; None if there are no summaries.
    """
    summaries = _default_graph().get_collection(key, scope)
    return merge(summaries, name=name) if summaries else None


def _summary(
    function: str,
    name: str,
    value: Any,
    collections: Sequence[str] | None,
    family: str | None,
    step: int | None,
    **attributes: Any,
) -> Summary:
    """Adds a summary to the graph, or records that of a value without a graph."""
    if not _is_of_graph(name, value, collections, step):
        return _recorded(function, name, value, family, step, **attributes)
    graph = _default_graph()
    convert = strings_of if function == "text_summary" else Graph.as_tensor
    tensor = convert(graph, value)
    if function == "scalar_summary" and tensor.aval.shape not in (None, ()):
        raise ValueError(
            f"the summary {name!r} requires a scalar, got shape {shape_text(tensor.shape)}; use "
            "summary.histogram, or reduce it"
        )
    family = family and _clean(family)
    base = _clean(name)
    with name_scope(f"{family}/{base}" if family else base) as prefix:
        tag = prefix.rstrip("/")
        op = call(
            graph,
            function,
            [tensor],
            [abstract((), string)],
            name="summary",
            attributes={"tag": f"{family}/{tag}" if family else tag, **attributes},
        ).outputs[0]
    for key in (GraphKeys.SUMMARIES,) if collections is None else collections:
        graph.add_to_collection(key, op)
    return op


def _is_of_graph(
    name: str, value: Any, collections: Sequence[str] | None, step: int | None
) -> bool:
    """Whether a summary is an operation of a graph, and not recorded at once."""
    if isinstance(value, Tensor) or owners.current() is None:
        if step is not None:
            raise ValueError(
                f"the summary {name!r} is of a graph: give its step to add_summary(…, step); "
                "step= is for values outside of graphs"
            )
        return True
    if internals.is_tracing():
        raise TypeError(
            f"the summary {name!r} is inside of a function that is being traced: return the value "
            "from the function, and record it after the call"
        )
    if collections is not None:
        raise ValueError(f"the summary {name!r} has collections, and is of no graph")
    return False


def _recorded(
    function: str, name: str, value: Any, family: str | None, step: int | None, **attributes: Any
) -> bytes:
    """Serializes a summary of a value and gives it to the default writer, if there is one."""
    default = WRITERS.top
    if step is None and default is not None:
        step = default.step
    if step is None and default is not None:
        raise ValueError(
            f"the summary {name!r} has no step: give step=, or as_default(step) of the writer"
        )
    tag = f"{_clean(family)}/{_clean(name)}" if family else _clean(name)
    array = as_strings(value) if function == "text_summary" else np.asarray(value)
    (data,) = SUMMARIES[function](array, tag=tag, **attributes)
    summary: bytes = data.item()
    if default is not None:
        default.writer.add_summary(summary, None if step is None else int(step))
    return summary


def _clean(name: Any) -> str:
    if not isinstance(name, str) or not name.strip("/"):
        raise ValueError(f"expected a name for the summary, got {name!r}")
    return _ILLEGAL.sub("_", name).strip("/")
