"""Calibrations: rates of devices and links, estimated in advance or measured on a machine.

A calibration is data. `jflow calibrate` measures one and writes it to a file (docs/lab.md);
sessions read the file and give it to what estimates costs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from jflow.base.cluster import SAME_PROCESS
from jflow.base.versions import prepared
from jflow.compiler.placement.equations import N_COUNTS, Count, Vector
from jflow.errors import InvalidArgumentError

FORMAT = 5
"""The version of the form of files."""

DOUBTFUL = 0.5
"""A calibration is doubtful if one of its own checks is off by more than this."""


_Rate = Annotated[float, Meta(gt=0.0, le=sys.float_info.max)]
_Amount = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]
_Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]


_THROUGHPUTS = {
    Count.FLOPS: "flops",
    Count.CONVOLUTIONS: "convolutions",
    Count.ELEMENTS: "elements",
    Count.TRANSCENDENTALS: "transcendentals",
    Count.NEAR_BYTES: "near_bandwidth",
    Count.FAR_BYTES: "far_bandwidth",
    Count.SENT_BYTES: "sent_bandwidth",
}
"""The rates that are units a second."""


@dataclass(frozen=True)
class Rates:
    """Throughput and fixed costs of one type of device.

    Attributes:
      flops: floating point operations a second of matrix products.
      convolutions: floating point operations a second of convolutions.
      elements: simple operations on elements a second.
      transcendentals: exponentials and the like a second.
      near_bandwidth: bytes a second of arrays that fit into a cache.
      far_bandwidth: bytes a second of larger arrays.
      kernel: seconds for each loop over arrays or call of a library in a program.
      reduction: likewise for each loop over arrays that ends in a reduction.
      iteration: seconds for each iteration of a loop, and for each kernel in it.
      call: seconds for each call of a function of the host.
      dispatch: seconds for each program.
      mesh_dispatch: seconds for each program on a mesh.
      message: seconds for each message of a collective between devices of a task.
      sent_bandwidth: bytes a second that a device sends in collectives; that all CPU devices of a
        task send together, as they share its processors.
    """

    flops: _Rate
    convolutions: _Rate
    elements: _Rate
    transcendentals: _Rate
    near_bandwidth: _Rate
    far_bandwidth: _Rate
    kernel: _Amount
    reduction: _Amount
    iteration: _Amount
    call: _Amount
    dispatch: _Amount
    mesh_dispatch: _Amount
    message: _Amount
    sent_bandwidth: _Rate

    def times(self, n_devices: int) -> Rates:
        """Returns the rates of so many devices together, for counts of all of them."""
        together = {name: getattr(self, name) * n_devices for name in _THROUGHPUTS.values()}
        of_kernels = ("kernel", "reduction", "iteration")
        together |= {name: getattr(self, name) / n_devices for name in of_kernels}
        return replace(self, **together)

    @property
    def seconds_per_count(self) -> Vector:
        """Seconds for one unit of each `Count`: f64[N_COUNTS]."""
        seconds = np.zeros(N_COUNTS)
        for count, name in _THROUGHPUTS.items():
            seconds[count] = 1 / getattr(self, name)
        seconds[Count.KERNELS] = self.kernel
        seconds[Count.REDUCTIONS] = self.reduction
        seconds[Count.ITERATIONS] = self.iteration
        seconds[Count.CALLS] = self.call
        seconds[Count.MESSAGES] = self.message
        return seconds


@dataclass(frozen=True)
class Link:
    """Costs of a transfer over one class of link.

    Attributes:
      latency: seconds of every transfer.
      bandwidth: bytes a second.
      overhead: the part of the latency, in seconds, that the processors of both tasks spend on each
        message, so that CPU devices compute nothing meanwhile.
      processor_share: likewise, the part of the time of its bytes.
    """

    latency: _Amount
    bandwidth: _Rate
    overhead: _Amount = 0.0
    processor_share: _Fraction = 0.0


@dataclass(frozen=True)
class Machine:
    """Description of the machine that a calibration was measured on.

    Attributes:
      host: the name of the machine.
      processor: its model.
      n_cores: the cores that the process could use.
      jax, jaxlib: versions.
    """

    host: str
    processor: str
    n_cores: int
    jax: str
    jaxlib: str

    def difference(self, here: Machine) -> str:
        """Returns why costs of the other machine do not apply to this one; "" if they do.

        The name of the host does not count: containers get another one at each start.
        """
        for name in ("processor", "n_cores", "jaxlib"):
            then, now = getattr(self, name), getattr(here, name)
            if then != now:
                return f"it was made with {name} {then}, here is {now}"
        return ""


@dataclass(frozen=True)
class Calibration:
    """Measured or assumed costs of devices, links and steps.

    Attributes:
      rates: by device type, such as "CPU".
      links: by the class of the link, see `jflow.base.cluster.Wiring`.
      step_seconds: what every step takes, whatever it computes; by the transport between client and
        master, "process" for sessions without a cluster.
      task_seconds: what each further task that takes part adds to that, likewise.
      port_share: the part of a transfer's time for which it occupies the ports of its tasks; 1 if
        they send and receive one tensor after another, 0 if transfers do not slow each other.
      duplex_share: the part of a transfer's time for which the task that sends it cannot receive
        another one; above a half, predictions take the two ports of a device for one.
      overlap: how much of a transfer is hidden behind computing on the receiving device; 1 for all.
      work_error: the part by which programs may take less than estimated, below 1: three of four
        errors are smaller.
      message_error: likewise, the part by which what is sent may take more.
      collective_error: the median error of collectives, each predicted from the others. It casts no
        doubt on a calibration: no strategy chooses whether there are any.
      reference_seconds: what a program of some milliseconds took, in the same turns as all else:
        measured again, it tells how much slower the machine is than it was; 0 if not measured.
      made: when, as seconds since 1970; 0 for the prior.
      machine: where; None for the prior.
      errors: relative errors by what they are of, see docs/lab.md.
    """

    rates: Mapping[str, Rates]
    links: Mapping[str, Link]
    step_seconds: Mapping[str, _Amount]
    task_seconds: Mapping[str, _Amount] = field(default_factory=dict)
    port_share: _Fraction = 1.0
    duplex_share: _Fraction = 0.0
    overlap: _Fraction = 1.0
    work_error: _Fraction = 0.3
    message_error: _Amount = 0.5
    collective_error: _Amount = 0.0
    reference_seconds: _Amount = 0.0
    made: _Amount = 0.0
    machine: Machine | None = None
    errors: Mapping[str, _Amount] = field(default_factory=dict)

    @property
    def half_duplex(self) -> bool:
        """See `jflow.compiler.schedule.Costs.half_duplex`."""
        return self.duplex_share > 0.5

    @property
    def doubts(self) -> tuple[str, ...]:
        """The checks whose error exceeds `DOUBTFUL`, as "name: error"; empty if there are none.

        A placement by such constants may be slower than one device. It means that the machine did
        something else in a part of the measurement, or that the model does not describe it.
        """
        checks = {"programs, against estimates": self.work_error, **self.errors}
        return tuple(f"{name}: {off:.0%}" for name, off in checks.items() if off > DOUBTFUL)

    def rates_of(self, device_type: str) -> Rates:
        """Returns the rates of a device type; the prior's if it was not measured."""
        prior = PRIOR.rates["CPU" if device_type == "CPU" else "GPU"]
        return self.rates.get(device_type, prior)

    def link_of(self, link_class: str) -> Link:
        """Returns the link of a class; the prior's if it was not measured."""
        if link_class in self.links:
            return self.links[link_class]
        where = link_class.rpartition("/")[2]
        return PRIOR.links[where if where in PRIOR.links else "network"]

    def step_of(self, transport: str) -> float:
        """Returns the seconds that every step takes; the prior's if that was not measured."""
        return _of_transport(self.step_seconds, PRIOR.step_seconds, transport)

    def task_of(self, transport: str) -> float:
        """Returns the seconds that each further task adds to a step, likewise."""
        return _of_transport(self.task_seconds, PRIOR.task_seconds, transport)

    def to_json(self) -> str:
        """Serializes the calibration as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Calibration:
        """Parses the JSON written by `to_json`.

        Raises:
          InvalidArgumentError: if the text is of another form; it says where.
        """
        try:
            data = msgspec.json.decode(text, type=dict[str, Any])
            if (version := data.pop("format", None)) != FORMAT:
                raise InvalidArgumentError(f"expected format {FORMAT}, got {version!r:.80}")
            calibration = msgspec.convert(data, prepared(Calibration))
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidArgumentError(f"it is not the JSON of a calibration: {error}") from None
        if asdict(calibration) != {"machine": None} | data:
            raise InvalidArgumentError("expected all fields of a calibration, and no others")
        return calibration


PRIOR = Calibration(
    rates={
        "CPU": Rates(
            flops=6e10,
            convolutions=6e10,
            elements=8e9,
            transcendentals=1.4e9,
            near_bandwidth=3e10,
            far_bandwidth=8e9,
            kernel=1e-6,
            reduction=6e-6,
            iteration=5e-8,
            call=1e-5,
            dispatch=2e-5,
            mesh_dispatch=4e-4,
            message=1e-5,
            sent_bandwidth=1.5e10,
        ),
        "GPU": Rates(
            flops=1e13,
            convolutions=1e13,
            elements=5e11,
            transcendentals=1e11,
            near_bandwidth=1e12,
            far_bandwidth=5e11,
            kernel=2e-6,
            reduction=4e-6,
            iteration=2e-6,
            call=1e-5,
            dispatch=1e-5,
            mesh_dispatch=1e-4,
            message=2e-6,
            sent_bandwidth=1e11,
        ),
    },
    links={
        SAME_PROCESS: Link(latency=1e-4, bandwidth=6e9),
        "host": Link(latency=1e-3, bandwidth=8e8, overhead=4e-4, processor_share=0.9),
        "network": Link(latency=1.2e-3, bandwidth=8e8, overhead=4e-4, processor_share=0.9),
    },
    step_seconds={SAME_PROCESS: 3e-5, "grpc": 8e-4},
    task_seconds={SAME_PROCESS: 0.0, "grpc": 1e-3},
)
"""Of one core of a small server (Xeon, jaxlib 0.10.2; collectives of two cores), and in orders of
magnitude of a GPU, which stands for all accelerators."""


def _of_transport(known: Mapping[str, float], prior: Mapping[str, float], transport: str) -> float:
    return known.get(transport, prior.get(transport, prior["grpc"]))
