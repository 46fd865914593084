"""`Isolation`: the private containers of a session with `isolate_session_state`."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from jflow.base.cluster import Device
from jflow.compiler.pipeline import CompiledStep
from jflow.plan import Plan, private_container
from jflow.state.saves import StateItems


class Isolation:
    """Gives a session its private containers: renames those in its plans and saved items.

    Args:
      owner: the name of the session.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def step(self, compiled: CompiledStep) -> CompiledStep:
        """Returns the step with the containers of its plans renamed to the session's own."""
        return replace(compiled, plans=tuple(map(self._plan, compiled.plans)))

    def items(self, items: StateItems) -> StateItems:
        """Returns the items to save or restore with renamed containers and the same keys."""
        return StateItems(
            tuple(
                structs.replace(item, container=self._own(item.container, item.device))
                for item in items.items
            )
        )

    def _plan(self, plan: Plan) -> Plan:
        device = str(plan.device)
        return replace(
            plan,
            variables=tuple(
                replace(one, key=replace(one.key, container=self._own(one.key.container, device)))
                for one in plan.variables
            ),
            resources=tuple(
                replace(one, container=self._own(one.container, device)) for one in plan.resources
            ),
        )

    def _own(self, container: str, device: str) -> str:
        """Returns the private container's name; "" and the task's job name are one container."""
        job = Device.parse(device).task.job
        return private_container("" if container == job else container, self._owner)
