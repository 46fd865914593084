"""Compiles once what the placements of one graph have in common, for tests of many placements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import pytest

from jflow.base.cluster import Axes
from jflow.client.runtime import local
from jflow.compiler.lowering import Lowered
from jflow.compiler.pipeline import pipeline
from jflow.plan.xla import CompiledProgram

_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_llvm_disable_expensive_passes": True,
}
"""Those with which XLA takes the least time for small programs."""


@contextmanager
def compiled_once() -> Iterator[None]:
    """Within it, equal segments are lowered once, and compiled once for each device.

    Two segments are equal if all arguments of `lower` are: their operations, what they read, take,
    write and give. So a run is what it would be, but for the time that XLA takes; placing, cutting
    and linking are done for each placement. Programs of local sessions are compiled in a third of
    the time, without optimizations; what they are compared with is compiled as always.
    """
    once = _Once()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "lower", once.lower)
        patch.setattr(local, "compile_all", once.compile_all)
        yield


class _Once:
    """What was lowered and compiled; it keeps all of it, so that an `id` names one program."""

    def __init__(self) -> None:
        self._lower, self._compile_all = pipeline.lower, local.compile_all
        self._lowered: dict[Any, Lowered] = {}
        self._executables: dict[Any, CompiledProgram] = {}

    def lower(self, *parts: Sequence[Any], for_cpu: bool, axes: Axes) -> Lowered:
        key = (*map(tuple, parts), for_cpu, axes)
        if key not in self._lowered:
            self._lowered[key] = self._lower(*parts, for_cpu=for_cpu, axes=axes)
        return self._lowered[key]

    def compile_all(self, programs: Sequence[Any]) -> list[CompiledProgram]:
        wanted = {(id(lowered), *rest): (lowered, *rest) for lowered, *rest in programs}
        missing = [key for key in wanted if key not in self._executables]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax, "jit", partial(jax.jit, compiler_options=_OPTIONS))
            found = self._compile_all([wanted[key] for key in missing]) if missing else ()
        self._executables |= zip(missing, found, strict=True)
        return [self._executables[id(lowered), *rest] for lowered, *rest in programs]
