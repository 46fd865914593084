"""Dataflow graphs that span machines, compiled by XLA, with state that outlives your session."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use
from jflow.base import forks as _forks  # noqa: F401 - before gRPC is imported

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jflow import checkpoint as checkpoint
    from jflow import contrib as contrib
    from jflow import data as data
    from jflow import distribute as distribute
    from jflow import errors as errors
    from jflow import estimator as estimator
    from jflow import export as export
    from jflow import initializers as initializers
    from jflow import inspect as inspect
    from jflow import lab as lab
    from jflow import lax as lax
    from jflow import lookup as lookup
    from jflow import nn as nn
    from jflow import numpy as numpy
    from jflow import python_io as python_io
    from jflow import random as random
    from jflow import summary as summary
    from jflow import timeline as timeline
    from jflow import train as train
    from jflow.api.root import *
    from jflow.training.coordinator import ClosureInputError as ClosureInputError
    from jflow.training.coordinator import ClusterCoordinator as ClusterCoordinator
    from jflow.training.coordinator import PerWorkerValues as PerWorkerValues
    from jflow.training.coordinator import RemoteValue as RemoteValue
else:
    __getattr__, __dir__ = _on_first_use(
        globals(),
        "jflow.api.root",
        modules=(
            *("checkpoint", "contrib", "data", "distribute", "errors", "estimator", "export"),
            *("initializers", "inspect", "lab", "lax", "lookup", "nn", "numpy", "python_io"),
            *("random", "summary", "timeline", "train"),
        ),
        others=dict.fromkeys(
            ("ClosureInputError", "ClusterCoordinator", "PerWorkerValues", "RemoteValue"),
            "jflow.training.coordinator",
        ),
        starred=("errors", "lax", "nn", "numpy", "random"),
    )
