"""Estimates of the time of operations and transfers, from counts and a calibration.

The time of an operation is a sum over what is counted of it (`work.py`), each count times what a
device of that kind takes for one. What XLA fuses is not counted, so the times of operations that
stay together add up to that of their program. On a mesh the counts are those of all of its devices,
with the collectives that XLA inserts (`mesh_work.py`).

Starting a program is part of the latency of a transfer: a device starts a program for each stage of
its plan, and every stage but the first waits for a transfer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jflow.base.cluster import Axes, Device, Wiring
from jflow.compiler.graph import Operation
from jflow.compiler.placement.calibration import PRIOR, Calibration, Rates
from jflow.compiler.placement.loops import trips_of
from jflow.compiler.placement.mesh_work import on_mesh
from jflow.compiler.placement.work import count_operations
from jflow.compiler.schedule import BUFFERED, Costs


def estimated(
    ops: Sequence[Operation],
    devices: Sequence[Device],
    calibration: Calibration | None = None,
    wiring: Wiring | None = None,
    on_meshes: Mapping[Axes, Collection[Operation]] | None = None,
) -> Costs:
    """Estimates the costs of operations on devices, and of transfers between the devices.

    Args:
      ops: operations of one step, in the order of the graph.
      devices: the devices.
      calibration: what devices and links do; None for the prior.
      wiring: how the tasks reach each other.
      on_meshes: the operations that may run on meshes with these axes.
    """
    calibration, wiring = calibration or PRIOR, wiring or Wiring()
    rates = [rates_on(calibration, device, devices) for device in devices]
    trips = np.array([*map(trips_of, ops)], np.float64)
    alone = count_operations(ops)
    members_of = on_meshes or {}
    counts = {axes: on_mesh(alone, ops, axes, members) for axes, members in members_of.items()}
    seconds = np.zeros((len(ops), len(devices)))
    for i, device in enumerate(devices):
        of_device = counts.get(device.axes, alone)
        seconds[:, i] = trips * (of_device @ rates[i].seconds_per_count)
        if device.axes in counts:
            # A step has the dispatch of a program on one device, and transfers have those after it.
            first = next(row for row, op in enumerate(ops) if op in members_of[device.axes])
            seconds[first, i] += rates[i].dispatch
    costs = costs_of(seconds, devices, calibration, wiring)
    off = 1.0 - np.eye(len(devices))
    return replace(
        costs,
        latency=costs.latency + off * [[each.dispatch for each in rates]],
        are_estimates=True,
        work_error=calibration.work_error,
        message_error=calibration.message_error,
        in_stages=True,
    )


def rates_on(calibration: Calibration, device: Device, devices: Sequence[Device] = ()) -> Rates:
    """Returns the rates of a device, or of the devices of a mesh together.

    Args:
      calibration: what devices do.
      device: the device or mesh.
      devices: those of the cluster; a mesh that lacks its devices there is one of CPU devices,
        which share the processors of their process.
    """
    kind = next((one.type for one in _members(device, devices)), "CPU")
    rates = calibration.rates_of(kind)
    if not device.axes:
        return rates
    together = rates if kind == "CPU" else rates.times(device.n_devices)
    return replace(together, dispatch=rates.mesh_dispatch)


def _members(mesh: Device, devices: Sequence[Device]) -> Sequence[Device]:
    """Returns the devices of a mesh, as far as they are given."""
    return mesh.members([one for one in devices if one.task == mesh.task and not one.axes])


def costs_of(
    seconds: np.ndarray, devices: Sequence[Device], calibration: Calibration, wiring: Wiring
) -> Costs:
    """Returns the costs for given operation times; transfers and steps cost as calibrated.

    Args:
      seconds: f64[operations, devices].
      devices, calibration, wiring: as for `estimated`.
    """
    links = [
        [calibration.link_of(wiring.link_class(a.task, b.task)) for b in devices] for a in devices
    ]
    off = 1.0 - np.eye(len(devices))
    # An accelerator computes while the processors of its host send and receive.
    computing = off * [[a.type == b.type == "CPU" for b in devices] for a in devices]
    return Costs(
        seconds,
        off * [[link.latency for link in row] for row in links],
        off * [[1 / link.bandwidth for link in row] for row in links],
        BUFFERED,
        processors=processors_of(devices),
        port_share=calibration.port_share,
        half_duplex=calibration.half_duplex,
        overhead=computing * [[link.overhead for link in row] for row in links],
        processor_share=computing * [[link.processor_share for link in row] for row in links],
        step_seconds=calibration.step_of(wiring.transport),
        task_seconds=calibration.task_of(wiring.transport),
        tasks=tasks_of(devices, wiring),
    )


def tasks_of(devices: Sequence[Device], wiring: Wiring) -> tuple[int, ...]:
    """Returns `Costs.tasks`; an unknown master is taken to be the first device's task."""
    first = [wiring.master] if wiring.master is not None else []
    tasks = dict.fromkeys([*first, *(device.task for device in devices)])
    numbers = {task: i for i, task in enumerate(tasks)}
    return tuple(numbers[device.task] for device in devices)


def processors_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """Returns `Costs.processors`: CPU devices of one process share its cores."""
    alone = {device: i for i, device in enumerate(devices)}
    cpus = {device for device in devices if device.type == "CPU"}
    first = {device.task: alone[device] for device in reversed(devices) if device in cpus}
    cpus |= {one for one in devices if one.axes and not cpus.isdisjoint(_members(one, devices))}
    return tuple(first[device.task] if device in cpus else alone[device] for device in devices)
