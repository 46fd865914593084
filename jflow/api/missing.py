"""Error messages for missing names: what to use in place of a name of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from jflow.base.suggestions import did_you_mean

# Imported for a message only: a program that starts a cluster needs no JAX itself.
_NAMESPACES = {
    "jflow.numpy": "jax.numpy",
    "jflow.nn": "jax.nn",
    "jflow.lax": "jax.lax",
    "jflow.random": "jax.random",
}


def _all_in(namespace: str, pairs: str) -> dict[str, str]:
    """Parses "theirs=ours" pairs into a table."""
    parsed = (pair.split("=") for pair in pairs.split())
    return {theirs: f"{namespace}.{ours}" for theirs, ours in parsed}


_RENAMED = {
    **_all_in(
        "jflow.numpy",
        """
        reduce_all=all reduce_any=any reduce_max=max reduce_mean=mean reduce_min=min
        reduce_prod=prod reduce_std=std reduce_sum=sum reduce_variance=var
        batch_matmul=matmul div=divide floordiv=floor_divide floor_div=floor_divide mul=multiply
        neg=negative realdiv=divide sub=subtract truediv=true_divide
        clip_by_value=clip concat=concatenate fill=full gather=take pack=stack range=arange
        rank=ndim reverse=flip reverse_v2=flip select=where unpack=unstack
        invert_permutation=argsort
        is_finite=isfinite is_inf=isinf is_nan=isnan
        cholesky=linalg.cholesky matrix_determinant=linalg.det matrix_inverse=linalg.inv
        matrix_solve=linalg.solve norm=linalg.norm qr=linalg.qr self_adjoint_eig=linalg.eigh
        svd=linalg.svd
        """,
    ),
    **_all_in(
        "jflow.nn",
        """
        embedding_lookup=embedding_lookup reduce_logsumexp=logsumexp
        """,
    ),
    **_all_in(
        "jflow.lax",
        """
        bitcast=bitcast_convert_type case=switch conv1d=conv_general_dilated
        conv2d=conv_general_dilated conv3d=conv_general_dilated
        conv2d_transpose=conv_transpose depthwise_conv2d=conv_general_dilated foldl=scan
        foldr=scan map_fn=map max_pool=reduce_window avg_pool=reduce_window slice=dynamic_slice
        """,
    ),
    **_all_in(
        "jflow.random",
        """
        multinomial=categorical random_gamma=gamma random_normal=normal random_shuffle=permutation
        random_uniform=uniform
        """,
    ),
    **_all_in(
        "jflow",
        """
        InteractiveSession=Session all_variables=global_variables
        initialize_all_variables=global_variables_initializer
        initialize_local_variables=local_variables_initializer
        initialize_variables=variables_initializer saturate_cast=cast to_bfloat16=cast
        to_double=cast to_float=cast to_int32=cast to_int64=cast
        """,
    ),
    **_all_in(
        "jax",
        """
        Print=debug.print print=debug.print numpy_function=pure_callback py_func=pure_callback
        py_function=pure_callback
        """,
    ),
    **_all_in(
        "optax",
        """
        sigmoid_cross_entropy_with_logits=sigmoid_binary_cross_entropy
        softmax_cross_entropy_with_logits=softmax_cross_entropy
        softmax_cross_entropy_with_logits_v2=softmax_cross_entropy
        sparse_softmax_cross_entropy_with_logits=softmax_cross_entropy_with_integer_labels
        """,
    ),
}

_INSTEAD = {
    "jflow.GradientTape": (
        "use jflow.value_and_grad(loss)(variables), or jax.value_and_grad of arrays"
    ),
    "jflow.TensorArray": "use the stacked results of jax.lax.scan, or a queue",
    "jflow.app": (
        "call main() itself, or absl.app.run(main); jflow.run starts one program on all tasks"
    ),
    "jflow.config": "use jax.config; jflow.ConfigProto has the options of a session or connection",
    "jflow.custom_gradient": "use jax.custom_vjp in a jflow.function",
    "jflow.flags": "use argparse, or absl.flags, which is what TensorFlow has under this name",
    "jflow.gfile": "use open and pathlib, or etils.epath for buckets",
    "jflow.keras": (
        "train a model of Keras 3 by jflow.distribute.distribute_fit, or call modules of Flax or "
        "Equinox in a jflow.function"
    ),
    "jflow.layers": (
        "build layers of jflow.get_variable and jflow.numpy, or call modules of Flax or Equinox in "
        "a jflow.function"
    ),
    "jflow.lookup": "look words up in Python, in a function of jflow.data, and feed numbers",
    "jflow.losses": (
        "use optax.losses in a jflow.function, or tensor.graph.apply(optax.losses.l2_loss, "
        "(tensor,)) in graph code, and jflow.numpy.mean of it"
    ),
    "jflow.metrics": (
        "add to variables in each step, such as jflow.assign_add(total, jflow.numpy.sum(x)), and "
        "divide them where they are read"
    ),
    "jflow.saved_model": (
        "use jflow.export.save and jflow.export.load, whose files TensorFlow does not read"
    ),
    "jflow.train.Checkpoint": "use jflow.checkpoint.save(path, state) and jflow.checkpoint.restore",
    "jflow.train.CheckpointManager": (
        "give each checkpoint of jflow.checkpoint.save a path of its own, and remove old ones by "
        "jflow.train.remove_checkpoint"
    ),
    "jflow.train.Supervisor": "use jflow.train.MonitoredTrainingSession",
}
"""Names of TensorFlow that several names replace: what to use in place of each."""


def missing(module: str, name: str, present: Iterable[str]) -> AttributeError:
    """Returns the error for a name that a public module does not have, with what to use instead.

    Args:
      module: the name of the module, such as "jflow".
      name: the missing name.
      present: the names that the module has.
    """
    instead = _INSTEAD.get(f"{module}.{name}")
    advice = f"; {instead}" if instead else _advice(name, present)
    return AttributeError(f"module {module!r} has no attribute {name!r}{advice}")


def _advice(name: str, present: Iterable[str]) -> str:
    if name.startswith("_"):
        return ""
    advice = _RENAMED.get(name) or next(
        (
            f"{ours}.{name}"
            for ours, theirs in _NAMESPACES.items()
            if name in vars(import_module(theirs))
        ),
        None,
    )
    if advice is not None:
        return f"; use {advice}"
    return did_you_mean(name, (each for each in present if not each.startswith("_")))
