"""Compiles once what the placements of one graph have in common, for tests of many placements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import pytest

from jflow.lowering import Lowered
from jflow.pipeline import pipeline
from jflow.runtime import local
from jflow.xla import CompiledProgram


@contextmanager
def compiled_once() -> Iterator[None]:
    """Within it, equal segments are lowered once, and compiled once for each device.

    Two segments are equal if all arguments of `lower` are: their operations, what they read, take,
    write and give. So a run is what it would be, but for the time that XLA takes; placing, cutting
    and linking are done for each placement. XLA also leaves out most of its optimizations, for
    programs of `jax.jit` as for those of sessions.
    """
    once = _Once()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "lower", once.lower)
        patch.setattr(local, "compile_all", once.compile_all)
        before = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            yield
        finally:
            jax.config.update("jax_disable_most_optimizations", before)


class _Once:
    """What was lowered and compiled; it keeps all of it, so that an `id` names one program."""

    def __init__(self) -> None:
        self._lower, self._compile_all = pipeline.lower, local.compile_all
        self._lowered: dict[Any, Lowered] = {}
        self._executables: dict[Any, CompiledProgram] = {}

    def lower(self, *parts: Sequence[Any]) -> Lowered:
        key = tuple(map(tuple, parts))
        if key not in self._lowered:
            self._lowered[key] = self._lower(*parts)
        return self._lowered[key]

    def compile_all(self, programs: Sequence[Any]) -> list[CompiledProgram]:
        wanted = {(id(lowered), *rest): (lowered, *rest) for lowered, *rest in programs}
        missing = [key for key in wanted if key not in self._executables]
        found = self._compile_all([wanted[key] for key in missing]) if missing else ()
        self._executables |= zip(missing, found, strict=True)
        return [self._executables[id(lowered), *rest] for lowered, *rest in programs]
