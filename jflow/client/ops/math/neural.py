"""Layers of neural networks under TensorFlow's names, for `jflow.nn`."""

# Arguments have TensorFlow's names, also where Python has them.
# ruff: noqa: A002

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jflow.client.ops.lift import operation
from jflow.client.ops.math.sizes import known_int, known_ints


class TopK(NamedTuple):
    """The largest elements along the last axis, and their indices.

    Attributes:
      values: T[*n, k], the largest first.
      indices: i32[*n, k].
    """

    values: Any
    indices: Any


class Moments(NamedTuple):
    """The mean and variance of elements.

    Attributes:
      mean: T[*shape].
      variance: T[*shape], the mean of the squared distances from the mean.
    """

    mean: Any
    variance: Any


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    """Adds a vector along the last axis, or the second one if the format begins with "NC"."""
    at = 1 if (data_format or "NHWC").startswith("NC") else -1
    return _bias_add(value, bias, at=at, name=name)


def conv2d(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
    filters: Any = None,
) -> Any:
    """Returns a convolution of images.

    Args:
      input: T[n, h, w, c], or T[n, c, h, w] in the format "NCHW".
      filter, filters: T[fh, fw, c, d].
      strides: the steps of the window: one number, two, or four as in the format of the images.
      padding: "SAME", "VALID", or pairs of numbers for the four axes.
      use_cudnn_on_gpu: without effect: XLA decides.
      data_format: "NHWC" or "NCHW".
      dilations: distances between the elements of the window, in the form of the strides.
      name: name of the operation.

    Returns:
      T[n, h', w', d], in the same format.

    Raises:
      ValueError: if an argument has another form.
    """
    given = {"strides": _spatial(strides, data_format), "padding": _padding(padding, data_format)}
    given |= {"dilations": _spatial(dilations, data_format), "layout": _layout(data_format)}
    return _conv2d(input, filter if filter is not None else filters, **given, name=name)


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Returns a convolution of each channel with filters of its own.

    Args:
      input: T[n, h, w, c].
      filter: T[fh, fw, c, m].
      strides, padding, data_format, name: as for `conv2d`.
      rate, dilations: distances between the elements of the window.

    Returns:
      T[n, h', w', c * m].
    """
    layout = data_format or "NHWC"
    given = {"strides": _spatial(strides, layout), "padding": _padding(padding, layout)}
    rates = _spatial(rate if rate is not None else dilations or 1, layout)
    return _depthwise(input, filter, **given, dilations=rates, layout=_layout(layout), name=name)


def separable_conv2d(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Returns a convolution of each channel, and then one of all channels at each place.

    Args:
      depthwise_filter: T[fh, fw, c, m].
      pointwise_filter: T[1, 1, c * m, d].
      input, strides, padding, rate, name, data_format, dilations: as for `depthwise_conv2d`.

    Returns:
      T[n, h', w', d].
    """
    given = (strides, padding, rate, None, data_format, dilations)
    channels = depthwise_conv2d(input, depthwise_filter, *given)
    layout = data_format or "NHWC"
    return conv2d(channels, pointwise_filter, 1, "VALID", data_format=layout, name=name)


def max_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Any:
    """Returns the largest element of each window of images.

    Args:
      value, input: T[n, h, w, c].
      ksize: size of the window, in the form of the strides of `conv2d`.
      strides, padding, data_format, name: as for `conv2d`.
    """
    given = _window(ksize, strides, padding, data_format)
    return _max_pool(value if value is not None else input, **given, name=name)


def avg_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Any:
    """Returns the mean of the elements of each window that are in the image; see `max_pool`."""
    given = _window(ksize, strides, padding, data_format)
    return _avg_pool(value if value is not None else input, **given, name=name)


def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> Moments:
    """Returns the mean and variance over axes.

    Args:
      x: T[*shape].
      axes: the axes.
      shift: without effect, as in TensorFlow.
      name: name of the operation.
      keep_dims, keepdims: whether the axes stay, of size 1.
    """
    along = tuple(known_ints(axes, "axes"))
    return Moments(*_moments(x, axes=along, keepdims=bool(keepdims or keep_dims), name=name))


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: float,
    name: str | None = None,
) -> Any:
    """Returns `(x - mean) / sqrt(variance + variance_epsilon) * scale + offset`.

    Args:
      x: T[*shape].
      mean, variance: what broadcasts against it.
      offset, scale: likewise, or None.
      variance_epsilon: a small number.
      name: name of the operation.
    """
    given = (x, mean, variance, offset, scale, variance_epsilon)
    return _normalized(*given, name=name)


def l2_loss(t: Any, name: str | None = None) -> Any:
    """Returns half of the sum of the squares of all elements."""
    return _l2_loss(t, name=name)


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Any:
    """Returns vectors along axes, divided by their L2 norms; squares of these below `epsilon` are
    taken for it.
    """
    chosen = axis if axis is not None else dim
    axes = None if chosen is None else tuple(known_ints(chosen, "axis"))
    return _l2_normalize(x, axis=axes, epsilon=epsilon, name=name)


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopK:
    """Returns the k largest elements along the last axis, always sorted, and their indices."""
    return TopK(*_top_k(input, k=known_int(k, "k"), name=name))


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Any:
    """Returns for each row of predictions whether its target is among the k largest.

    Args:
      predictions: T[n, classes].
      targets: i[n]; what is no class is not among them. Equal predictions all are.
      k: how many.
      name: name of the operation.

    Returns:
      bool[n].
    """
    return _in_top_k(predictions, targets, k=known_int(k, "k"), name=name)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """Returns `x @ weights + biases`."""
    return _xw_plus_b(x, weights, biases, name=name)


def zero_fraction(value: Any, name: str | None = None) -> Any:
    """Returns the part of the elements that are zero, from 0 to 1."""
    return _zero_fraction(value, name=name)


def crelu(features: Any, name: str | None = None, axis: int = -1) -> Any:
    """Returns the positive parts of the features and of their negatives, one after the other."""
    return _crelu(features, axis=axis, name=name)


def softsign(features: Any, name: str | None = None) -> Any:
    """Returns `features / (1 + |features|)`."""
    return _softsign(features, name=name)


def lrn(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Any:
    """Divides each element by a power of the sum of squares of channels near its own.

    Args:
      input: T[n, h, w, c].
      depth_radius: how many channels on each side count.
      bias, alpha, beta: the divisor is `(bias + alpha * sum) ** beta`.
      name: name of the operation.
    """
    given = {"radius": depth_radius, "bias": bias, "alpha": alpha, "beta": beta}
    return _lrn(input, **given, name=name)


def _layout(data_format: str) -> str:
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"expected the format NHWC or NCHW, got {data_format!r}")
    return data_format


def _spatial(numbers: Any, data_format: str) -> tuple[int, int]:
    """Returns the two numbers of the height and the width."""
    values = known_ints(1 if numbers is None else numbers, "the numbers of a window")
    if len(values) == 4:
        at = _layout(data_format).index("H")
        if any(n != 1 for i, n in enumerate(values) if i not in (at, at + 1)):
            raise ValueError(f"windows move in images only, got {values} for {data_format}")
        values = values[at : at + 2]
    height, width = values if len(values) == 2 else (*values, *values)
    return height, width


def _padding(padding: Any, data_format: str) -> Any:
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ValueError(f"expected the padding SAME or VALID, got {padding!r}")
        return padding.upper()
    if padding is None:
        raise ValueError("expected the padding SAME, VALID, or pairs of numbers, got None")
    at = _layout(data_format).index("H")
    return tuple(tuple(known_ints(pair, "padding")) for pair in padding)[at : at + 2]


def _window(ksize: Any, strides: Any, padding: Any, data_format: str) -> dict[str, Any]:
    at = _layout(data_format).index("H")

    def whole(pair: Sequence[int]) -> tuple[int, ...]:
        return (*(1,) * at, *pair, *(1,) * (2 - at))

    edges = _padding(padding, data_format)
    if not isinstance(edges, str):
        edges = (*((0, 0),) * at, *edges, *((0, 0),) * (2 - at))
    sizes = whole(_spatial(ksize, data_format))
    return {"sizes": sizes, "strides": whole(_spatial(strides, data_format)), "padding": edges}


def _with_bias(value: Any, bias: Any, at: int) -> Any:
    if jnp.ndim(bias) != 1:
        raise ValueError(f"expected a bias that is a vector, got shape {jnp.shape(bias)}")
    return value + (bias if at == -1 else bias.reshape(-1, *(1,) * (value.ndim - 2)))


def _convolved(
    images: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    dilations: Any,
    layout: str,
    n_groups: int = 1,
) -> Any:
    return jax.lax.conv_general_dilated(
        images,
        filters,
        strides,
        padding,
        rhs_dilation=dilations,
        dimension_numbers=(layout, "HWIO", layout),
        feature_group_count=n_groups,
    )


def _convolved_by_channel(images: Any, filters: Any, **given: Any) -> Any:
    height, width, channels, multiplier = filters.shape
    joined = jnp.reshape(filters, (height, width, 1, channels * multiplier))
    return _convolved(images, joined, **given, n_groups=channels)


def _largest(images: Any, sizes: Any, strides: Any, padding: Any) -> Any:
    is_inexact = jnp.issubdtype(images.dtype, jnp.inexact)
    first = np.asarray(-np.inf if is_inexact else np.iinfo(images.dtype).min, images.dtype)
    return jax.lax.reduce_window(images, first, jax.lax.max, sizes, strides, padding)


def _average(images: Any, sizes: Any, strides: Any, padding: Any) -> Any:
    def total(x: Any) -> Any:
        return jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, sizes, strides, padding)

    return total(images) / total(jnp.ones_like(images))


def _mean_and_variance(x: Any, axes: Any, keepdims: bool) -> Any:
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - jax.lax.stop_gradient(mean)), axes, keepdims=keepdims)
    return mean if keepdims else jnp.squeeze(mean, axes), variance


def _batch_normalized(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, epsilon: Any
) -> Any:
    factor = jax.lax.rsqrt(variance + epsilon)
    factor = factor if scale is None else factor * scale
    shift = -mean * factor if offset is None else offset - mean * factor
    return x * factor + shift


def _unit(x: Any, axis: Any, epsilon: float) -> Any:
    squares = jnp.sum(jnp.square(x), axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, epsilon))


def _is_in_top_k(predictions: Any, targets: Any, k: int) -> Any:
    n = predictions.shape[-1]
    is_class = (targets >= 0) & (targets < n)
    # Not by index: there may be no rows.
    is_own = jnp.arange(n) == targets[:, None]
    own = jnp.sum(jnp.where(is_own, predictions, 0), axis=1, keepdims=True)
    n_larger = jnp.sum(predictions > own, axis=1)
    is_finite = jnp.all(jnp.isfinite(predictions), axis=1) if k < n else jnp.isfinite(own[:, 0])
    return is_class & (n_larger < k) & is_finite


def _responses(x: Any, radius: int, bias: float, alpha: float, beta: float) -> Any:
    near = (*(1,) * (x.ndim - 1), 2 * radius + 1)
    edges = (*((0, 0),) * (x.ndim - 1), (radius, radius))
    ones = (1,) * x.ndim
    squares = jax.lax.reduce_window(
        jnp.square(x), np.zeros((), x.dtype), jax.lax.add, near, ones, edges
    )
    return x / jnp.power(bias + alpha * squares, beta)


_bias_add = operation(_with_bias, "BiasAdd")
_conv2d = operation(_convolved, "Conv2D")
_depthwise = operation(_convolved_by_channel, "depthwise")
_max_pool = operation(_largest, "MaxPool")
_avg_pool = operation(_average, "AvgPool")
_moments = operation(_mean_and_variance, "moments")
_normalized = operation(_batch_normalized, "batchnorm")
_l2_loss = operation(lambda t: jnp.sum(jnp.square(t)) / 2, "L2Loss")
_l2_normalize = operation(_unit, "l2_normalize")
_top_k = operation(lambda x, k: tuple(jax.lax.top_k(x, k)), "TopKV2")
_in_top_k = operation(_is_in_top_k, "in_top_k")
_xw_plus_b = operation(lambda x, w, b: jnp.matmul(x, w) + b, "xw_plus_b")
_zero_fraction = operation(lambda x: jnp.mean(jnp.equal(x, 0), dtype=jnp.float32), "zero_fraction")
_crelu = operation(lambda x, axis: jax.nn.relu(jnp.concatenate([x, -x], axis)), "CRelu")
_softsign = operation(jax.nn.soft_sign, "Softsign")
_lrn = operation(_responses, "LRN")
