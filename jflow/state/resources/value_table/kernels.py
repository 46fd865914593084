"""Kernels of value tables."""

from __future__ import annotations

from collections.abc import Mapping

from jflow.base.values import Array
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.kernel import Kernel, single_attempt
from jflow.state.resources.value_table.state import FreeValues, GetValues, PutValues


def _put(number: Array, *values: Array) -> Attempt:
    return PutValues(number.item(), values)


def _get(number: Array) -> Attempt:
    return GetValues(number.item())


def _free(numbers: Array) -> Attempt:
    return FreeValues(numbers.tolist())


KERNELS: Mapping[str, Kernel] = {
    "value_table.put": single_attempt(_put),
    "value_table.get": single_attempt(_get),
    "value_table.free": single_attempt(_free),
}
