"""Names of the state of a graph in a cluster."""

from __future__ import annotations

from jflow.base.cluster import Device
from jflow.compiler.graph import Graph, Operation, VariableRef
from jflow.compiler.graph.primitives import ResourceRef, state_of
from jflow.state.moves import StateId
from jflow.state.moves.states import VARIABLE

StateRef = VariableRef | ResourceRef


def refs_of(graph: Graph) -> dict[Operation, StateRef]:
    """The variables and resources that the operations of a graph use, by their handle ops."""
    used = dict.fromkeys(ref for op in graph.get_operations() for ref in state_of(op.eqn))
    return {graph.handle_of(ref): ref for ref in used}


def state_id(ref: StateRef, device: Device, owner: str = "") -> StateId:
    """The name of state on a device.

    Args:
      ref: the variable or resource.
      device: where it is.
      owner: the session that it belongs to unless it is shared.
    """
    container = "" if ref.container == device.task.job else ref.container
    if isinstance(ref, VariableRef):
        return StateId(str(device), VARIABLE, container, ref.name)
    return StateId(str(device), ref.kind, container, ref.name, "" if ref.is_shared else owner)
