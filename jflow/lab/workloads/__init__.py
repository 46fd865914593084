"""Workloads: models whose training steps are placed, run and measured: W1 to W8, and a tiny one."""

from typing import Any

from jflow.lab.workloads.actor_learner import ACTOR_LEARNER
from jflow.lab.workloads.inception import INCEPTION
from jflow.lab.workloads.perceptrons import DIGITS, MLP
from jflow.lab.workloads.pipelined import PIPELINED
from jflow.lab.workloads.seq2seq import SEQ2SEQ
from jflow.lab.workloads.transformers import MOE, TRANSFORMER
from jflow.lab.workloads.wide_and_deep import WIDE_AND_DEEP
from jflow.lab.workloads.workload import Workload as Workload
from jflow.lab.workloads.workload import WorkloadStep as WorkloadStep

WORKLOADS: dict[str, Workload[Any]] = {
    workload.name: workload
    for workload in (
        *(MLP, WIDE_AND_DEEP, SEQ2SEQ, INCEPTION, TRANSFORMER, MOE, ACTOR_LEARNER),
        *(PIPELINED, DIGITS),
    )
}
"""All workloads by name: models whose training steps are placed, run and measured."""
