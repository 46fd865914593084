"""What devices and links do in a second: a prior, and what was measured on a machine instead.

A calibration is data. `jflow calibrate` measures one and writes it to a file (docs/lab.md);
sessions read the file and give it to what estimates costs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from jflow.base.cluster import SAME_PROCESS
from jflow.compiler.placement.equations import N_COUNTS, Count, Vector
from jflow.errors import InvalidArgumentError

FORMAT = 4
"""The version of the form of files."""

DOUBTFUL = 0.5
"""A calibration is doubtful if one of its own checks is off by more than this."""


@dataclass(frozen=True)
class Rates:
    """What devices of one kind do.

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
    """

    flops: float
    convolutions: float
    elements: float
    transcendentals: float
    near_bandwidth: float
    far_bandwidth: float
    kernel: float
    reduction: float
    iteration: float
    call: float
    dispatch: float

    @property
    def seconds_per_count(self) -> Vector:
        """What each `Count` takes, in seconds: f64[N_COUNTS]."""
        seconds = np.zeros(N_COUNTS)
        for count, rate in (
            (Count.FLOPS, self.flops),
            (Count.CONVOLUTIONS, self.convolutions),
            (Count.ELEMENTS, self.elements),
            (Count.TRANSCENDENTALS, self.transcendentals),
            (Count.NEAR_BYTES, self.near_bandwidth),
            (Count.FAR_BYTES, self.far_bandwidth),
        ):
            seconds[count] = 1 / rate
        seconds[Count.KERNELS] = self.kernel
        seconds[Count.REDUCTIONS] = self.reduction
        seconds[Count.ITERATIONS] = self.iteration
        seconds[Count.CALLS] = self.call
        return seconds


@dataclass(frozen=True)
class Link:
    """What a transfer takes.

    Attributes:
      latency: seconds of every transfer.
      bandwidth: bytes a second.
      overhead: the part of the latency, in seconds, that the processors of both tasks spend on each
        message, so that CPU devices compute nothing meanwhile.
      processor_share: likewise, the part of the time of its bytes.
    """

    latency: float
    bandwidth: float
    overhead: float = 0.0
    processor_share: float = 0.0


@dataclass(frozen=True)
class Machine:
    """Where a calibration was made.

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
        """Why costs on the other machine are not those of this one; "" if they are.

        The name of the host does not count: containers get another one at each start.
        """
        for name in ("processor", "n_cores", "jaxlib"):
            then, now = getattr(self, name), getattr(here, name)
            if then != now:
                return f"it was made with {name} {then}, here is {now}"
        return ""


@dataclass(frozen=True)
class Calibration:
    """What the devices and links of some machines do.

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
      reference_seconds: what a program of some milliseconds took, in the same turns as all else:
        measured again, it tells how much slower the machine is than it was; 0 if not measured.
      made: when, as seconds since 1970; 0 for the prior.
      machine: where; None for the prior.
      errors: relative errors by what they are of, see docs/lab.md.
    """

    rates: Mapping[str, Rates]
    links: Mapping[str, Link]
    step_seconds: Mapping[str, float]
    task_seconds: Mapping[str, float] = field(default_factory=dict)
    port_share: float = 1.0
    duplex_share: float = 0.0
    overlap: float = 1.0
    work_error: float = 0.3
    message_error: float = 0.5
    reference_seconds: float = 0.0
    made: float = 0.0
    machine: Machine | None = None
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def half_duplex(self) -> bool:
        """See `jflow.compiler.schedule.Costs.half_duplex`."""
        return self.duplex_share > 0.5

    @property
    def doubts(self) -> tuple[str, ...]:
        """The checks that are off by more than `DOUBTFUL`, with by how much; none of a good one.

        A placement by such constants may be slower than one device. It means that the machine did
        something else in a part of the measurement, or that the model does not describe it.
        """
        checks = {"programs, against estimates": self.work_error, **self.errors}
        return tuple(f"{name}: {off:.0%}" for name, off in checks.items() if off > DOUBTFUL)

    def rates_of(self, device_type: str) -> Rates:
        """The rates of a device type; those of the prior if it was not measured."""
        prior = PRIOR.rates["CPU" if device_type == "CPU" else "GPU"]
        return self.rates.get(device_type, prior)

    def link_of(self, link_class: str) -> Link:
        """The link of a class; that of the prior if it was not measured."""
        if link_class in self.links:
            return self.links[link_class]
        where = link_class.rpartition("/")[2]
        return PRIOR.links[where if where in PRIOR.links else "network"]

    def step_of(self, transport: str, n_further: int = 0) -> float:
        """What every step takes that needs so many tasks beyond the master's.

        As in the prior if it was not measured.
        """
        step = _of_transport(self.step_seconds, PRIOR.step_seconds, transport)
        return step + self.task_of(transport) * n_further

    def task_of(self, transport: str) -> float:
        """What each further task adds to a step; as in the prior if it was not measured."""
        return _of_transport(self.task_seconds, PRIOR.task_seconds, transport)

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Calibration:
        """The calibration that `to_json` has written.

        Raises:
          InvalidArgumentError: if the text is of another form; it says where.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"it is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else None
            raise InvalidArgumentError(f"expected format {FORMAT}, got {found!r}")
        del data["format"]
        machine = data.pop("machine", None)
        fractions = {name: _number(data.pop(name, None), name, most=1.0) for name in _SHARES}
        made = _number(data.pop("made", None), "made")
        message_error = _number(data.pop("message_error", None), "message_error")
        reference = _number(data.pop("reference_seconds", None), "reference_seconds")
        parts = {name: _mapping(data.pop(name, None), name) for name in _MAPPINGS}
        if data:
            raise InvalidArgumentError(f"expected {', '.join(_NAMES)}; got {', '.join(data)} too")
        return Calibration(
            rates={kind: _record(Rates, each, kind) for kind, each in parts["rates"].items()},
            links={kind: _record(Link, each, kind) for kind, each in parts["links"].items()},
            step_seconds=_numbers(parts["step_seconds"], "step_seconds"),
            task_seconds=_numbers(parts["task_seconds"], "task_seconds"),
            errors=_numbers(parts["errors"], "error"),
            made=made,
            message_error=message_error,
            reference_seconds=reference,
            **fractions,
            machine=None if machine is None else _machine(machine),
        )


_MAPPINGS = ("rates", "links", "step_seconds", "task_seconds", "errors")
_SHARES = ("port_share", "duplex_share", "overlap", "work_error")
_NAMES = tuple(each.name for each in fields(Calibration))
_DURATIONS = frozenset(
    {"kernel", "reduction", "iteration", "call", "dispatch", "latency", "overhead"}
)
"""What may be 0."""

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
"""Of one core of a small server (Xeon, jaxlib 0.10.2), and in orders of magnitude of a GPU, which
stands for all accelerators."""

_T = TypeVar("_T", Rates, Link)


def _of_transport(known: Mapping[str, float], prior: Mapping[str, float], transport: str) -> float:
    return known.get(transport, prior.get(transport, prior["grpc"]))


def _mapping(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidArgumentError(f"expected an object as {name}, got {data!r:.80}")
    return data


def _record(kind: type[_T], data: Any, name: str) -> _T:
    wanted = [each.name for each in fields(kind)]
    if not isinstance(data, dict) or sorted(data) != sorted(wanted):
        raise InvalidArgumentError(f"expected {', '.join(wanted)} of {name}, got {data!r:.80}")
    return kind(
        **{
            each: _number(value, f"{each} of {name}", most=1.0)
            if each == "processor_share"
            else _number(value, f"{each} of {name}", is_rate=each not in _DURATIONS)
            for each, value in data.items()
        }
    )


def _number(data: Any, name: str, *, is_rate: bool = False, most: float = math.inf) -> float:
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if is_number and math.isfinite(data) and 0 <= data <= most and (data or not is_rate):
        return float(data)
    limits = "above 0" if is_rate else "from 0" + (f" to {most:g}" if most < math.inf else "")
    raise InvalidArgumentError(f"expected a finite number {limits} as {name}, got {data!r:.80}")


def _numbers(data: dict[str, Any], name: str) -> dict[str, float]:
    return {kind: _number(each, f"{name} of {kind}") for kind, each in data.items()}


def _machine(data: Any) -> Machine:
    types = {"host": str, "processor": str, "n_cores": int, "jax": str, "jaxlib": str}
    good = isinstance(data, dict) and {key: type(value) for key, value in data.items()} == types
    if not good:
        raise InvalidArgumentError(f"expected {', '.join(types)} as machine, got {data!r:.80}")
    return Machine(**data)
