"""What each worker has of its own in a scheduled function: its index, and variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.extend.core as jex
import numpy as np
from jax.interpreters import mlir

from jflow.base.cluster import DeviceSpec, Task
from jflow.client.eager import EagerVariable
from jflow.client.functions import Connection
from jflow.client.ops import Variable
from jflow.client.ops.creators import without_creators
from jflow.compiler.graph import VariableRef, device, owners
from jflow.compiler.graph.primitives import state_of
from jflow.errors import UnavailableError
from jflow.plan.xla import internals
from jflow.training.parameter_servers.roles import WORKER_JOB

worker_index_p = jex.Primitive("worker_index")
"""() → int32[]; a value when the function is bound to a worker."""


def experimental_get_current_worker_index() -> jax.Array:
    """Returns the index of the worker that runs the function, int32[].

    It is for functions that a `ClusterCoordinator` schedules.

    Raises:
      RuntimeError: elsewhere.
    """
    if not internals.is_tracing():
        _refuse()
    index: jax.Array = worker_index_p.bind()
    return index


def with_index(jaxpr: jex.ClosedJaxpr, index: int) -> jex.ClosedJaxpr:
    """Returns a traced function with the index of one worker.

    Args:
      jaxpr: equations that ask for the index at the top level.
      index: the index.
    """
    uses = [eqn for eqn in jaxpr.eqns if eqn.primitive is worker_index_p]
    if not uses:
        return jaxpr
    values = [*jaxpr.jaxpr.constvars, *(var for eqn in uses for var in eqn.outvars)]
    eqns = [eqn for eqn in jaxpr.eqns if eqn.primitive is not worker_index_p]
    bound: jex.ClosedJaxpr = jaxpr.replace(
        jaxpr=jaxpr.jaxpr.replace(constvars=values, eqns=eqns),
        consts=[*jaxpr.consts, *[np.int32(index)] * len(uses)],
    )
    return bound


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "the index of the worker is known only in functions that a coordinator schedules; ask for "
        "it there, outside of loops, branches and other nested functions of JAX"
    )


worker_index_p.def_abstract_eval(lambda: jax.core.ShapedArray((), np.int32))
worker_index_p.def_impl(_refuse)
mlir.register_lowering(worker_index_p, _refuse)


class PerWorkerVariable(Variable):
    """A variable of which each worker has one of its own, with a value of its own.

    A function that a coordinator schedules reads and writes the one of the worker it runs on. What
    a worker has is lost with it; one that returns begins with the initial value. It is in no
    checkpoint.

    Args:
      connection: the connection that owns it.
      tasks: the workers.
      arguments: those of `Variable`, by name.
    """

    def __init__(
        self, connection: Connection, tasks: Sequence[Task], arguments: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._tasks = tuple(tasks)
        name = arguments.get("name") or connection.unnamed()
        self._arguments = arguments | {"name": name, "trainable": False}
        up = {info.name for info in connection.list_devices()}
        created = [self.create_on(task) for task in tasks if _is_up(task, up)]
        if not created:
            raise UnavailableError(f"no worker is up to make variable {name!r} on")
        anywhere = replace(created[0].operations.ref, spec=_OF_ITS_WORKER)
        self.trainable = False
        self.constraint = arguments.get("constraint")
        self.save_slice_info = None
        self._operations = _OnItsWorker.of_ref(connection, anywhere)
        self._ref = anywhere

    def create_on(self, task: Task) -> Variable:
        """Makes the variable of a worker, unless it has it already; returns that variable."""
        on_it = device(_spec_of(task))
        with without_creators(), owners.owned_by(self._connection), device(None), on_it:
            return Variable(**self._arguments)

    def read_all(self) -> list[jax.Array]:
        """Returns the values of all workers, in their order.

        Raises:
          UnavailableError: if a worker does not answer.
          FailedPreconditionError: if a worker has none, because it was started again.
        """
        refs = (replace(self._ref, spec=_spec_of(task)) for task in self._tasks)
        return [EagerVariable.of_ref(self._connection, ref).value() for ref in refs]

    def __repr__(self) -> str:
        attributes = f"shape={self.shape} dtype={self.dtype.name} workers={len(self._tasks)}"
        return f"<jflow.PerWorkerVariable {self.name!r} {attributes}>"


_OF_ITS_WORKER = DeviceSpec(job=WORKER_JOB, type="CPU", index=0)
"""The device of a per-worker variable in a trace: that of the worker which runs it."""


def bound_to(jaxpr: jex.ClosedJaxpr, task: Task) -> jex.ClosedJaxpr:
    """Returns a traced function for one worker, with its index and its per-worker variables.

    Args:
      jaxpr: equations whose accesses to variables are at the top level.
      task: the worker.
    """
    jaxpr = with_index(jaxpr, task.index)
    if not any(_is_anywhere(ref) for eqn in jaxpr.eqns for ref in state_of(eqn)):
        return jaxpr
    eqns = [_bound(eqn, task) for eqn in jaxpr.eqns]
    bound: jex.ClosedJaxpr = jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(eqns=eqns))
    return bound


def _bound(eqn: jex.JaxprEqn, task: Task) -> jex.JaxprEqn:
    ref: Any = eqn.params.get("variable")
    if not _is_anywhere(ref):
        return eqn
    changed: jex.JaxprEqn = eqn.replace(
        params=eqn.params | {"variable": replace(ref, spec=_spec_of(task))}
    )
    return changed


def _is_anywhere(ref: Any) -> bool:
    return isinstance(ref, VariableRef) and ref.spec == _OF_ITS_WORKER


def _spec_of(task: Task) -> DeviceSpec:
    return replace(_OF_ITS_WORKER, job=task.job, task=task.index)


def _is_up(task: Task, device_names: set[str]) -> bool:
    return any(name.startswith(f"{task}/") for name in device_names)


class _OnItsWorker(EagerVariable):
    """Access to the variable of the worker that runs the function."""

    def bind(self, primitive: jex.Primitive, inputs: Sequence[Any] = (), **params: Any) -> Any:
        if not internals.is_tracing():
            raise ValueError(
                f"{self.ref} has a value on each worker; use it in a function that a coordinator "
                "schedules, or read all values with read_all()"
            )
        return super().bind(primitive, inputs, **params)
