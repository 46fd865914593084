"""The containers of one task, or of one local session."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import jax

from jflow.cluster import Device, Task
from jflow.errors import FailedPreconditionError, InvalidArgumentError
from jflow.plan import VARYING, VariableKey, VariableSpec
from jflow.records import Roots
from jflow.resources.holder import Holders
from jflow.resources.variable import Buffer, Variable

_Place = tuple[Device, str]


class Store:
    """Variables by container, device and name.

    The default container is "", which is also called by the name of the task's job.

    Args:
      task: the task whose state this is; errors name it.
      roots: where its readers may read files; nowhere if None.

    Attributes:
      lock: held by whoever uses a variable, from reading its buffer to setting the next one.
      resources: queues and what else there is besides variables.
    """

    def __init__(self, task: Task, roots: Roots | None = None) -> None:
        self._task = task
        self._containers: dict[str, dict[_Place, Variable]] = {}
        self.lock = threading.Lock()
        self.resources = Holders(task, roots or Roots(()))

    def get(self, device: Device, spec: VariableSpec) -> Variable:
        """The variable, which must be initialized.

        Raises:
          FailedPreconditionError: if it is not.
          InvalidArgumentError: if it has another dtype or shape.
        """
        variable = self.find(device, spec)
        if variable is None:
            raise FailedPreconditionError(
                f"Attempting to use uninitialized value: {spec.key} on {device}; run its "
                "initializer or jflow.global_variables_initializer() in this container first",
                op=spec.key.name,
                task=str(self._task),
            )
        return variable

    def find(self, device: Device, spec: VariableSpec) -> Variable | None:
        """The variable, None if it is not initialized. Raises InvalidArgumentError as `get`."""
        variable = self._find(device, spec.key)
        if variable is not None:
            self._check(variable, spec, device)
        return variable

    def peek(self, device: Device, key: VariableKey) -> jax.Array | None:
        """A variable's buffer as it is now; without the lock, so an update may take it away."""
        variable = self._find(device, key)
        return None if variable is None else variable.buffer.array

    def set(self, device: Device, spec: VariableSpec, array: jax.Array) -> Variable:
        """Sets the variable's value and so initializes it."""
        variable = self._find(device, spec.key)
        if variable is None:
            variables = self._containers.setdefault(self._normal(spec.key.container), {})
            variable = variables[device, spec.key.name] = Variable(spec, Buffer(array))
        else:
            variable.set(array)
        return variable

    def clear(self, containers: Iterable[str]) -> None:
        """Frees everything in the named containers; unknown names are no error."""
        containers = list(containers)
        self.resources.clear(containers)
        with self.lock:
            for container in containers:
                self._containers.pop(self._normal(container), None)

    def clear_all(self) -> None:
        """Frees everything."""
        self.resources.clear_all()
        with self.lock:
            self._containers.clear()

    def names(self) -> dict[str, list[str]]:
        """Names of the variables by container."""
        with self.lock:
            return {
                container: sorted(name for _, name in variables)
                for container, variables in self._containers.items()
            }

    def _normal(self, container: str) -> str:
        return "" if container == self._task.job else container

    def _find(self, device: Device, key: VariableKey) -> Variable | None:
        variables = self._containers.get(self._normal(key.container))
        return None if variables is None else variables.get((device, key.name))

    def _check(self, variable: Variable, spec: VariableSpec, device: Device) -> None:
        found = variable.spec
        if (found.dtype, found.shape) != (spec.dtype, spec.shape):
            raise InvalidArgumentError(
                f"{spec.key} on {device} exists with dtype {found.dtype} and shape "
                f"{_sizes(found)}, this graph expects {spec.dtype} and {_sizes(spec)}; use another "
                "name or container, or reset the container",
                op=spec.key.name,
                task=str(self._task),
            )


def _sizes(spec: VariableSpec) -> tuple[int | None, ...]:
    """The shape for messages, None for sizes that may change."""
    return tuple(None if size == VARYING else size for size in spec.shape)
