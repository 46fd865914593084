"""Summaries: operations that serialize values of a step for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jflow.base.values import abstract, shape_text, string
from jflow.client.ops.host_calls import strings_of
from jflow.compiler.graph import GraphKeys, Tensor, name_scope
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call

_ILLEGAL = re.compile(r"[^-/\w.]")


def scalar(
    name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Returns the serialized summary of a scalar, string[].

    Args:
      name: the tag under which TensorBoard shows it, after the current name scope; other
        characters than letters, digits and "-/_." become "_", and "_1", "_2", … make it unique.
      tensor: number[].
      collections: names of the graph collections that list it; None for the summaries.
      family: prefix of the tag, by which TensorBoard groups.

    Raises:
      ValueError: if the tensor is not a scalar.
    """
    value = _default_graph().as_tensor(tensor)
    if value.aval.shape not in (None, ()):
        raise ValueError(
            f"the summary {name!r} requires a scalar, got shape {shape_text(value.shape)}; use "
            "summary.histogram, or reduce it"
        )
    return _summary("scalar_summary", name, value, collections, family)


def histogram(
    name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Returns the serialized histogram summary of a tensor's elements, string[].

    Args:
      name, collections, family: as for `scalar`.
      values: number[...].

    Raises:
      InvalidArgumentError: in the step, if a number is not finite.
    """
    value = _default_graph().as_tensor(values)
    return _summary("histogram_summary", name, value, collections, family)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Returns the serialized summary of images as PNG, string[].

    Args:
      name, collections, family: as for `scalar`.
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
    value = _default_graph().as_tensor(tensor)
    return _summary("image_summary", name, value, collections, family, max_outputs=max_outputs)


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> Tensor:
    """Returns the serialized summary of text, string[]; TensorBoard shows it as Markdown.

    Args:
      name, collections: as for `scalar`.
      tensor: string[...].

    Raises:
      TypeError: if these are not strings.
    """
    value = strings_of(_default_graph(), tensor)
    return _summary("text_summary", name, value, collections, None)


def merge(
    inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str = "merge"
) -> Tensor:
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
    graph = _default_graph()
    strings = [strings_of(graph, value) for value in inputs]
    merged = call(graph, "merge_summaries", strings, [abstract((), string)], name=name).outputs[0]
    for key in collections or ():
        graph.add_to_collection(key, merged)
    return merged


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str = "merge"
) -> Tensor | None:
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
    value: Tensor,
    collections: Sequence[str] | None,
    family: str | None,
    **attributes: Any,
) -> Tensor:
    graph = _default_graph()
    family = family and _clean(family)
    base = _clean(name)
    with name_scope(f"{family}/{base}" if family else base) as prefix:
        tag = prefix.rstrip("/")
        op = call(
            graph,
            function,
            [value],
            [abstract((), string)],
            name="summary",
            attributes={"tag": f"{family}/{tag}" if family else tag, **attributes},
        ).outputs[0]
    for key in (GraphKeys.SUMMARIES,) if collections is None else collections:
        graph.add_to_collection(key, op)
    return op


def _clean(name: Any) -> str:
    if not isinstance(name, str) or not name.strip("/"):
        raise ValueError(f"expected a name for the summary, got {name!r}")
    return _ILLEGAL.sub("_", name).strip("/")
