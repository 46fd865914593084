"""Estimates of what operations and transfers take, counted from equations; nothing is measured.

They are a prior: good enough to tell an operation that takes milliseconds from one that takes
microseconds, and both from a message between tasks. The time of an operation is that of its
arithmetic or of its memory traffic, whichever is longer (the roofline model: Williams, Waterman and
Patterson, 2009). XLA's own counts are not used: they take a loop for one pass through its body, and
a gather for its whole table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.cluster import Device
from jflow.graph import Operation, Tensor
from jflow.schedule import Costs
from jflow.values import is_known

UNKNOWN_SIZE = 32
"""What an unknown size of a shape counts as."""

STRING_BYTES = 64
"""What a string counts as."""


@dataclass(frozen=True)
class Rates:
    """What a kind of device does.

    Attributes:
      flops: floating point operations a second.
      bandwidth: bytes of memory a second.
      overhead: seconds for each operation, when XLA does not fuse it with others.
    """

    flops: float
    bandwidth: float
    overhead: float


CPU = Rates(flops=3e10, bandwidth=8e9, overhead=5e-7)
ACCELERATOR = Rates(flops=1e13, bandwidth=5e11, overhead=2e-6)
"""Of a small server; orders of magnitude."""


@dataclass(frozen=True)
class Link:
    """What a transfer takes: `latency` seconds, and its bytes at `bandwidth` bytes a second."""

    latency: float
    bandwidth: float


SAME_TASK = Link(latency=1e-4, bandwidth=6e9)
OTHER_TASK = Link(latency=5e-4, bandwidth=1e9)
"""As the tables of `bench/` have them, for devices of one process and for servers on one host."""


def estimated(ops: Sequence[Operation], devices: Sequence[Device]) -> Costs:
    """The costs of operations on devices, and of transfers between these."""
    rates = [CPU if device.type == "CPU" else ACCELERATOR for device in devices]
    work = [work_of(op.eqn) for op in ops]
    seconds = np.array(
        [
            [max(flops / r.flops, n_bytes / r.bandwidth) + r.overhead for r in rates]
            for flops, n_bytes in work
        ]
    ).reshape(len(ops), len(devices))
    links = [[SAME_TASK if a.task == b.task else OTHER_TASK for b in devices] for a in devices]
    different = 1.0 - np.eye(len(devices))
    latency = different * [[link.latency for link in row] for row in links]
    byte_seconds = different * [[1 / link.bandwidth for link in row] for row in links]
    # CPU devices of one process compute with the same cores.
    alone = {device: i for i, device in enumerate(devices)}
    first = {device.task: alone[device] for device in reversed(devices) if device.type == "CPU"}
    processors = tuple(
        first[device.task] if device.type == "CPU" else alone[device] for device in devices
    )
    return Costs(seconds, latency, byte_seconds, processors=processors)


def bytes_of(tensor: Tensor) -> float:
    """The size of a tensor's value."""
    return _size(tensor.aval)


def work_of(eqn: jex.JaxprEqn) -> tuple[float, float]:
    """Floating point operations, and bytes read and written, of one equation.

    A loop counts as often as it is known to run, `while` once; of branches the longest counts.
    """
    name = eqn.primitive.name
    inner = [_of_jaxpr(body) for body in _bodies(eqn.params)]
    if inner:
        flops, n_bytes = zip(*inner, strict=True)
        together = max if name == "cond" else sum
        times = eqn.params.get("length", 1)
        return together(flops) * times, together(n_bytes) * times
    if name in _FREE:
        return 0.0, 0.0
    inputs, outputs = ([var.aval for var in vars_] for vars_ in (eqn.invars, eqn.outvars))
    made = sum(map(_size, outputs))
    if name in _PARTIAL:
        return 0.0, 2 * made
    if name.startswith("scatter"):
        return sum(map(_elements, inputs[2:])), 3 * sum(map(_size, inputs[1:]))
    return _flops(eqn, name), sum(map(_size, inputs)) + made


def _flops(eqn: jex.JaxprEqn, name: str) -> float:
    elements = sum(_elements(var.aval) for var in eqn.outvars)
    if name == "dot_general":
        return 2 * elements * _contracted(eqn)
    if name == "conv_general_dilated":
        return 2 * elements * _window(eqn)
    if name in _CUBIC:
        return elements * math.sqrt(elements)
    if name.startswith(("reduce", "arg", "cum")):
        return sum(_elements(var.aval) for var in eqn.invars)
    return elements * (math.log2(elements + 2) if name == "sort" else 1)


_PARTIAL = frozenset({"gather", "dynamic_slice", "slice", "dynamic_update_slice"})
"""What touches only as much of its operands as it gives."""

_CUBIC = frozenset(
    {"cholesky", "lu", "qr", "householder_product", "eigh", "svd", "triangular_solve"}
)

_FREE = frozenset(
    {
        *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "iota", "copy_p"),
        *("stop_gradient", "constant", "variable", "resource", "group", "placeholder"),
    }
)
"""What XLA fuses into the operations that use it, and what computes nothing."""


def _of_jaxpr(jaxpr: Any) -> tuple[float, float]:
    counts = [work_of(eqn) for eqn in jaxpr.eqns]
    return sum(flops for flops, _ in counts), sum(n_bytes for _, n_bytes in counts)


def _bodies(params: dict[str, Any]) -> list[Any]:
    """The jaxprs in an equation's parameters."""
    found = []
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, jex.ClosedJaxpr):
                found.append(each.jaxpr)
            elif isinstance(each, jex.Jaxpr):
                found.append(each)
    return found


def _shape(aval: Any) -> Sequence[Any]:
    return getattr(aval, "shape", ()) or ()


def _elements(aval: Any) -> float:
    return _product(_shape(aval))


def _size(aval: Any) -> float:
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return 0.0
    is_plain = isinstance(dtype, np.dtype) or hasattr(dtype, "itemsize")
    itemsize = dtype.itemsize if is_plain else STRING_BYTES
    return _elements(aval) * (STRING_BYTES if dtype.name == "string" else itemsize)


def _contracted(eqn: jex.JaxprEqn) -> float:
    """How many products each element of a dot product is the sum of."""
    (left, _), _ = eqn.params["dimension_numbers"]
    shape = _shape(eqn.invars[0].aval)
    return _product([shape[axis] for axis in left])


def _window(eqn: jex.JaxprEqn) -> float:
    """How many products each element of a convolution is the sum of."""
    numbers = eqn.params["dimension_numbers"]
    shape = _shape(eqn.invars[1].aval)
    return _product([shape[axis] for axis in numbers.rhs_spec[1:]])


def _product(sizes: Sequence[Any]) -> float:
    return float(math.prod(int(n) if is_known(n) else UNKNOWN_SIZE for n in sizes))
