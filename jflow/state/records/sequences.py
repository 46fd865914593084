"""Decodes SequenceExamples: features of the whole, and lists of features along time.

A feature list is to one key what a batch of Examples is to all of theirs, and is decoded alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.arrays import padded_rows, sparse_rows
from jflow.state.records.example import List, MalformedError, find_feature_lists
from jflow.state.records.features import Column
from jflow.state.records.lists import Lists, feature_error
from jflow.state.records.parse import (
    FeatureValues,
    drop_batch,
    parse_example,
    parse_single_example,
)

_NO_DEFAULT = np.empty(0)


def parse_sequence_example(
    serialized: Array,
    *defaults: Array,
    context: Sequence[Column],
    sequence: Sequence[Column],
    allowed_missing: Collection[str],
) -> Sequence[Array]:
    """Parses a batch of SequenceExamples.

    Args:
      serialized: string[batch], the SequenceExamples.
      defaults: default values for each column of the context that is not sparse, empty for none.
      context: as the columns of `parse_example`.
      sequence: [key, kind, dtype, shape] of each feature list; the kind is "sequence" or "sparse".
      allowed_missing: keys of the lists that are empty where they are missing, as those of kind
        "sparse" always are.

    Returns:
      For each column of the context what `parse_example` returns; for each feature list in order
      dtype[batch, longest, *shape], padded with 0 or "", if it is a "sequence", or indices
      i64[n, 3], values dtype[n] and shape i64[3] if it is "sparse"; for each "sequence" the number
      of its features, i64[batch].

    Raises:
      InvalidArgumentError: if a SequenceExample is malformed, or a feature or list is missing or
        not as declared; the message names the SequenceExample and the key.
    """
    results = parse_example(serialized, *defaults, columns=context)
    lists, lengths = _parse_lists(serialized.tolist(), sequence, allowed_missing)
    return [*results, *lists, *lengths]


def parse_single_sequence_example(
    serialized: Array,
    *defaults: Array,
    context: Sequence[Column],
    sequence: Sequence[Column],
    allowed_missing: Collection[str],
) -> Sequence[Array]:
    """Parses one SequenceExample, string[], without the batch dimension and without lengths."""
    results = parse_single_example(serialized, *defaults, columns=context)
    lists, _ = _parse_lists([serialized.item()], sequence, allowed_missing)
    batch = iter(lists)
    return [*results, *(array for column in sequence for array in drop_batch(column[1], batch))]


def _parse_lists(
    examples: Sequence[bytes], columns: Sequence[Column], allowed_missing: Collection[str]
) -> tuple[list[Array], list[Array]]:
    """Returns the values of feature lists, and the lengths of those of kind "sequence"."""
    keys = [column[0] for column in columns]
    found = [_find(number, data, keys) for number, data in enumerate(examples)]
    results: list[Array] = []
    all_lengths: list[Array] = []
    for key, kind, dtype, shape in columns:
        if kind != "sparse" and key not in allowed_missing:
            _refuse_missing(key, found)
        lists = [of_example.get(key, ()) for of_example in found]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        values = _values(key, dtype, lists, lengths)
        if kind == "sparse":
            results += _sparse(values, lengths)
        else:
            padding = b"" if dtype == "string" else 0
            results.append(padded_rows(values.fixed(tuple(shape), _NO_DEFAULT), lengths, padding))
            all_lengths.append(lengths)
    return results, all_lengths


def _find(number: int, data: bytes, keys: Sequence[str]) -> dict[str, list[List]]:
    try:
        return find_feature_lists(data, keys)
    except MalformedError as error:
        if error.key is not None:
            reason = "its feature list is damaged"
            raise feature_error(error.key, f"SequenceExample {number}", reason) from None
        raise InvalidArgumentError(
            f"Can't parse serialized SequenceExample {number}: its {len(data)} bytes are not a "
            f"tf.train.SequenceExample: {data[:40]!r}"
        ) from None


def _refuse_missing(key: str, found: Sequence[dict[str, list[List]]]) -> None:
    for number, lists in enumerate(found):
        if key not in lists:
            reason = "its feature list is required, but missing, and not declared as allow_missing"
            raise feature_error(key, f"SequenceExample {number}", reason)


def _values(key: str, dtype: str, lists: Sequence[Sequence[List]], lengths: Array) -> FeatureValues:
    """Returns the values of the features of a key in all SequenceExamples, one after another."""
    features = [feature for features in lists for feature in features]
    kinds = np.fromiter((kind for kind, _ in features), np.uint8, len(features))
    ends = np.cumsum(lengths)

    def where(index: int) -> str:
        number = int(np.searchsorted(ends, index, side="right"))
        return f"SequenceExample {number}, feature {index - ends[number] + lengths[number]}"

    contents = [content for _, content in features]
    return FeatureValues(key, dtype, Lists(kinds, contents), where)


def _sparse(values: FeatureValues, lengths: Array) -> tuple[Array, Array, Array]:
    """Returns the indices i64[n, 3], the values dtype[n] and the shape i64[3]."""
    indices, flat, shape = values.sparse()
    features, outer_shape = sparse_rows(lengths)  # example and time of each feature
    joined = np.concatenate((features[indices[:, 0]], indices[:, 1:]), axis=1)
    return joined, flat, np.append(outer_shape, shape[1])
