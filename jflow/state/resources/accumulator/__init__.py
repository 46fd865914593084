"""Accumulators: many steps add gradients, and one step takes their mean or sum."""

from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.accumulator.kernels import KERNELS
from jflow.state.resources.accumulator.snapshot import AccumulatorSnapshot as AccumulatorSnapshot
from jflow.state.resources.accumulator.snapshot import SumSnapshot as SumSnapshot
from jflow.state.resources.accumulator.spec import AccumulatorSpec as AccumulatorSpec
from jflow.state.resources.accumulator.state import Accumulator as Accumulator
from jflow.state.resources.accumulator.state import ApplyGradient as ApplyGradient
from jflow.state.resources.accumulator.state import ApplySparse as ApplySparse
from jflow.state.resources.accumulator.state import SetGlobalStep as SetGlobalStep
from jflow.state.resources.accumulator.state import TakeGradient as TakeGradient
from jflow.state.resources.kind import Kind
from jflow.state.resources.snapshot import Snapshottable


def _make(spec: AccumulatorSpec, name: str, _: AllowedDirectories) -> Snapshottable:
    return Accumulator(spec, name)


ACCUMULATOR = Kind("accumulator", AccumulatorSpec, _make, AccumulatorSnapshot, KERNELS)
