"""Parsers of Examples and SequenceExamples, which run on a task's host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.values import AbstractValue, abstract, host_abstract, string, unknown_dim
from jflow.client.ops.host_calls import graph_for, invoke, shape_of, sparse_avals, strings_of
from jflow.client.ops.slices import SparseTensor
from jflow.client.ops.sparse import sparse_merge
from jflow.compiler.graph import Graph, Tensor
from jflow.state.records import (
    Column,
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    SparseFeature,
    VarLenFeature,
    as_columns,
)

_INT64 = np.dtype(np.int64)
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_.\-/]")


def parse_example(
    serialized: Any, features: Mapping[str, Feature], name: str = "ParseExample"
) -> dict[str, Any]:
    """Parses a batch of serialized `tf.train.Example` messages.

    Args:
      serialized: string[batch].
      features: declarations of the features to read, by their keys in the Examples.
      name: name of the operation.

    Returns:
      By key, dtype[batch, *shape] for a `FixedLenFeature`, dtype[batch, longest, *shape] for a
      `FixedLenSequenceFeature`, a `SparseTensor` of shape [batch, longest] for a `VarLenFeature`
      and of shape [batch, *size] for a `SparseFeature`.
      Tensors of int64 stay on the host while JAX's 64-bit types are off: declare them as int32, or
      `cast` them.

    Raises:
      InvalidArgumentError: if a declaration has an unsupported dtype or a default value that does
        not fit; in the step, if an Example is malformed, lacks a feature without a default value,
        or has a feature that is not as declared.
      ValueError, TypeError: if a `SparseFeature` lacks a key, or its keys and sizes do not fit.
    """
    return _parse("parse_example", serialized, features, name)


def parse_single_example(
    serialized: Any, features: Mapping[str, Feature], name: str = "ParseSingleExample"
) -> dict[str, Any]:
    """Parses one serialized `tf.train.Example`.

    Args:
      serialized: string[].
      features: declarations of the features to read, by their keys in the Example.
      name: name of the operation.

    Returns:
      By key, as `parse_example` without the batch dimension: dtype[*shape], dtype[n, *shape] or a
      `SparseTensor` of shape [n] or [*size].

    Raises:
      InvalidArgumentError, ValueError, TypeError: as `parse_example`.
    """
    return _parse("parse_single_example", serialized, features, name)


def parse_single_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    *,
    name: str = "ParseSingleSequenceExample",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses one serialized `tf.train.SequenceExample`.

    Args:
      serialized: string[].
      context_features: declarations of the features of the whole, by key: `FixedLenFeature` or
        `VarLenFeature`.
      sequence_features: declarations of the feature lists, by key: `FixedLenSequenceFeature` or
        `VarLenFeature`, of what each feature in the list has.
      name: name of the operation.

    Returns:
      The tensors of the context by key: dtype[*shape], or a `SparseTensor` of shape [n]. Those of
      the feature lists: dtype[length, *shape], or a `SparseTensor` of shape [length, longest]. On
      int64 see `parse_example`.

    Raises:
      ValueError: if there is no declaration, or one is of another kind or has a default value
        where a list has none.
      InvalidArgumentError: as `parse_example`; in the step also if a feature list is missing that
        is not declared with `allow_missing`.
    """
    context, lists, _ = _parse_sequences(
        "parse_single_sequence_example", serialized, context_features, sequence_features, name
    )
    return context, lists


def parse_sequence_example(
    serialized: Any,
    context_features: Mapping[str, Feature] | None = None,
    sequence_features: Mapping[str, Feature] | None = None,
    *,
    name: str = "ParseSequenceExample",
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parses a batch of serialized `tf.train.SequenceExample` messages.

    Args:
      serialized: string[batch].
      context_features, sequence_features, name: as for `parse_single_sequence_example`.

    Returns:
      The tensors of the context by key, as of `parse_example`. Those of the feature lists:
      dtype[batch, longest, *shape], padded with 0 or "", or a `SparseTensor` of shape
      [batch, longest list, longest feature]. The lengths of each padded list, i64[batch].

    Raises:
      ValueError, InvalidArgumentError: as `parse_single_sequence_example`.
    """
    return _parse_sequences(
        "parse_sequence_example", serialized, context_features, sequence_features, name
    )


def decode_json_example(json_examples: Any, name: str = "DecodeJSONExample") -> Tensor:
    """Converts Examples in JSON to serialized ones, as `parse_example` takes them.

    Args:
      json_examples: string[...].
      name: name of the operation.

    Raises:
      InvalidArgumentError: in the step, if one is no Example.
    """
    texts = strings_of(graph_for(json_examples), json_examples)
    avals = [abstract(shape_of(texts), string)]
    return invoke("decode_json_example", [texts], lambda: avals, name)[0]


def _parse(
    function: str, serialized: Any, features: Mapping[str, Feature], name: str
) -> dict[str, Any]:
    graph = graph_for(serialized)
    strings = strings_of(graph, serialized)
    defaults, columns = _columns(graph, features)

    def avals() -> list[AbstractValue]:
        batch = () if function == "parse_single_example" else _batch(strings)
        return [aval for column in columns for aval in _column_avals(batch, column)]

    outputs = iter(invoke(function, [strings, *defaults], avals, name, columns=columns))
    return _of_features(features, outputs)


def _parse_sequences(
    function: str,
    serialized: Any,
    context_features: Mapping[str, Feature] | None,
    sequence_features: Mapping[str, Feature] | None,
    name: str,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the tensors of the context and of the feature lists, and lengths if in a batch."""
    if not (context_features or sequence_features):
        raise ValueError("expected context_features, sequence_features or both, got no feature")
    context, lists = context_features or {}, sequence_features or {}
    _check_kinds(context, FixedLenFeature)
    allowed = _check_lists(lists)
    graph = graph_for(serialized)
    strings = strings_of(graph, serialized)
    defaults, context_columns = _columns(graph, context)
    _, columns = as_columns(lists)
    is_single = function == "parse_single_sequence_example"
    dense = [] if is_single else [key for key, kind, *_ in columns if kind == "sequence"]

    def avals() -> list[AbstractValue]:
        batch = () if is_single else _batch(strings)
        return [
            *(aval for column in context_columns for aval in _column_avals(batch, column)),
            *(aval for column in columns for aval in _column_avals(batch, column, 2)),
            *(host_abstract(batch, _INT64) for _ in dense),
        ]

    inputs = [strings, *defaults]
    attributes = {"context": context_columns, "sequence": columns, "allowed_missing": allowed}
    outputs = iter(invoke(function, inputs, avals, name, **attributes))
    parsed = _of_features(context, outputs), _of_features(lists, outputs)
    return *parsed, {key: next(outputs) for key in dense}


def _check_kinds(features: Mapping[str, Feature], dense: type[Feature]) -> None:
    """Raises ValueError if a feature is neither of variable length nor of the dense kind."""
    for key, feature in features.items():
        if not isinstance(feature, VarLenFeature | dense):
            raise ValueError(
                f"feature {key!r}: expected a VarLenFeature or a {dense.__name__}, got {feature}"
            )


def _check_lists(features: Mapping[str, Feature]) -> list[str]:
    """Returns the keys of lists that may be missing. Raises ValueError if one is unsupported."""
    _check_kinds(features, FixedLenSequenceFeature)
    lists = {k: one for k, one in features.items() if isinstance(one, FixedLenSequenceFeature)}
    for key, feature in lists.items():
        if feature.default_value is not None:
            raise ValueError(
                f"feature {key!r}: expected no default_value, because lists are padded with 0 or "
                f"'', got {feature.default_value!r:.80}"
            )
    return [key for key, feature in lists.items() if feature.allow_missing]


def _columns(
    graph: Graph | None, features: Mapping[str, Feature]
) -> tuple[Sequence[Any], list[Column]]:
    """Returns the default values of features, on the host, and their columns."""
    defaults, columns = as_columns(features)
    if graph is None:
        return defaults, columns
    return [graph.constant(default, on_host=True) for default in defaults], columns


def _batch(strings: Tensor) -> Sequence[Any]:
    """Returns the batch dimension of serialized messages."""
    return strings.aval.shape or (unknown_dim(),)


def _of_features(features: Mapping[str, Feature], outputs: Iterator[Any]) -> dict[str, Any]:
    return {key: _of_feature(key, feature, outputs) for key, feature in features.items()}


def _of_feature(key: str, feature: Feature, outputs: Iterator[Any]) -> Any:
    """Returns the tensor of a feature, made of the next results of a parser."""

    def sparse() -> SparseTensor:
        return SparseTensor(next(outputs), next(outputs), next(outputs))

    if isinstance(feature, SparseFeature):
        ids = [sparse() for _ in feature.index_keys]
        one_or_more = ids[0] if isinstance(feature.index_key, str) else ids
        name = f"SparseMerge_{_NOT_OF_NAMES.sub('_', key)}"
        return sparse_merge(one_or_more, sparse(), feature.size, name, feature.already_sorted)
    return sparse() if isinstance(feature, VarLenFeature) else next(outputs)


def _column_avals(
    batch: Sequence[Any], column: Column, sparse_rank: int = 1
) -> list[AbstractValue]:
    """Returns the abstract values of a column's results; the rank is that in one Example."""
    _, kind, dtype, shape = column
    element = string if dtype == string.name else np.dtype(dtype)
    if kind == "sparse":
        return sparse_avals(element, len(batch) + sparse_rank)
    length = (unknown_dim(),) if kind == "sequence" else ()
    return [host_abstract((*batch, *length, *shape), element)]
