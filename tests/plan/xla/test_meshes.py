"""Programs for meshes: which are valid, and which could keep devices waiting for ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.export
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jflow.errors import InvalidArgumentError
from jflow.plan.xla import compile_exported, internals
from jflow.plan.xla.export import serialize
from jflow.plan.xla.hardware import in_mesh, mesh_of_axes, mesh_on
from jflow.plan.xla.mesh_program import MeshProgram
from jflow.plan.xla.validation import ValidProgram, inspected, validated

AXES = (("x", 2), ("y", 2))
X = np.arange(16, dtype=np.float32).reshape(4, 4)
DEVICES = jax.local_devices()[:4]


GROUPS = re.compile(
    r"(replica_groups|source_target_pairs) = "
    r"(?:dense<[^>]*> : tensor<\w+>|#stablehlo\.replica_group_mesh_axes<.*?\]>)"
)
"""The attribute of a collective that names devices."""


def sent(function: Callable[..., object], axes: tuple[tuple[str, int], ...] = AXES) -> bytes:
    """The bytes of a program of `X` on a mesh."""
    with in_mesh(mesh_of_axes(axes)):
        jaxpr = jax.make_jaxpr(function)(X)
    assert isinstance(jaxpr, jex.ClosedJaxpr)
    return serialize(jaxpr, "cpu", axes).tobytes()


def summed(x: jax.Array) -> jax.Array:
    return jax.shard_map(
        lambda part: jax.lax.psum(part, "x"), in_specs=P("x"), out_specs=P(None, None)
    )(x)


def turned(x: jax.Array) -> jax.Array:
    return jax.shard_map(
        lambda part: jax.lax.ppermute(part, "x", [(0, 1), (1, 0)]),
        in_specs=P("x"),
        out_specs=P("x"),
    )(x)


def gathered(x: jax.Array) -> jax.Array:
    return jax.shard_map(
        lambda part: jax.lax.all_gather(part, "x", tiled=True),
        in_specs=P("x"),
        out_specs=P(None),
        check_vma=False,
    )(x)


def scattered(x: jax.Array) -> jax.Array:
    return jax.shard_map(
        lambda x: jax.lax.psum_scatter(x, "x", tiled=True), in_specs=P(None), out_specs=P("x")
    )(x)


def exchanged(x: jax.Array) -> jax.Array:
    return jax.shard_map(
        lambda part: jax.lax.all_to_all(part, "x", 1, 0, tiled=True),
        in_specs=P("x"),
        out_specs=P(None, "x"),
    )(x)


def changed(data: bytes, *changes: tuple[str | re.Pattern[str], str]) -> bytes:
    """A program with its module changed as text."""
    exported = jax.export.deserialize(bytearray(data))
    with internals.program_context():
        text = str(internals.parsed_program(exported.mlir_module_serialized))
        for old, new in changes:
            pattern = re.compile(re.escape(old)) if isinstance(old, str) else old
            text, n_changed = pattern.subn(new, text)
            assert n_changed, text
        module = internals.serialized_program(internals.MLIR.Module.parse(text))
    return bytes(replace(exported, mlir_module_serialized=module).serialize())


@pytest.mark.parametrize(
    "function",
    [summed, turned, gathered, scattered, exchanged, jnp.sin],
    ids=lambda f: f.__name__,
)
def test_a_program_for_a_mesh_is_valid_and_runs_there(function: Callable[..., jax.Array]) -> None:
    data = sent(function)
    valid = validated(data)
    assert validated(valid.data).data == valid.data
    program = compile_exported(valid, mesh_on(AXES, DEVICES), ())
    with jax.set_mesh(mesh_on(AXES, DEVICES)):
        wanted = jax.jit(function)(X)
    (found,) = program(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_program_is_compiled_once_for_the_same_shardings() -> None:
    mesh = mesh_on(AXES, DEVICES)
    program = compile_exported(inspected(sent(jnp.sin)), mesh, ())
    assert isinstance(program, MeshProgram)
    rows, columns = (jax.NamedSharding(mesh, spec) for spec in (P("x"), P(None, "x")))
    for sharding, n_compiled in ((rows, 1), (rows, 1), (columns, 2), (rows, 2)):
        (found,) = program(jax.device_put(X, sharding), kept=(sharding,))
        assert found.sharding.is_equivalent_to(sharding, 2)
        np.testing.assert_allclose(found, np.sin(X), rtol=1e-6)
        assert program._compiled.n_made == n_compiled


def test_an_argument_of_another_type_is_refused_as_on_one_device() -> None:
    program = compile_exported(inspected(sent(jnp.sin)), mesh_on(AXES, DEVICES), ())
    for wrong in (X.astype(np.int32), X[:2], jnp.ones((4, 4), jnp.bfloat16)):
        with pytest.raises((TypeError, ValueError)):
            program(wrong)


@pytest.mark.parametrize(
    ("function", "groups"),
    [
        # MLIR itself refuses groups and pairs with a device twice.
        (summed, "[[0, 1]]"),
        (summed, "[[0, 2], [1, -1]]"),
        # Devices alone leave the rest of a result as it is.
        (gathered, "[[0], [1], [2], [3]]"),
        (scattered, "[[0], [1], [2], [3]]"),
        (gathered, "[[0, 1, 2, 3]]"),
        (turned, "[[0, 7], [7, 0]]"),
        (turned, "[[0, 2], [2, 4]]"),
    ],
)
def test_collectives_are_of_all_devices_of_the_mesh(
    function: Callable[..., jax.Array], groups: str
) -> None:
    n_groups = groups.count("[") - 1
    kind = f"{n_groups}x{(groups.count(',') + 1) // n_groups}xi64"
    with pytest.raises(InvalidArgumentError, match="communicates by"):
        validated(changed(sent(function), (GROUPS, rf"\1 = dense<{groups}> : tensor<{kind}>")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<["x"=2, "y"=2]>', '<["x"=2, "y"=4]>'),
        ('<["x"=2, "y"=2]>', '<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>'),
        ('<@mesh, [{"x"}', '<mesh<["x"=8]>, [{"x"}'),
        ('name = "y", size = 2', 'name = "y", size = 4'),
    ],
)
def test_a_mesh_of_another_size_or_of_other_devices_is_refused(old: str, new: str) -> None:
    data = sent(lambda x: jax.lax.with_sharding_constraint(x, P("x")))
    with pytest.raises(InvalidArgumentError):
        validated(changed(data, (old, new)))


@pytest.mark.parametrize("n_devices", [0, 5000, 1 << 30])
def test_a_program_for_an_absurd_number_of_devices_is_refused(n_devices: int) -> None:
    exported = replace(jax.export.deserialize(bytearray(sent(jnp.sin))), nr_devices=n_devices)
    with pytest.raises(InvalidArgumentError):
        validated(bytes(exported.serialize()))


def test_a_program_runs_on_as_many_devices_as_it_was_exported_for() -> None:
    data = sent(jnp.sin)
    with pytest.raises(InvalidArgumentError, match=r"for 4 devices, but the mesh .* has 2"):
        compile_exported(inspected(data), mesh_on((("x", 2),), DEVICES[:2]), ())
    with pytest.raises(InvalidArgumentError, match="4 devices"):
        compile_exported(inspected(data), DEVICES[0], ())
    alone = bytes(jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(X).serialize())
    with pytest.raises(InvalidArgumentError, match="for 1 devices"):
        compile_exported(inspected(alone), mesh_on(AXES, DEVICES), ())


@pytest.mark.parametrize(
    ("function", "attribute"),
    [
        (turned, r"channel_handle = #stablehlo\.channel_handle<[^>]*>, "),
        (summed, ", use_global_device_ids"),
        (gathered, ", use_global_device_ids"),
        (scattered, ", use_global_device_ids"),
    ],
)
def test_a_collective_among_replicas_is_refused(
    function: Callable[..., jax.Array], attribute: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="among replicas"):
        validated(changed(sent(function), (re.compile(attribute), "")))


def test_a_collective_over_an_axis_twice_is_refused() -> None:
    """XLA would end the process."""
    axis = '#stablehlo.axis_ref<name = "x">'
    twice = f"#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [{axis}, {axis}]>"
    with pytest.raises(InvalidArgumentError, match="each once"):
        validated(changed(sent(summed), (GROUPS, rf"replica_groups = {twice}")))


def test_communication_on_one_device_stays_refused() -> None:
    exported = replace(jax.export.deserialize(bytearray(sent(summed))), nr_devices=1)
    with pytest.raises(InvalidArgumentError):
        validated(bytes(exported.serialize()))


def test_errors_of_the_compiler_name_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    valid: ValidProgram = inspected(sent(jnp.sin))
    program = compile_exported(valid, mesh_on(AXES, DEVICES), ())
    wrong = jax.NamedSharding(mesh_on(AXES, DEVICES), P("x", "y"))
    monkeypatch.setattr(jax, "set_mesh", lambda _: (_ for _ in ()).throw(RuntimeError("broken")))
    with pytest.raises(InvalidArgumentError, match=r"cannot be compiled for the mesh .*broken"):
        program(jax.device_put(X, wrong))
