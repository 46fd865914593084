"""The device that the user asks for, as it rides in the metadata of equations.

Each field of a device name is a key of its own, so that JAX's nesting of metadata is the nesting of
device scopes: the inner one wins where it says something.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax.experimental.xla_metadata
import jax.extend.core as jex

from jflow.cluster import DeviceSpec

_JOB, _TASK, _TYPE, _INDEX = _KEYS = ("jflow_job", "jflow_task", "jflow_type", "jflow_index")

Metadata = dict[str, str | None]

_NOTHING = jex.Primitive("nothing")


def carried(metadata: Metadata) -> AbstractContextManager[Any]:
    """A block whose equations carry `metadata`; None removes a key."""
    block: AbstractContextManager[Any] = jax.experimental.xla_metadata.set_xla_metadata(**metadata)
    return block


def asking_for(spec: DeviceSpec) -> AbstractContextManager[Any]:
    """A block whose equations ask for a device, within what the blocks around it ask for."""
    values = (spec.job, spec.task, spec.type, spec.index)
    return carried({k: str(v) for k, v in zip(_KEYS, values, strict=True) if v is not None})


def asking_for_nothing() -> AbstractContextManager[Any]:
    """A block whose equations forget what the blocks around it ask for."""
    return carried(dict.fromkeys(_KEYS))


def asked_for(eqn: jex.JaxprEqn) -> DeviceSpec:
    """The device that an equation asks for; fields that nobody set are None."""
    asked = eqn.ctx.xla_metadata or {}
    task, index = asked.get(_TASK), asked.get(_INDEX)
    return DeviceSpec(
        job=asked.get(_JOB),
        task=None if task is None else int(task),
        type=asked.get(_TYPE),
        index=None if index is None else int(index),
    )


def requested() -> DeviceSpec:
    """The device that the blocks around the caller ask for."""
    return asked_for(jex.new_jaxpr_eqn([], [], _NOTHING, {}, jex.no_effects))
