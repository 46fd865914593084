"""`SyncReplicasOptimizer`: workers that train in step, some of them as spares."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import jax.numpy as jnp

from jflow.graph import (
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    gradients,
    name_scope,
)
from jflow.ops import (
    LOCAL_VARIABLES,
    ConditionalAccumulator,
    FIFOQueue,
    Variable,
    group,
    no_op,
    trainable_variables,
)
from jflow.training.optimizer import GradientTransformation, apply_optimizer
from jflow.training.queue_runner import QueueRunner
