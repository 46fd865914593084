"""The process of a task that says, in its log, what it was told about the machine."""

from __future__ import annotations

import json
import os
import sys

import jax

from jflow.base.cluster import ClusterSpec
from jflow.launch import child
from jflow.task.server import Server

NAMES = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION", "NPROC")


def tell_and_serve(cluster: ClusterSpec, job: str, index: int) -> Server:
    """Tells before JAX is used."""
    told = {name: os.environ[name] for name in NAMES if name in os.environ}
    told["platforms"] = jax.config.jax_platforms
    print(json.dumps(told), file=sys.stderr, flush=True)
    return Server(cluster, job, index)


if __name__ == "__main__":
    child.main(tell_and_serve)
    os._exit(0)
