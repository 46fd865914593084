"""Segments to lower: the operations that fetches need, as one part of a graph on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from jflow.compiler import lowering
from jflow.compiler.graph import Tensor
from jflow.compiler.lowering.export import EXPORTED
from jflow.compiler.partition import prune
from jflow.plan import xla


def lowered(*fetches: Tensor, inputs: tuple[Tensor, ...] = ()) -> lowering.Lowered:
    """The program that gives the fetches and takes the inputs."""
    ops = prune(fetches[0].graph, [], fetches, set(inputs))
    return lowering.lower(ops, (), inputs, (), fetches)


def digest(*fetches: Tensor, inputs: tuple[Tensor, ...] = ()) -> str:
    """The name of the program that gives the fetches, which is exported in any case."""
    EXPORTED.clear()
    return xla.digest_of(lowering.export(lowered(*fetches, inputs=inputs).jaxpr, "cpu"))


def run(program: lowering.Lowered, device: Any, *args: Any) -> list[np.ndarray[Any, Any]]:
    """What a program gives, compiled for a device."""
    (executable,) = lowering.compile_all([(program, device, ())])
    return [np.asarray(value) for value in executable(*args, *program.constants)]
