"""Text form of compiled steps: placement, plans and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jflow.base.cluster import Device
from jflow.base.values import Array
from jflow.compiler.graph import Operation
from jflow.compiler.lowering import Lowered, exported_signature
from jflow.plan import Plan


def placement_text(placement: Mapping[Operation, Device]) -> str:
    """Returns the device of each operation, one per line, in the graph's order."""
    width = max((len(str(device)) for device in placement.values()), default=0)
    lines = (f"  {device!s:{width}}  {op.name}" for op, device in placement.items())
    return "\n".join(["placement", *lines])


def step_text(
    placement: Mapping[Operation, Device],
    plans: Sequence[Plan],
    programs: Mapping[str, Lowered],
    artifacts: Mapping[str, Array],
) -> str:
    """Returns the placement of a step, its plans by device, and its programs.

    Args:
      placement: a device for each operation.
      plans: one for each device.
      programs: programs for this process by name; none for a cluster.
      artifacts: for a cluster, the exported programs as u8[n] by digest.
    """
    signatures = {
        name: programs[name].signature if name in programs else exported_signature(artifacts[name])
        for name in dict.fromkeys(program.digest for plan in plans for program in plan.programs)
    }
    sections = [placement_text(placement)]
    sections += [plan.text(signatures) for plan in plans]
    sections += [f"{name}: {program.text()}" for name, program in programs.items()]
    return "\n\n".join(sections)
