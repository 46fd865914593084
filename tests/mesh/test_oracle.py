"""JAX is the reference: a program on meshes computes what `jax.jit` computes on one device."""

from hypothesis import given, settings

import jflow as tf
from tests.drawn import examples
from tests.mesh.clusters import cluster as cluster
from tests.programs_of_jax import check, programs

LOCAL = ["/device:CPU:3", "/device:MESH:0[x=2,y=2]", "/device:MESH:0[z=4]", "/device:MESH:0"]
"""Devices of this process: one alone, all as a square, in a row, and in a row without a name."""

TASKS = [
    "/job:worker/task:0/device:MESH:1[y=2]",
    "/job:worker/task:1/device:MESH:0[y=2]",
    "/job:worker/task:1/device:MESH:1[x=2]",
    "/job:worker/task:1/device:CPU:0",
]


@given(programs(LOCAL))
@settings(max_examples=examples(12))
def test_programs_on_meshes_of_this_process(program):
    check(program, lambda graph: tf.Session(graph=graph))


@given(programs(TASKS))
@settings(max_examples=examples(12))
def test_programs_on_meshes_of_two_tasks(cluster, program):
    check(program, lambda graph: tf.Session(cluster.target(), graph=graph))
