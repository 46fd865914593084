"""A calibration as text: what it says, how old and how good it is."""

from __future__ import annotations

import time
from collections.abc import Callable

from jflow.compiler.placement.calibration import DOUBTFUL, Calibration


def calibration_report(calibration: Calibration, *, now: Callable[[], float] = time.time) -> str:
    """A calibration as text: rates, links, ports, age and errors, in several lines.

    Args:
      calibration: what to describe.
      now: gives seconds since 1970.
    """
    lines = [_origin(calibration, now())]
    for kind, rates in calibration.rates.items():
        lines.append(
            f"{kind}: {rates.flops / 1e9:.3g} Gflop/s in products, "
            f"{rates.convolutions / 1e9:.3g} in convolutions; "
            f"{rates.elements / 1e9:.3g} G simple and {rates.transcendentals / 1e9:.3g} G "
            f"transcendental operations/s"
        )
        lines.append(
            f"{kind}: {rates.near_bandwidth / 1e9:.3g} GB/s in caches, "
            f"{rates.far_bandwidth / 1e9:.3g} GB/s beyond; {_micro(rates.dispatch)} a program, "
            f"{_micro(rates.kernel)} a kernel, {_micro(rates.reduction)} a reduction, "
            f"{_micro(rates.iteration)} an iteration, {_micro(rates.call)} a host call"
        )
    for kind, link in calibration.links.items():
        lines.append(
            f"link {kind}: {_micro(link.latency)} and {link.bandwidth / 1e9:.3g} GB/s; processors "
            f"of both tasks are busy for {_micro(link.overhead)} and "
            f"{link.processor_share:.0%} of the time of the bytes"
        )
    for kind, seconds in calibration.step_seconds.items():
        task = calibration.task_seconds.get(kind, 0.0)
        lines.append(f"step over {kind}: {_micro(seconds)}, and {_micro(task)} a further task")
    lines.append(
        f"ports: a transfer occupies them for {calibration.port_share:.0%} of its time, and its "
        f"sender's for receiving for {calibration.duplex_share:.0%}; "
        f"overlap of transfers and computing: {calibration.overlap:.0%}"
    )
    lines.append(
        f"so programs may take {calibration.work_error:.0%} less, and what is sent "
        f"{calibration.message_error:.0%} more, than estimated: `auto` allows for both"
    )
    lines += [f"error of {name}: {error:.1%}" for name, error in calibration.errors.items()]
    if calibration.doubts:
        lines.append(
            f"doubtful, as its checks are off by more than {DOUBTFUL:.0%} "
            f"({'; '.join(calibration.doubts)}): calibrate again when nothing else runs"
        )
    return "\n".join(lines)


def _origin(calibration: Calibration, now: float) -> str:
    machine = calibration.machine
    if machine is None:
        return "the prior: nothing is measured"
    days = max(now - calibration.made, 0.0) / 86_400
    age = "today" if days < 1 else f"{days:.0f} days ago"
    return (
        f"measured {age} on {machine.host} ({machine.processor}, {machine.n_cores} cores, "
        f"jax {machine.jax}, jaxlib {machine.jaxlib})"
    )


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
