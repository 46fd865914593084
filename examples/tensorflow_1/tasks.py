"""What each program here does first: its role in the cluster, and its data."""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np

import jflow as tf

DIGITS = Path(__file__).parent.parent / "data" / "digits.csv.gz"


def parsed_task(n_steps: int) -> tuple[argparse.Namespace, tf.train.ClusterSpec]:
    """The options and the cluster that the command line says, as in 2017."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True, help="host:port of each parameter server")
    parser.add_argument("--worker_hosts", required=True, help="host:port of each worker")
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--logdir", default=None, help="directory of checkpoints")
    parser.add_argument("--steps", type=int, default=n_steps)
    options = parser.parse_args()
    hosts = {"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")}
    return options, tf.train.ClusterSpec(hosts)


def load_digits() -> tuple[Any, Any, Any, Any]:
    """Images f32[n, 64] and digits i32[n]: those to train with, and those to test with."""
    with gzip.open(DIGITS, "rt") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    rows = np.random.default_rng(0).permutation(rows)
    images, digits = rows[:, :64] / 16, rows[:, 64].astype(np.int32)
    return images[:1197], digits[:1197], images[1197:], digits[1197:]
