"""The messages `tf.train.Example` and `tf.train.SequenceExample`, and what they consist of."""

from __future__ import annotations

import json
import re
from typing import Any

from google.protobuf import json_format

from jflow.base.values import Array, as_strings
from jflow.errors import InvalidArgumentError
from jflow.state.records.v1.typed_example_pb2 import BytesList as BytesList
from jflow.state.records.v1.typed_example_pb2 import Example as Example
from jflow.state.records.v1.typed_example_pb2 import Feature as Feature
from jflow.state.records.v1.typed_example_pb2 import FeatureList as FeatureList
from jflow.state.records.v1.typed_example_pb2 import FeatureLists as FeatureLists
from jflow.state.records.v1.typed_example_pb2 import Features as Features
from jflow.state.records.v1.typed_example_pb2 import FloatList as FloatList
from jflow.state.records.v1.typed_example_pb2 import Int64List as Int64List
from jflow.state.records.v1.typed_example_pb2 import SequenceExample as SequenceExample


def decode_json_example(json_examples: Array) -> tuple[Array]:
    """Converts Examples in JSON to serialized ones, string[...].

    Raises:
      InvalidArgumentError: if one is no Example; the message names the first.
    """
    texts = json_examples.reshape(-1).tolist()
    return (
        as_strings([_of_json(*item) for item in enumerate(texts)]).reshape(json_examples.shape),
    )


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def _of_json(number: int, text: bytes) -> bytes:
    try:
        example = json_format.Parse(text, Example())
        _check_form(json.loads(text))
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise InvalidArgumentError(f"element {number} is no Example in JSON: {error}") from None
    return example.SerializeToString()


def _check_form(document: Any) -> None:
    """Raises ValueError for what Protocol buffers read as if it were not there."""
    if isinstance(document, list):
        raise ValueError("expected an object, got a list")
    features = ((document or {}).get("features") or {}).get("feature") or {}
    for key, feature in features.items():
        strings = feature.get("bytesList") or feature.get("bytes_list") or {}
        for value in strings.get("value") or ():
            if not _BASE64.fullmatch(value):
                raise ValueError(f"feature {key!r}: {value!r:.80} is not Base64")
