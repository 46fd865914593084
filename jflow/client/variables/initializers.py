"""Initial values of variables: `jax.nn.initializers` under TensorFlow's names.

An initializer is called with a shape and a dtype. In graph code it returns a tensor, in eager code
an array. Random ones draw their key when they are called, so initializing a variable again gives
the same values.
"""

from __future__ import annotations

import inspect
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import initializers as of_jax

from jflow.base.values import as_dtype, host_dtype, string
from jflow.client.ops.seeds import next_seed
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph import owners

Shape = tuple[int, ...]

_NO_STRINGS = "variables hold numbers and random keys"
_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class PartitionInfo:
    """The position of a part in its partitioned variable.

    Attributes:
      full_shape: the shape of the whole.
      var_offset: the first index of the part in each dimension.
    """

    full_shape: Shape
    var_offset: Shape


class Initializer(ABC):
    """A callable that makes an initial value of a shape and a dtype.

    Attributes:
      dtype: the dtype unless the caller requests one; None for float32.
    """

    dtype: Any

    def __post_init__(self) -> None:
        if self.dtype is not None and host_dtype(self.dtype) is string:
            raise ValueError(
                f"the dtype of {type(self).__name__} cannot be {string}; {_NO_STRINGS}"
            )

    def __call__(
        self,
        shape: Sequence[int],
        dtype: Any = None,
        partition_info: PartitionInfo | None = None,
        *,
        partition_shape: Sequence[int] | None = None,
        partition_offset: Sequence[int] | None = None,
    ) -> Any:
        """Returns an initial value: a tensor in graph code, otherwise an array.

        Args:
          shape: its shape.
          dtype: its dtype; None for the initializer's own, float32 unless it was given one.
          partition_info: the position of the part, for a part of a variable.
          partition_shape, partition_offset: the same in the form of TensorFlow 2: `shape` is then
            that of the whole variable, and the value has the shape `partition_shape`.

        Raises:
          ValueError: if the initializer has no value of this shape.
          TypeError: if it has none of this dtype.
        """
        own = _FLOAT32 if self.dtype is None else self.dtype
        value_dtype = as_dtype(own if dtype is None else dtype)
        if value_dtype is string:
            raise TypeError(f"{self!r:.80} makes no strings; {_NO_STRINGS}")
        sizes = _sizes(shape)
        whole = partition_info or PartitionInfo(sizes, _sizes(partition_offset or [0] * len(sizes)))
        return self._make(_sizes(partition_shape or sizes), value_dtype, whole)

    @abstractmethod
    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        """Returns the initial value of a part."""


def _is_a(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is a subtype of `kind`; False for strings and random keys."""
    number_dtype = host_dtype(dtype)
    return isinstance(number_dtype, np.dtype) and bool(jnp.issubdtype(number_dtype, kind))


def _sizes(shape: Sequence[int]) -> Shape:
    return tuple(int(size) for size in shape)


class _Random(Initializer):
    """Base of initializers that draw values with a JAX random key.

    Raises:
      ValueError: if `dtype` has no random values.
    """

    seed: int | None

    def __post_init__(self) -> None:
        if self.dtype is None:
            return
        if not _is_a(self.dtype, jnp.number if self._takes_integers else jnp.inexact):
            what = "a number" if self._takes_integers else "floating point"
            raise ValueError(f"the dtype of {type(self).__name__} must be {what}, got {self.dtype}")

    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        if not jnp.issubdtype(dtype, jnp.inexact) and not self._takes_integers:
            raise TypeError(f"{self!r} makes floating-point values, got the dtype {dtype}")
        fun = partial(self._draw, shape=shape, dtype=dtype, part=part)
        return compute(fun, _key(self.seed, part), name=type(self).__name__)

    _takes_integers = False

    @abstractmethod
    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        """Draws the initial value of a part with a random key."""


def compute(fun: Callable[..., jax.Array], *args: Any, name: str) -> Any:
    """Calls a JAX function: as an operation in graph code, otherwise eagerly."""
    if owners.current() is not None:
        return fun(*args)
    return _default_graph().apply(fun, args, name=name)


def _key(seed: int | None, part: PartitionInfo) -> jax.Array:
    if seed is None:
        drawn = next_seed()
        key = jax.random.key(secrets.randbits(31) if drawn is None else drawn[0])
        if drawn is not None:
            key = jax.random.fold_in(key, drawn[1])
    else:
        key = jax.random.key(seed)
    # Parts of a variable must not be copies of each other.
    for offset in filter(None, part.var_offset):
        key = jax.random.fold_in(key, offset)
    return key


# Fixed values -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant(Initializer):
    """Fills the shape with a number, or with given values.

    Attributes:
      value: a number; or an array or list whose elements fill the shape in order, the last one
        repeated; or, for a partitioned variable, an array of its full shape.
      dtype: the dtype unless the caller requests one; None for float32.

    Raises:
      TypeError: if the value is anything else, such as a tensor.
    """

    value: Any = 0
    dtype: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        is_traced = isinstance(self.value, jax.core.Tracer)
        is_array = isinstance(self.value, list | tuple | np.ndarray | jax.Array) and not is_traced
        if not is_array and not np.isscalar(self.value):
            raise TypeError(
                "expected a number, list or array as the value of a constant initializer, got "
                f"{self.value!r:.80}; pass a tensor as the initializer itself"
            )

    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        value = np.asarray(self.value)
        if value.ndim and value.shape == part.full_shape != shape:
            pairs = zip(part.var_offset, shape, strict=True)
            value = value[tuple(slice(start, start + size) for start, size in pairs)]
        if value.size > max(math.prod(shape), 1):
            raise ValueError(f"{value.size} initial values do not fit the shape {shape}")
        at = np.minimum(np.arange(math.prod(shape)), value.size - 1)
        return _fixed(value.reshape(-1)[at].reshape(shape), dtype)


@dataclass(frozen=True)
class Zeros(Initializer):
    """All zeros (False for bool), of `dtype` unless the caller requests another."""

    dtype: Any = None

    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        return _fixed(np.zeros(shape), dtype)


@dataclass(frozen=True)
class Ones(Initializer):
    """All ones (True for bool), of `dtype` unless the caller requests another."""

    dtype: Any = None

    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        return _fixed(np.ones(shape), dtype)


@dataclass(frozen=True)
class Identity(Initializer):
    """A two-dimensional identity matrix times `gain`."""

    gain: float = 1.0
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.dtype is not None and not _is_a(self.dtype, jnp.number):
            raise ValueError(f"the dtype of an identity matrix must be a number, got {self.dtype}")

    def _make(self, shape: Shape, dtype: Any, part: PartitionInfo) -> Any:
        if len(shape) != 2:
            raise ValueError(f"an identity matrix has two dimensions, got the shape {shape}")
        row, column = part.var_offset
        return _fixed(self.gain * np.eye(*shape, k=row - column), dtype)


def _fixed(value: np.ndarray[Any, Any], dtype: Any) -> Any:
    array = jnp.asarray(value.astype(dtype))
    return array if owners.current() is not None else _default_graph().constant(array)


# Random values ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomNormal(_Random):
    """Values drawn from a normal distribution."""

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None
    dtype: Any = None

    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        return of_jax.normal(self.stddev)(key, shape, dtype) + jnp.asarray(self.mean, dtype)


@dataclass(frozen=True)
class TruncatedNormal(_Random):
    """Values of a normal distribution; those beyond two standard deviations are drawn again."""

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None
    dtype: Any = None

    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        drawn = of_jax.truncated_normal(self.stddev)(key, shape, dtype)
        return drawn + jnp.asarray(self.mean, dtype)


@dataclass(frozen=True)
class RandomUniform(_Random):
    """Values drawn uniformly from [`minval`, `maxval`); None for 1, which only floats can have."""

    minval: float = 0.0
    maxval: float | None = None
    seed: int | None = None
    dtype: Any = None

    _takes_integers = True

    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        if jnp.issubdtype(dtype, jnp.integer):
            if self.maxval is None:
                raise ValueError(f"Must specify maxval for integer dtype {dtype}")
            return jax.random.randint(key, shape, int(self.minval), int(self.maxval), dtype)
        width = (1.0 if self.maxval is None else self.maxval) - self.minval
        return of_jax.uniform(width)(key, shape, dtype) + jnp.asarray(self.minval, dtype)


_Mode = Literal["fan_in", "fan_out", "fan_avg"]
_Distribution = Literal["normal", "truncated_normal", "untruncated_normal", "uniform"]
_TRUNCATED_STDDEV = 0.87962566103423978
"""The standard deviation of a standard normal distribution truncated to [-2, 2]."""


@dataclass(frozen=True)
class VarianceScaling(_Random):
    """Random values of variance `scale` / n, where n is a number of connections (see `mode`).

    Attributes:
      scale: a positive number.
      mode: the number of inputs ("fan_in"), of outputs ("fan_out"), or their mean ("fan_avg"); a
        part of a variable uses those of the whole.
      distribution: "truncated_normal" (or "normal"), "untruncated_normal" or "uniform".
      seed: seed of the values; None for the graph's.
      dtype: the dtype unless the caller requests one; None for float32.
    """

    scale: float = 1.0
    mode: _Mode = "fan_in"
    distribution: _Distribution = "truncated_normal"
    seed: int | None = None
    dtype: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale <= 0:
            raise ValueError(f"`scale` must be a positive number, got {self.scale!r}")
        if self.mode not in get_args(_Mode):
            raise ValueError(f"`mode` must be fan_in, fan_out or fan_avg, got {self.mode!r}")
        if self.distribution not in get_args(_Distribution):
            expected = ", ".join(get_args(_Distribution))
            raise ValueError(f"`distribution` must be one of {expected}, got {self.distribution!r}")

    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        fan_in, fan_out = _fans(part.full_shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        stddev = math.sqrt(self.scale / max(1.0, fan))
        if self.distribution == "uniform":
            limit = math.sqrt(3.0) * stddev
            drawn = of_jax.uniform(2 * limit)(key, shape, dtype)
            return drawn - jnp.asarray(limit, dtype)
        if self.distribution == "untruncated_normal":
            return of_jax.normal(stddev)(key, shape, dtype)
        return of_jax.truncated_normal(stddev / _TRUNCATED_STDDEV)(key, shape, dtype)


def _fans(shape: Shape) -> tuple[float, float]:
    """Returns fan-in and fan-out of a layer whose weights have this shape."""
    if len(shape) < 2:
        return (float(math.prod(shape)),) * 2
    receptive = math.prod(shape[:-2])
    return float(shape[-2] * receptive), float(shape[-1] * receptive)


@dataclass(frozen=True)
class Orthogonal(_Random):
    """A (semi-)orthogonal matrix times `gain`; all dimensions but the last are its rows."""

    gain: float = 1.0
    seed: int | None = None
    dtype: Any = None

    def _draw(self, key: jax.Array, *, shape: Shape, dtype: Any, part: PartitionInfo) -> jax.Array:
        if len(shape) < 2:
            raise ValueError(f"an orthogonal matrix has two dimensions or more, got shape {shape}")
        drawn: jax.Array = of_jax.orthogonal(self.gain)(key, shape, dtype)
        return drawn


class GlorotUniform(VarianceScaling):
    """The uniform initializer of Glorot and Bengio (2010), also known as Xavier."""

    def __init__(self, seed: int | None = None, dtype: Any = None) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


class GlorotNormal(VarianceScaling):
    """The truncated normal initializer of Glorot and Bengio (2010)."""

    def __init__(self, seed: int | None = None, dtype: Any = None) -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


def he_uniform(seed: int | None = None, dtype: Any = None) -> Initializer:
    """Returns the uniform initializer of He et al. (2015), for layers followed by ReLU."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed, dtype)


def he_normal(seed: int | None = None, dtype: Any = None) -> Initializer:
    """Returns the truncated normal initializer of He et al. (2015)."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed, dtype)


def lecun_uniform(seed: int | None = None, dtype: Any = None) -> Initializer:
    """Returns the uniform initializer of LeCun et al. (1998)."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed, dtype)


def lecun_normal(seed: int | None = None, dtype: Any = None) -> Initializer:
    """Returns the truncated normal initializer of LeCun et al. (1998)."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed, dtype)


# What users pass ----------------------------------------------------------------------------------


def default_initializer(name: str, dtype: Any) -> Initializer:
    """Returns the initializer for a variable without one: Glorot's for floats, zeros for integers.

    Raises:
      ValueError: if the variable has another dtype.
    """
    if jnp.issubdtype(dtype, jnp.inexact):
        return GlorotUniform()
    if jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_:
        return Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype} is required")


def initial_value(
    initializer: Callable[..., Any], shape: Shape | None, dtype: Any, part: PartitionInfo | None
) -> Any:
    """Calls an initializer of any supported signature.

    Args:
      initializer: an `Initializer`, or a function with its parameters; a function of a key, a shape
        and a dtype, like those of JAX, Flax and Haiku; or a function without arguments.
      shape: the shape of the variable, None if it is that of the value.
      dtype: its dtype, None likewise.
      part: the position of the part, for a part of a variable.

    Raises:
      ValueError: if it needs a shape and there is none.
    """
    parameters = _parameters(initializer)
    if not parameters:
        return initializer()
    if shape is None:
        raise ValueError(
            f"The initializer {initializer!r:.80} takes arguments; expected a shape of the "
            "variable, got none"
        )
    if parameters[0] in ("key", "rng"):
        partition_info = PartitionInfo(shape, (0,) * len(shape)) if part is None else part
        args = {"dtype": dtype} if "dtype" in parameters else {}
        fun = partial(initializer, shape=shape, **args)
        return compute(fun, _key(None, partition_info), name="initializer")
    options = {"dtype": dtype, "partition_info": part}
    accepted_options = {key: value for key, value in options.items() if key in parameters}
    return initializer(shape, **accepted_options)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Returns the names of a function's parameters."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin
        return ["shape", "dtype"]
