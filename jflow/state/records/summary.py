"""Summaries of a step for TensorBoard, as serialized `tf.Summary` messages.

All functions take the tag, the name under which TensorBoard shows the values, and return string[].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from jflow.base.values import Array, string
from jflow.errors import InvalidArgumentError
from jflow.state.records.image import encode_png
from jflow.state.records.tensor_proto import tensor_proto
from jflow.state.records.v1 import summary_pb2 as pb


def scalar_value(tag: str, value: float) -> bytes:
    """Returns the serialized summary of a number."""
    return _message(pb.SummaryValue(tag=tag, simple_value=value))


def checked_summary(data: Any) -> bytes:
    """Checks serialized summaries and returns them unchanged.

    Raises:
      InvalidArgumentError: if it is something else.
    """
    try:
        pb.Summary.FromString(data)
    except (DecodeError, TypeError):
        raise InvalidArgumentError(
            f"expected a serialized summary, as bytes, got {data!r:.80}; fetch a tensor of "
            "jflow.summary to get one"
        ) from None
    checked: bytes = data
    return checked


def _scalar_summary(value: Array, *, tag: str) -> Sequence[Array]:
    """Serializes the summary of number[]."""
    if value.size != 1:
        raise InvalidArgumentError(
            f"the summary {tag!r} requires a scalar, got a value of shape {value.shape}"
        )
    return _result(scalar_value(tag, float(value.reshape(())[()])))


def _histogram_summary(values: Array, *, tag: str) -> Sequence[Array]:
    """Serializes the histogram of number[...], with TensorFlow's buckets."""
    numbers = np.asarray(values, np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        kind = "NaN" if np.isnan(numbers).any() else "Infinity"
        raise InvalidArgumentError(f"{kind} in the histogram summary {tag!r}")
    limits = _limits()
    counts = np.bincount(np.searchsorted(limits, numbers, side="right"), minlength=len(limits))
    # Of neighbouring empty buckets only the last one is written.
    is_shown = (counts > 0) | np.append(counts[1:] > 0, True)
    histogram = pb.Histogram(
        min=numbers.min(initial=limits[-1]),
        max=numbers.max(initial=limits[0]),
        num=len(numbers),
        sum=numbers.sum(),
        sum_squares=np.square(numbers).sum(),
        bucket_limit=limits[is_shown].tolist(),
        bucket=counts[is_shown].tolist(),
    )
    return _result(_message(pb.SummaryValue(tag=tag, histo=histogram)))


@cache
def _limits() -> Array:
    """Returns the buckets' upper limits, f64[n]: 1e-12 times powers of 1.1, and negatives."""
    positive = [1e-12]
    while positive[-1] < 1e20:
        positive.append(positive[-1] * 1.1)
    largest = np.finfo(np.float64).max
    positive[-1] = largest
    return np.array([*(-x for x in reversed(positive)), 0.0, *positive])


def _image_summary(images: Array, *, tag: str, max_outputs: int) -> Sequence[Array]:
    """Serializes images u8[n, height, width, channels], or floats, which are scaled to u8.

    Floats without negative ones are scaled so that the largest is 255, others so that 0 becomes
    127. Pixels that are not finite become red, or white if there is one channel.
    """
    if images.ndim != 4:
        raise InvalidArgumentError(
            f"the summary {tag!r} requires images of shape [n, height, width, channels], got a "
            f"value of shape {images.shape}"
        )
    shown = images[:max_outputs]
    values = []
    for i, image in enumerate(shown):
        pixels = image if image.dtype == np.uint8 else _scale_to_u8(np.asarray(image, np.float64))
        (png,) = encode_png(pixels)
        height, width, channels = pixels.shape
        name = f"{tag}/image" if max_outputs == 1 else f"{tag}/image/{i}"
        picture = pb.SummaryImage(
            height=height, width=width, colorspace=channels, encoded_image_string=png.item()
        )
        values.append(pb.SummaryValue(tag=name, image=picture))
    return _result(_message(*values))


def _scale_to_u8(image: Array) -> Array:
    """Scales an image f64[height, width, channels] to u8; see `_image_summary`."""
    bad: Array = np.logical_not(np.isfinite(image).all(axis=2))
    finite = np.where(bad[:, :, None], 0.0, image)
    low, high = finite.min(initial=0.0), finite.max(initial=0.0)
    if low < 0:
        scaled = 127 + finite * (127 / max(high, -low))
    else:
        scaled = finite * (255 / high if high else 0.0)
    pixels: Array = scaled.astype(np.uint8)
    pixels[bad] = [255, 0, 0, 255][: image.shape[2]]
    return pixels


def _text_summary(text: Array, *, tag: str) -> Sequence[Array]:
    """Serializes the text of string[...]."""
    tensor = tensor_proto(text, string)
    plugin = pb.Plugin(plugin_name="text")
    metadata = pb.SummaryMetadata(plugin_data=plugin)
    return _result(_message(pb.SummaryValue(tag=tag, tensor=tensor, metadata=metadata)))


def _merge_summaries(*summaries: Array) -> Sequence[Array]:
    """Merges serialized summaries, string[...], whose tags must differ."""
    merged = pb.Summary()
    tags: set[str] = set()
    for data in (item for array in summaries for item in array.reshape(-1)):
        values = pb.Summary.FromString(checked_summary(data)).value
        for value in values:
            if value.tag in tags:
                raise InvalidArgumentError(f"duplicate tag {value.tag!r} in the merged summaries")
            tags.add(value.tag)
        merged.value.extend(values)
    return _result(merged.SerializeToString())


def _message(*values: Any) -> bytes:
    data: bytes = pb.Summary(value=values).SerializeToString()
    return data


def _result(data: bytes) -> Sequence[Array]:
    return (np.array(data, object),)


SUMMARIES: Mapping[str, Callable[..., Sequence[Array]]] = {
    "scalar_summary": _scalar_summary,
    "histogram_summary": _histogram_summary,
    "image_summary": _image_summary,
    "text_summary": _text_summary,
    "merge_summaries": _merge_summaries,
}
"""Functions from arrays to serialized summaries, with attributes as keyword arguments."""
