"""Plans that read the variables that are there before a recording begins, or after a restore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jflow.base.cluster import Device
from jflow.plan import VARYING, Fetch, Plan, Run, VariableKey, VariableSpec, owner_of
from jflow.state.watch import VariableStatus


def reading_plans(variables: Iterable[VariableStatus]) -> Iterator[Plan]:
    """Yields plans that read variables, a plan for each device, with fetches from 0 on.

    What belongs to a session is left out: nothing else can read it.
    """
    by_device: dict[str, list[VariableStatus]] = {}
    for one in variables:
        if not owner_of(one.container):
            by_device.setdefault(one.device, []).append(one)
    for device, found in by_device.items():
        yield _reading_plan(Device.parse(device), found)


def _reading_plan(device: Device, variables: list[VariableStatus]) -> Plan:
    slots = range(len(variables))
    specs = tuple(map(_spec, variables))
    read = Run(None, before=tuple((slot, slot) for slot in slots), op="the values before")
    fetches = (Fetch(slot, slot) for slot in slots)
    return Plan(device, len(variables), specs, ((read, *fetches),))


def _spec(one: VariableStatus) -> VariableSpec:
    shape = tuple(VARYING if i in one.varying else size for i, size in enumerate(one.shape))
    return VariableSpec(VariableKey(one.container, one.name), one.dtype, shape, one.sharding)
