"""What a mesh computes and sends for a program is what XLA's partitioner gives."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jflow.compiler.placement.spmd import Work, partitioned_work
from jflow.plan.xla.hardware import in_mesh, mesh_of_axes, mesh_on
from jflow.plan.xla.shardings import spec_of_text
from tests.drawn import examples

AXES = (("x", 2), ("y", 2))
N = 32
ELEMENT = 4
WHOLE = N * N * ELEMENT
KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


def work(fun, arguments, results=()):
    """The sums over a function of f32[N, N] arrays with these shardings."""
    given = [jax.ShapeDtypeStruct((N, N), "float32")] * len(arguments)
    with in_mesh(mesh_of_axes(AXES)):
        program = jax.make_jaxpr(fun)(*given)
    return partitioned_work(program, AXES, arguments, results).sum(axis=0)


def sent_by_xla(fun, arguments, results=()) -> float:
    """The bytes that a device sends in the rings of the program that XLA compiles."""
    mesh = mesh_on(AXES, jax.devices()[:4])

    def sharding(text):
        return NamedSharding(mesh, spec_of_text(text)) if text else None

    given = [jax.ShapeDtypeStruct((N, N), "float32", sharding=sharding(x)) for x in arguments]
    with jax.set_mesh(mesh):
        out = sharding(results[0]) if results else None
        text = jax.jit(fun, out_shardings=out).lower(*given).compile().as_text()
    return sum(map(_sent, text.splitlines()))


def _sent(line: str) -> float:
    found = re.search(rf"= (.*?) ({KINDS})\(", line)
    if found is None:
        return 0.0
    shapes = re.findall(r"(?:f32|s32|u32)\[([\d,]*)\]", found[1])
    n_bytes = sum(ELEMENT * math.prod(map(int, filter(None, s.split(",")))) for s in shapes)
    if found[2] == "collective-permute":
        return n_bytes
    n = _group_size(line)
    rounds = {"all-reduce": 2, "reduce-scatter": n}.get(found[2], 1)
    return rounds * (n - 1) / n * n_bytes


def _group_size(line: str) -> int:
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(found[1])
    if found := re.search(r"replica_groups=mesh\[(.*?)\].*?\{(.*?)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found[2]))
    return 4


def constrained(x, *entries):
    return jax.lax.with_sharding_constraint(x, P(*entries))


def in_parts(body, entries, out):
    """A function of which each device runs `body` on its part."""

    def fun(x):
        return jax.shard_map(body, in_specs=P(*entries), out_specs=P(*out), check_vma=False)(x)

    return fun


def data_parallel(w, x):
    x = constrained(x, "x")
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)


def megatron(w, v, x):
    return jnp.tanh(x @ w) @ v


def gathered(w, x):
    return x @ constrained(w, None, None)


PROGRAMS = {
    "data parallel": (data_parallel, ("*,*", "x,*"), ("*,*",)),
    "tensor parallel": (megatron, ("*,y", "y,*", "*,*"), ("*,*",)),
    "both": (megatron, ("*,y", "y,*", "x,*"), ("x,*",)),
    "weights gathered": (gathered, ("x,*", "*,*"), ("*,*",)),
    "another dimension": (lambda x: x * 2, ("x,*",), ("*,x",)),
    "a sum over rows": (lambda x: jnp.sum(x, 0), ("x,*",), ()),
    "psum": (in_parts(lambda x: jax.lax.psum(x, "x"), ("x",), ()), ("x,*",), ()),
    "all_gather": (
        in_parts(lambda x: jax.lax.all_gather(x, "x", tiled=True), ("x",), ()),
        ("x,*",),
        ("*,*",),
    ),
    "psum_scatter": (
        in_parts(lambda x: jax.lax.psum_scatter(x, "x", tiled=True), (), ("x",)),
        ("*,*",),
        ("x,*",),
    ),
    "ppermute": (
        in_parts(lambda x: jax.lax.ppermute(x, "x", [(0, 1), (1, 0)]), ("x",), ("x",)),
        ("x,*",),
        ("x,*",),
    ),
    "all_to_all": (
        in_parts(lambda x: jax.lax.all_to_all(x, "x", 1, 0, tiled=True), ("x",), (None, "x")),
        ("x,*",),
        ("*,x",),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bytes_of_collectives_are_those_of_the_program_that_xla_compiles(name) -> None:
    fun, arguments, results = PROGRAMS[name]
    wanted = sent_by_xla(fun, arguments, results)
    assert wanted > 0
    assert work(fun, arguments, results)[Work.BYTES] == pytest.approx(wanted)


def test_a_ring_of_n_devices_takes_n_less_one_messages_in_each_round() -> None:
    reduced = in_parts(lambda x: jax.lax.psum(x, ("x", "y")), (("x", "y"),), ())
    found = work(reduced, ["x+y,*"])
    assert found[Work.MESSAGES] == 2 * 3
    assert found[Work.BYTES] == 2 * 3 / 4 * WHOLE / 4


def test_a_loop_sends_in_each_iteration_and_one_branch_is_taken() -> None:
    def each(body):
        return in_parts(body, ("x",), ("x",))

    def layer(x):
        return 0.5 * jax.lax.psum(x, "x")

    def loop(x):
        return jax.lax.scan(lambda x, _: (layer(x), None), x, None, length=7)[0]

    def branches(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: layer(layer(x)), layer, x)

    once = work(each(layer), ["x,*"])[Work.BYTES]
    assert once == WHOLE / 2
    assert work(each(loop), ["x,*"])[Work.BYTES] == 7 * once
    assert work(each(branches), ["x,*"])[Work.BYTES] == 2 * once


@pytest.mark.parametrize(
    ("condition", "step", "first"),
    [
        (lambda i: i < 10**9, lambda i: 2 * i, 1),
        (lambda i: i > 5, lambda i: i - 1, 20),
        (lambda i: i < 10.0, lambda i: i + 0.5, 0.0),
        (lambda i: jnp.logical_and(i < 3, i > -1), lambda i: i + 1, 0),
    ],
)
def test_loops_that_do_not_count_up_from_0_count_once(condition, step, first) -> None:
    def loop(x):
        def body(state):
            return step(state[0]), 0.5 * jax.lax.psum(state[1], "x")

        return jax.lax.while_loop(lambda state: condition(state[0]), body, (first, x))[1]

    assert work_of_each(loop)[Work.BYTES] == WHOLE / 2


def work_of_each(body):
    """The sums of a function of the rows of each device."""
    return work(in_parts(body, ("x",), ("x",)), ["x,*"])


def test_a_permutation_to_itself_sends_nothing() -> None:
    stays = work_of_each(lambda x: jax.lax.ppermute(x, "x", [(0, 0), (1, 1)]))
    assert stays[Work.MESSAGES] == 0


def test_another_order_of_axes_is_a_permutation() -> None:
    found = work(lambda x: constrained(x, ("y", "x")), ["x+y,*"])
    assert found[Work.MESSAGES] == 1
    assert found[Work.BYTES] == WHOLE / 4


def test_a_convolution_counts_the_products_of_its_kernel() -> None:
    def convolve(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        kernel = jnp.ones((3, 3, 1, 8))
        image = x[None, :, :, None]
        return jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "SAME", dimension_numbers=numbers
        )

    assert work(convolve, ["*,*"])[Work.PRODUCTS] == N * N * 8 * 3 * 3


def test_what_all_devices_compute_is_not_divided() -> None:
    whole = work(lambda x: x @ x, ["*,*"], ["*,*"])
    assert whole[Work.OWN_PRODUCTS] == whole[Work.PRODUCTS] == N**3
    half = work(lambda x, y: x @ y, ["x,*", "*,*"], ["x,*"])
    assert half[Work.OWN_PRODUCTS] == N**3 / 2
    assert half[Work.BYTES] == 0
    quarter = work(lambda x, y: jnp.tanh(x @ y), ["x,*", "*,y"], ["x,y"])
    assert quarter[Work.OWN_PRODUCTS] == N**3 / 4
    assert quarter[Work.OWN_OTHERS] == quarter[Work.OTHERS] / 4 > 0


def test_the_parts_of_a_shard_map_are_what_each_device_computes() -> None:
    found = work(in_parts(lambda x: x @ x.T, ("x",), ("x",)), ["x,*"])
    assert found[Work.OWN_PRODUCTS] == found[Work.PRODUCTS] == N * (N / 2) ** 2


def test_each_equation_has_its_own_work() -> None:
    with in_mesh(mesh_of_axes(AXES)):
        shape = jax.ShapeDtypeStruct((N, N), "float32")
        program = jax.make_jaxpr(lambda x, w, v: jax.jit(megatron)(w, v, x) + 1.0)(*[shape] * 3)
    found = partitioned_work(program, AXES, ["*,*", "*,y", "y,*"], ["*,*"])
    names = [eqn.primitive.name for eqn in program.jaxpr.eqns]
    assert [name for name, row in zip(names, found, strict=True) if row[Work.BYTES]] == ["jit"]
    assert found[names.index("add"), Work.OTHERS] == N * N


SPECS = ["*,*", "x,*", "*,x", "y,*", "*,y", "x,y", "y,x", "x+y,*", "*,y+x"]


@given(st.lists(st.tuples(st.sampled_from("mtacsge"), st.sampled_from(SPECS)), max_size=6))
@settings(max_examples=examples(30))
def test_any_program_can_be_counted(steps) -> None:
    def fun(x, y):
        for kind, spec in steps:
            x, y = _step(kind, spec, x, y), x
        return x

    found = work(fun, ["x,*", "*,y"])
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found[Work.OWN_PRODUCTS] <= found[Work.PRODUCTS]
    assert found[Work.OWN_OTHERS] <= found[Work.OTHERS]


def _step(kind, spec, x, y):
    return {
        "m": lambda: x @ y,
        "t": lambda: jnp.tanh(x).T,
        "a": lambda: x + y.sum(0),
        "c": lambda: jax.lax.with_sharding_constraint(x, spec_of_text(spec)),
        "s": lambda: jax.lax.scan(lambda c, _: (jnp.tanh(c @ y), None), x, None, length=3)[0],
        "g": lambda: x[jnp.arange(N)[::-1]],
        "e": lambda: jax.grad(lambda x: jnp.sum(jax.nn.softmax(x @ y)))(x),
    }[kind]()
