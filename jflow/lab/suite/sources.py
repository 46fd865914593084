"""Cases from graphs that are not random: models, and files of dnn-partitioning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from jflow.compiler.schedule import Problem
from jflow.errors import InvalidArgumentError
from jflow.lab.importing import read_dnn_partitioning
from jflow.lab.problems import problem_of, simulated_devices
from jflow.lab.suite.cases import IMPORTED, MODELS, SuiteCase
from jflow.lab.workloads import WORKLOADS

MODEL_DEVICES = (8, 64)
"""How many devices the simulated clusters have that models are placed on."""

IMPORTED_DEVICES = (4, 8)


def model_cases(names: Sequence[str], quick: bool) -> Iterator[SuiteCase]:
    """The training steps of workloads, by estimated costs; quickly: the small ones of them."""
    scale = "small" if quick else "cpu"
    for n_devices in MODEL_DEVICES[:1] if quick else MODEL_DEVICES:
        for name in names:
            build = partial(model_problem, name, scale, n_devices)
            yield SuiteCase(MODELS, name, n_devices, {"scale": scale}, build)


def model_problem(name: str, scale: str, n_devices: int) -> Problem:
    """The placement problem of a workload whose variables are spread over all devices."""
    devices = [str(device) for device in simulated_devices(n_devices)]
    return problem_of(WORKLOADS[name].build(scale, devices), n_devices)


def imported_cases(folder: Path) -> Iterator[SuiteCase]:
    """The graphs of all JSON files in a folder, with and without their memory limits.

    Raises:
      InvalidArgumentError: if there is none, or one of them is not of the format.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InvalidArgumentError(f"there are no graphs, which are files *.json, in {folder}")
    for path in paths:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        read_dnn_partitioning(path)  # what is wrong with it is said before anything runs
        for n_devices in IMPORTED_DEVICES:
            for limits_memory in (False, True):
                build = partial(
                    read_dnn_partitioning,
                    path,
                    n_accelerators=n_devices,
                    n_cpus=0,
                    limits_memory=limits_memory,
                )
                parameters = {"file": digest, "memory": "limited" if limits_memory else "unlimited"}
                yield SuiteCase(IMPORTED, path.stem, n_devices, parameters, build)
