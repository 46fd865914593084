"""Mathematical functions: what each gives, and what its operation is called.

The values are in `mathematics.json`, which TensorFlow has written:
`python tests/tensorflow_values/compare.py --record`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).with_suffix(".json")

_POSITIVE = [[0.2, 1.3, 2.5], [0.7, 3.0, 0.5]]
_SIGNED = [[-2.5, 0.5, 1.5], [-0.5, 0.0, 2.0]]
_SMALL = [[-0.9, 0.1, 0.5], [0.0, 0.3, 0.8]]
_SQUARE = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]
_LOWER = [[4.0, 99.0, 99.0], [1.0, 3.0, 99.0], [0.5, 0.2, 2.0]]
_NAN = float("nan")
_IMAGES = (np.arange(2 * 5 * 4 * 2) % 7 - 3.0).reshape(2, 5, 4, 2).astype("float32")
_WINDOWS = (np.arange(3 * 2 * 2 * 3) % 5 - 2.0).reshape(3, 2, 2, 3).astype("float32")

_Call = Callable[[Any], Any]


def _named(argument: Any, names: str) -> dict[str, _Call]:
    def call(name: str) -> _Call:
        return lambda tf: getattr(tf, name)(tf.constant(argument))

    return {name: call(name) for name in names.split()}


def _pairs(x: Any, y: Any, names: str) -> dict[str, _Call]:
    def call(name: str) -> _Call:
        return lambda tf: getattr(tf, name)(tf.constant(x), tf.constant(y))

    return {name: call(name) for name in names.split()}


def _saturated(values: Any, dtype: str, name: str) -> dict[str, _Call]:
    def call(tf: Any) -> Any:
        return tf.saturate_cast(tf.constant(values, dtype), name)

    return {f"saturate_cast of {dtype} to {name}": call}


_UNARY = {
    **_named(
        _SIGNED, "abs ceil cos cosh erf erfc exp expm1 floor is_finite is_inf is_nan negative"
    ),
    **_named(_SIGNED, "log_sigmoid rint round sigmoid sign sin sinh square tan tanh asinh atan"),
    **_named(_SIGNED, "stop_gradient zeros_like ones_like"),
    **_named(_POSITIVE, "digamma lgamma log log1p reciprocal rsqrt sqrt"),
    **_named(_SMALL, "acos asin atanh"),
    **_named([1.0, 2.5], "acosh"),
    **_named([True, False], "logical_not"),
    **_named([1 + 2j, -1j], "real imag conj angle"),
}
_BINARY = {
    **_pairs(_SIGNED, _POSITIVE, "add atan2 div divide div_no_nan equal floordiv floormod greater"),
    **_pairs(_SIGNED, _POSITIVE, "greater_equal less less_equal maximum minimum mod multiply"),
    **_pairs(_SIGNED, _POSITIVE, "not_equal realdiv squared_difference subtract truediv complex"),
    **_pairs(_POSITIVE, _POSITIVE, "igamma igammac pow"),
    **_pairs([2.0, 3.0], [1.5, 0.5], "zeta"),
    **_pairs([1.0, 2.0], [1.5, 0.5], "polygamma"),
    **_pairs([7, -7], [2, 2], "truncatediv truncatemod floor_div"),
    **_pairs([True, True, False], [True, False, False], "logical_and logical_or logical_xor"),
    "div of integers": lambda tf: tf.div([7, -7], [2, 2]),
    "div_no_nan of zero": lambda tf: tf.div_no_nan([1.0, 2.0], [0.0, 2.0]),
    "scalar_mul": lambda tf: tf.scalar_mul(2.0, tf.constant(_SIGNED)),
    "clip_by_value": lambda tf: tf.clip_by_value(_SIGNED, -1.0, 1.0),
    "add of tensors in a list": lambda tf: tf.add([tf.constant(1.0), 2.0], [3.0, 4.0]),
    "to_float": lambda tf: tf.to_float([1, 2]),
    "to_int32": lambda tf: tf.to_int32([1.7, -1.7]),
    "saturate_cast": lambda tf: tf.saturate_cast([300.0, -5.0, 7.0], tf.uint8),
    **_saturated([1, 0, 3, 200, 100], "uint8", "int8"),
    **_saturated([-1, 5], "int8", "uint8"),
    **_saturated([-1, 5], "int8", "int16"),
    **_saturated([-1, 5], "int8", "float32"),
    **_saturated([200], "uint8", "float16"),
    **_saturated([-1, 5], "int32", "uint32"),
    **_saturated([100000, -100000, 5], "int32", "float16"),
    **_saturated([1e20, -1e20, 2147483500.0], "float32", "int32"),
    **_saturated([1e6, -1e6, float("inf"), 5.0], "float32", "float16"),
    **_saturated([float("inf"), 1.0], "float16", "float32"),
    **_saturated([127.0, 128.0, -200.0], "bfloat16", "int8"),
    "arguments by name": lambda tf: tf.stack(
        [
            tf.atan2(y=1.0, x=0.0),
            tf.igamma(a=0.5, x=2.0),
            tf.igammac(a=0.5, x=2.0),
            tf.polygamma(a=1.0, x=2.5),
            tf.zeta(x=2.0, q=0.5),
            tf.scalar_mul(scalar=2.0, x=tf.constant(3.0)),
            tf.real(input=tf.complex(real=1.0, imag=2.0)),
            tf.imag(input=tf.complex(real=1.0, imag=2.0)),
            tf.angle(input=tf.complex(real=1.0, imag=2.0)),
            tf.stop_gradient(input=tf.constant(1.0)),
        ]
    ),
    "maximum of NaN": lambda tf: tf.maximum([_NAN, 1.0, 2.0], [1.0, _NAN, 1.0]),
    "clip_by_value between bounds in the wrong order": lambda tf: tf.clip_by_value(
        [-2.0, 0.0, 2.0], 1.0, -1.0
    ),
    "clip_by_norm": lambda tf: tf.clip_by_norm(
        tf.constant([[0.0, 0.0], [3.0, 4.0]]), 1.0, axes=[1]
    ),
    "bitcast": lambda tf: tf.bitcast([1.0, -2.0], tf.int32),
}
_REDUCTIONS = {
    **_named(_SIGNED, "reduce_max reduce_mean reduce_min reduce_prod reduce_sum reduce_logsumexp"),
    **_named([[True, False], [True, True]], "reduce_all reduce_any"),
    **_named(_SIGNED, "argmax argmin cumsum cumprod count_nonzero norm"),
    "rows": lambda tf: tf.reduce_sum(_SIGNED, 1),
    "kept": lambda tf: tf.reduce_max(_SIGNED, [0], keepdims=True),
    "by the old names": lambda tf: tf.reduce_mean(
        _SIGNED, reduction_indices=[0, 1], keep_dims=True
    ),
    "mean of integers": lambda tf: tf.reduce_mean([1, 2, -6]),
    "mean of large integers": lambda tf: tf.reduce_mean([16777217, 16777217]),
    "mean of the largest integers": lambda tf: tf.reduce_mean([[2147483647], [2147483645]], 0),
    "mean of negative integers": lambda tf: tf.reduce_mean([[-3, -4], [3, 4], [-1, 2]], 1),
    "mean of integers of both signs": lambda tf: tf.reduce_mean([5, 5, 5, -1], keepdims=True),
    "mean of small integers": lambda tf: tf.reduce_mean(tf.constant([-100, -101, 3], "int8")),
    "mean of many small integers": lambda tf: tf.reduce_mean(tf.constant(np.full(300, 200, "u1"))),
    "mean of no integers": lambda tf: tf.reduce_mean(tf.zeros([0, 2], tf.int32), 0),
    "sum of small integers": lambda tf: tf.reduce_sum(tf.constant([100, 100], "int8")),
    "product of small integers": lambda tf: tf.reduce_prod(tf.constant([200, 100], "uint8")),
    "maximum of none": lambda tf: tf.reduce_max(tf.zeros([0])),
    "minimum of no bytes": lambda tf: tf.reduce_min(tf.zeros([0, 2], tf.uint8), 0),
    "sums of none": lambda tf: tf.cumsum(tf.zeros([0]), exclusive=True),
    "largest, with a dtype": lambda tf: tf.arg_max([[1, 3]], 1, tf.int32),
    "smallest, with a dtype": lambda tf: tf.arg_min([[1, 3]], 1, tf.int32),
    "axis of a tensor": lambda tf: tf.reduce_sum(_SIGNED, axis=tf.constant([1])),
    "largest of rows": lambda tf: tf.argmax(_SIGNED, 1),
    "smallest of rows": lambda tf: tf.argmin(_SIGNED, dimension=1),
    "exclusive": lambda tf: tf.cumsum(_SIGNED, 1, exclusive=True),
    "reverse": lambda tf: tf.cumprod(_POSITIVE, 1, exclusive=True, reverse=True),
    "count of rows": lambda tf: tf.count_nonzero(_SIGNED, 1),
    "norm of rows": lambda tf: tf.norm(_SIGNED, axis=1),
    "norm of order 1": lambda tf: tf.norm(_SIGNED, ord=1, axis=1, keepdims=True),
    "norm of matrices": lambda tf: tf.norm(_SIGNED, axis=[0, 1]),
    "whole norm of order 1": lambda tf: tf.norm(_SIGNED, 1),
    "whole norm of order 3": lambda tf: tf.norm(_SIGNED, 3),
    "whole largest norm, kept": lambda tf: tf.norm(_SIGNED, np.inf, keepdims=True),
    "norm of order fro": lambda tf: tf.norm(_SIGNED, "fro", axis=[0, 1]),
    "whole norm, kept": lambda tf: tf.norm(_SIGNED, keepdims=True),
}
_ARRAYS = {
    "concat": lambda tf: tf.concat([_SIGNED, _SMALL], 1),
    "stack": lambda tf: tf.stack([tf.constant(1.0), 2.0]),
    "stack along 1": lambda tf: tf.stack([_SIGNED, _SMALL], axis=1),
    "unstack": lambda tf: tf.unstack(tf.constant(_SIGNED), axis=1)[2],
    "split": lambda tf: tf.split(_SIGNED, 3, 1)[1],
    "split by sizes": lambda tf: tf.split(tf.constant(_SIGNED), [1, 2], 1)[1],
    "split by sizes of a list": lambda tf: tf.split([1, 2, 3, 4], [1, -1])[1],
    "expand_dims": lambda tf: tf.expand_dims(_SIGNED, -1),
    "squeeze": lambda tf: tf.squeeze([[[1.0], [2.0]]], [0]),
    "squeeze all": lambda tf: tf.squeeze([[[1.0], [2.0]]]),
    "tile": lambda tf: tf.tile(_SIGNED, [1, 2]),
    "reverse": lambda tf: tf.reverse(_SIGNED, [1]),
    "roll": lambda tf: tf.roll(_SIGNED, [1], [1]),
    "repeat": lambda tf: tf.repeat(_SIGNED, 2, axis=0),
    "repeat, each": lambda tf: tf.repeat(_SIGNED, [1, 2], axis=0),
    "repeat elements, each": lambda tf: tf.repeat(_SIGNED, [2, 0, 1, 0, 0, 1]),
    "repeat, each as often": lambda tf: tf.repeat(_SIGNED, [2], axis=1),
    "pad": lambda tf: tf.pad(_SIGNED, [[0, 1], [2, 0]], constant_values=9.0),
    "pad by reflection": lambda tf: tf.pad(_SIGNED, [[0, 1], [2, 0]], "REFLECT"),
    "pad by symmetry": lambda tf: tf.pad(_SIGNED, [[0, 1], [2, 0]], "SYMMETRIC"),
    "slice": lambda tf: tf.slice(_SIGNED, [0, 1], [-1, 2]),
    "slice at a tensor": lambda tf: tf.slice(_SIGNED, tf.constant([1, 0]), [1, 2]),
    "one_hot": lambda tf: tf.one_hot([0, 2, -1], 3),
    "one_hot of values": lambda tf: tf.one_hot([[0], [1]], 2, on_value=5, off_value=-1, axis=0),
    "sort": lambda tf: tf.sort(_SIGNED, direction="DESCENDING"),
    "argsort": lambda tf: tf.argsort(_SIGNED, axis=0),
    "transpose": lambda tf: tf.transpose(_SIGNED),
    "transpose by": lambda tf: tf.transpose([_SIGNED], [2, 0, 1]),
    "meshgrid": lambda tf: tf.meshgrid([1, 2], [3, 4, 5])[1],
    "invert_permutation": lambda tf: tf.invert_permutation([2, 0, 1]),
    "reverse_sequence": lambda tf: tf.reverse_sequence(_SIGNED, [2, 3], seq_axis=1, batch_axis=0),
    "searchsorted": lambda tf: tf.searchsorted([[1.0, 2.0, 2.0]], [[2.0, 0.0]], side="right"),
    "shape": lambda tf: tf.shape(_SIGNED),
    "shape_n": lambda tf: tf.shape_n([tf.constant(_SIGNED), tf.constant(1.0)])[0],
    "size": lambda tf: tf.size(_SIGNED),
    "rank": lambda tf: tf.rank(_SIGNED),
    "zeros": lambda tf: tf.zeros([2, 3], tf.int32),
    "ones": lambda tf: tf.ones([2]),
    "fill": lambda tf: tf.fill([2, 1], 7),
    "reshape": lambda tf: tf.reshape(_SIGNED, [3, -1]),
    "broadcast_to": lambda tf: tf.broadcast_to([1.0, 2.0], [2, 2]),
    "range": lambda tf: tf.range(4),
    "range in steps": lambda tf: tf.range(10, 1, -3),
    "range of floats": lambda tf: tf.range(0.0, 1.0, 0.25),
    "linspace": lambda tf: tf.linspace(0.0, 1.0, 5),
    "eye": lambda tf: tf.eye(2, 3),
    "a batch of eye": lambda tf: tf.eye(2, batch_shape=[2]),
}
_SELECTION = {
    "gather": lambda tf: tf.gather(_SIGNED, [1, 0]),
    "gather of columns": lambda tf: tf.gather(_SIGNED, [[2], [0]], axis=1),
    "gather of batches": lambda tf: tf.gather(_SIGNED, [[2], [0]], batch_dims=1),
    "gather_nd": lambda tf: tf.gather_nd(_SIGNED, [[1, 2], [0, 0]]),
    "gather_nd of rows": lambda tf: tf.gather_nd(_SIGNED, [[1]]),
    "gather_nd of batches": lambda tf: tf.gather_nd(_SIGNED, [[2], [0]], batch_dims=1),
    "gather_nd of everything": lambda tf: tf.gather_nd(_SIGNED, np.zeros([3, 0], np.int32)),
    "scatter_nd": lambda tf: tf.scatter_nd([[0], [2], [0]], [1.0, 2.0, 3.0], [4]),
    "scatter_nd of rows": lambda tf: tf.scatter_nd([[2]], [[1.0, 2.0]], tf.constant([3, 2])),
    "tensor_scatter_nd_update": lambda tf: tf.tensor_scatter_nd_update(_SIGNED, [[0, 1]], [9.0]),
    "tensor_scatter_nd_add": lambda tf: tf.tensor_scatter_nd_add(_SIGNED, [[0, 1]], [9.0]),
    "tensor_scatter_nd_sub": lambda tf: tf.tensor_scatter_nd_sub(_SIGNED, [[0, 1]], [9.0]),
    "tensor_scatter_nd_max": lambda tf: tf.tensor_scatter_nd_max(_SIGNED, [[0, 1]], [9.0]),
    "tensor_scatter_nd_min": lambda tf: tf.tensor_scatter_nd_min(_SIGNED, [[0, 1]], [9.0]),
    "where": lambda tf: tf.where(tf.constant(_SIGNED) > 0.0),
    "where of values": lambda tf: tf.where(tf.constant(_SIGNED) > 0.0, _SIGNED, _SMALL),
    "where of rows": lambda tf: tf.where([True, False], _SIGNED, _SMALL),
    "boolean_mask": lambda tf: tf.boolean_mask(_SIGNED, tf.constant(_SIGNED) > 0.0),
    "boolean_mask of rows": lambda tf: tf.boolean_mask(_SIGNED, [False, True]),
    "boolean_mask of columns": lambda tf: tf.boolean_mask(_SIGNED, [True, False, True], axis=1),
    "boolean_mask of axis -2": lambda tf: tf.boolean_mask([_SIGNED], [True, False], axis=-2),
    "boolean_mask of none": lambda tf: tf.boolean_mask(_SIGNED, [False, False]),
    "sequence_mask": lambda tf: tf.sequence_mask([1, 3, 2]),
    "sequence_mask of none": lambda tf: tf.sequence_mask(tf.zeros([0], tf.int32)),
    "sequence_mask of numbers": lambda tf: tf.sequence_mask([[1], [3]], 4, tf.float32),
    "dynamic_partition": lambda tf: tf.dynamic_partition(_SIGNED, [1, 1], 2)[1],
    "dynamic_partition of none": lambda tf: tf.dynamic_partition(_SIGNED, [1, 1], 2)[0],
    "dynamic_stitch": lambda tf: tf.dynamic_stitch([1, [0, 2]], [[1.0], [[2.0], [3.0]]]),
    "unique": lambda tf: tf.unique([3, 1, 3, 2])[0],
    "places of unique": lambda tf: tf.unique([3, 1, 3, 2]).idx,
    "unique NaN": lambda tf: tf.unique([_NAN, 1.0, _NAN]).idx,
    "unique_with_counts": lambda tf: tf.unique_with_counts([3, 1, 3, 2]).count,
    "segment_sum": lambda tf: tf.segment_sum(_SIGNED, [0, 2]),
    "segment_mean": lambda tf: tf.segment_mean(_SIGNED, [1, 1]),
    "segment_mean of integers": lambda tf: tf.segment_mean([[1, 2], [2, -5]], [1, 1]),
    "segment_max": lambda tf: tf.segment_max(_SIGNED, [0, 2]),
    "segment_min": lambda tf: tf.segment_min(_SIGNED, [0, 0]),
    "segment_prod": lambda tf: tf.segment_prod(_SIGNED, [0, 0]),
    "unsorted_segment_sum": lambda tf: tf.unsorted_segment_sum(_SIGNED, [1, -1], 3),
    "unsorted_segment_mean": lambda tf: tf.unsorted_segment_mean(_SIGNED, [1, 1], 2),
    "unsorted_segment_mean of integers": lambda tf: tf.unsorted_segment_mean([1, 2], [0, 0], 2),
    "unsorted_segment_max": lambda tf: tf.unsorted_segment_max(_SIGNED, [1, 1], 2),
    "unsorted_segment_min": lambda tf: tf.unsorted_segment_min(_SIGNED, [1, 1], 2),
    "unsorted_segment_max of integers": lambda tf: tf.unsorted_segment_max([3, 4], [1, 1], 2),
    "unsorted_segment_prod": lambda tf: tf.unsorted_segment_prod(_SIGNED, [1, 1], 2),
    "unsorted_segment_sqrt_n": lambda tf: tf.unsorted_segment_sqrt_n(_SIGNED, [1, 1], 2),
    "ids of any shape": lambda tf: tf.unsorted_segment_sum(_SIGNED, [[0, 1, 1], [1, 0, 0]], 2),
}
_LINEAR = {
    "matmul": lambda tf: tf.matmul(_SIGNED, _SMALL, transpose_b=True),
    "matmul of adjoints": lambda tf: tf.matmul([[1j, 2.0]], [[1j, 1.0]], adjoint_a=True),
    "tensordot": lambda tf: tf.tensordot(_SIGNED, _SMALL, [[0], [0]]),
    "einsum": lambda tf: tf.einsum("ij,kj->ik", tf.constant(_SIGNED), tf.constant(_SMALL)),
    "trace": lambda tf: tf.trace(_SQUARE),
    "matrix_transpose": lambda tf: tf.matrix_transpose([_SIGNED]),
    "matrix_diag": lambda tf: tf.matrix_diag(_SIGNED),
    "matrix_diag_part": lambda tf: tf.matrix_diag_part(_SQUARE),
    "matrix_band_part": lambda tf: tf.matrix_band_part(_SQUARE, 1, 0),
    "matrix_band_part, all below": lambda tf: tf.matrix_band_part(_SQUARE, -1, 0),
    "matrix_determinant": lambda tf: tf.matrix_determinant(_SQUARE),
    "matrix_inverse": lambda tf: tf.matrix_inverse(_SQUARE),
    "matrix_solve": lambda tf: tf.matrix_solve(_SQUARE, [[1.0], [2.0], [3.0]]),
    "matrix_triangular_solve": lambda tf: tf.matrix_triangular_solve(
        _SQUARE, [[1.0], [2.0], [3.0]], lower=False
    ),
    "cholesky": lambda tf: tf.cholesky(_SQUARE),
    "cholesky of lower triangles": lambda tf: tf.cholesky(_LOWER),
    "cholesky of complex numbers": lambda tf: tf.cholesky([[4.0, 9j], [1j, 3.0]]),
    "cholesky_solve": lambda tf: tf.cholesky_solve(_SQUARE, [[1.0], [2.0], [3.0]]),
    "qr": lambda tf: tf.abs(tf.qr(_SQUARE)[1]),
    "svd": lambda tf: tf.svd(_SIGNED)[0],
    "svd without vectors": lambda tf: tf.svd(_SIGNED, compute_uv=False),
    "self_adjoint_eig": lambda tf: tf.self_adjoint_eig(_SQUARE)[0],
    "self_adjoint_eig of lower triangles": lambda tf: tf.self_adjoint_eig(_LOWER)[0],
    "diag": lambda tf: tf.diag([1.0, 2.0]),
    "diag of a matrix": lambda tf: tf.diag([[1.0, 2.0], [3.0, 4.0]]),
    "diag_part": lambda tf: tf.diag_part(_SQUARE),
    "cross": lambda tf: tf.cross([1.0, 2.0, 3.0], [4.0, 5.0, 7.0]),
}
_NEURAL = {
    "bias_add": lambda tf: tf.nn.bias_add(_SIGNED, [1.0, 2.0, 3.0]),
    "conv2d": lambda tf: tf.nn.conv2d(_IMAGES, _WINDOWS, [1, 1, 1, 1], "SAME"),
    "conv2d in steps": lambda tf: tf.nn.conv2d(_IMAGES, _WINDOWS, [1, 2, 2, 1], "VALID"),
    "conv2d with holes": lambda tf: tf.nn.conv2d(
        _IMAGES, _WINDOWS, 1, [[0, 0], [2, 1], [1, 1], [0, 0]], dilations=[1, 2, 1, 1]
    ),
    "depthwise_conv2d": lambda tf: tf.nn.depthwise_conv2d(_IMAGES, _WINDOWS, [1, 1, 1, 1], "SAME"),
    "max_pool": lambda tf: tf.nn.max_pool(_IMAGES, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
    "avg_pool": lambda tf: tf.nn.avg_pool(_IMAGES, [1, 3, 2, 1], [1, 2, 2, 1], "SAME"),
    "moments": lambda tf: tf.nn.moments(tf.constant(_SIGNED), [0])[1],
    "moments, kept": lambda tf: tf.nn.moments(tf.constant(_SIGNED), [0, 1], keep_dims=True)[0],
    "batch_normalization": lambda tf: tf.nn.batch_normalization(
        tf.constant(_SIGNED), [1.0, 2.0, 3.0], tf.constant([1.0, 4.0, 9.0]), 0.5, 2.0, 1e-3
    ),
    "without scale": lambda tf: tf.nn.batch_normalization(
        tf.constant(_SIGNED), 1.0, 4.0, None, None, 1e-3
    ),
    "l2_loss": lambda tf: tf.nn.l2_loss(_SIGNED),
    "l2_normalize": lambda tf: tf.nn.l2_normalize(tf.constant(_SIGNED), 1),
    "top_k": lambda tf: tf.nn.top_k(_SIGNED, 2).values,
    "places of top_k": lambda tf: tf.nn.top_k(_SIGNED, 2)[1],
    "in_top_k": lambda tf: tf.nn.in_top_k(_SIGNED, [0, 2], 2),
    "xw_plus_b": lambda tf: tf.nn.xw_plus_b(_SIGNED, _SQUARE, [1.0, 2.0, 3.0]),
    "zero_fraction": lambda tf: tf.nn.zero_fraction(tf.constant(_SIGNED)),
    "crelu": lambda tf: tf.nn.crelu(tf.constant(_SIGNED)),
    "softsign": lambda tf: tf.nn.softsign(_SIGNED),
    "lrn": lambda tf: tf.nn.lrn(_IMAGES, 1, 1.0, 0.5, 0.75),
    "relu": lambda tf: tf.nn.relu(tf.constant(_SIGNED)),
    "softmax": lambda tf: tf.nn.softmax(tf.constant(_SIGNED)),
    "softmax_cross_entropy_with_logits": lambda tf: tf.nn.softmax_cross_entropy_with_logits(
        labels=[[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]], logits=_SIGNED
    ),
    "sparse_softmax_cross_entropy_with_logits": lambda tf: (
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=_SIGNED)
    ),
    "sigmoid_cross_entropy_with_logits": lambda tf: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=_POSITIVE, logits=_SIGNED
    ),
    "weighted_cross_entropy_with_logits": lambda tf: tf.nn.weighted_cross_entropy_with_logits(
        labels=_POSITIVE, logits=tf.constant(_SIGNED), pos_weight=3.0
    ),
}


def _gradient_at(x: Any, f: Callable[[Any, Any], Any]) -> _Call:
    def gradient(tf: Any) -> Any:
        point = tf.constant(x)
        return tf.gradients(f(tf, point), point)[0]

    return gradient


_GRADIENTS = {
    "of boolean_mask": _gradient_at(
        _SIGNED, lambda tf, x: tf.square(tf.boolean_mask(x, tf.greater(x, 0.0)))
    ),
    "of dynamic_partition": _gradient_at(
        _SIGNED, lambda tf, x: tf.square(tf.dynamic_partition(x, [1, 0], 2)[0])
    ),
    "of gather_nd": _gradient_at(_SIGNED, lambda tf, x: tf.gather_nd(x, [[1, 2], [1, 2]])),
    "of segment_sum": _gradient_at(_SIGNED, lambda tf, x: tf.square(tf.segment_sum(x, [1, 1]))),
    "of reshape": _gradient_at(
        _SIGNED, lambda tf, x: tf.square(tf.reshape(x, [tf.shape(x)[1], -1]))
    ),
    "of div_no_nan": _gradient_at([0.0, 2.0], lambda tf, x: tf.div_no_nan(3.0, x)),
    "of avg_pool": _gradient_at(
        _IMAGES, lambda tf, x: tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    ),
    "of max_pool": _gradient_at(
        _IMAGES, lambda tf, x: tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    ),
    "of conv2d": _gradient_at(
        _IMAGES, lambda tf, x: tf.square(tf.nn.conv2d(x, _WINDOWS, [1, 2, 2, 1], "SAME"))
    ),
    "of moments": _gradient_at(_SIGNED, lambda tf, x: tf.nn.moments(x, [0])[1]),
    "of labels": _gradient_at(
        _POSITIVE,
        lambda tf, x: tf.nn.softmax_cross_entropy_with_logits_v2(labels=x, logits=_SIGNED),
    ),
    "of abs": _gradient_at([0.0, -1.0, 2.0], lambda tf, x: tf.reduce_sum(tf.abs(x))),
    "of gradients of abs": _gradient_at(
        [0.0, -1.0, 2.0], lambda tf, x: tf.gradients(tf.abs(x) * x * x, x)[0]
    ),
    "of maximum": _gradient_at([1.0, 2.0, 0.0], lambda tf, x: tf.maximum(x, [1.0, 1.0, 1.0])),
    "of maximum, behind": _gradient_at([1.0, 2.0, 0.0], lambda tf, x: tf.maximum([1.0] * 3, x)),
    "of minimum": _gradient_at([1.0, 2.0, 0.0], lambda tf, x: tf.minimum(x, [1.0, 1.0, 1.0])),
    "of minimum, behind": _gradient_at([1.0, 2.0, 0.0], lambda tf, x: tf.minimum([1.0] * 3, x)),
    "of maximum with a scalar": _gradient_at(1.0, lambda tf, x: tf.maximum(x, [1.0, 2.0, 0.0])),
    "of clip_by_value": _gradient_at(
        [-2.0, -1.0, 0.0, 1.0, 2.0], lambda tf, x: tf.clip_by_value(x, -1.0, 1.0)
    ),
    "of a bound of clip_by_value": _gradient_at(
        -1.0, lambda tf, x: tf.clip_by_value([-2.0, -1.0, 0.0], x, 1.0)
    ),
    "of clip_by_norm at zero": _gradient_at([0.0, 0.0], lambda tf, x: tf.clip_by_norm(x, 1.0)),
    "of clip_by_norm": _gradient_at([3.0, 4.0], lambda tf, x: tf.clip_by_norm(x, 1.0)),
    "of clip_by_norm at the limit": _gradient_at([3.0, 4.0], lambda tf, x: tf.clip_by_norm(x, 5.0)),
    "of cholesky": _gradient_at(_LOWER, lambda tf, x: tf.cholesky(x)),
    "of self_adjoint_eig": _gradient_at(_LOWER, lambda tf, x: tf.square(tf.self_adjoint_eig(x)[0])),
    "of gather": _gradient_at(_SIGNED, lambda tf, x: tf.gather(tf.square(x), [1, 1, 0])),
    "of gather of batches": _gradient_at(
        _SIGNED, lambda tf, x: tf.gather(tf.square(x), [[2, 2], [0, 1]], batch_dims=1)
    ),
    "of dynamic_stitch": _gradient_at(
        _SIGNED, lambda tf, x: tf.square(tf.dynamic_stitch([[2, 0], [1]], [x, [[1.0] * 3]]))
    ),
    "of reverse_sequence": _gradient_at(
        _SIGNED, lambda tf, x: tf.reverse_sequence(x, [2, 3], seq_axis=1) * _SMALL
    ),
    "of sparse_softmax_cross_entropy_with_logits": _gradient_at(
        _SIGNED,
        lambda tf, x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=x),
    ),
    "of cumsum": _gradient_at(_SIGNED, lambda tf, x: tf.square(tf.cumsum(x, 1, exclusive=True))),
    "of unsorted_segment_max": _gradient_at(
        [1.0, 3.0, 2.0], lambda tf, x: tf.unsorted_segment_max(x, [0, 0, 2], 4)
    ),
    "of a tile": _gradient_at(_SIGNED, lambda tf, x: tf.tile(x, [tf.shape(x)[0], 1])),
}


@dataclass(frozen=True)
class Table:
    """Calls whose results are all fetched in one step.

    Attributes:
      name: what they are about.
      calls: each of them, by what is tried.
      is_named: whether operations are called as in TensorFlow.
    """

    name: str
    calls: Mapping[str, _Call]
    is_named: bool = False
    needs_resources: bool = False

    def record(self, tf: Any, session: Any) -> dict[str, Any]:
        """Returns the values and the names of operations, as JSON has them."""
        tensors, values = self._fetched(tf, session)
        recorded = {}
        for what, value in values.items():
            array = np.asarray(value)
            parts = [array.real, array.imag] if np.iscomplexobj(array) else [array]
            numbers = [part.astype(np.float64).ravel().tolist() for part in parts]
            name = tensors[what].op.name
            recorded[what] = {"shape": array.shape, "values": numbers, "op": name}
        return recorded

    def check(self, tf: Any, session: Any) -> None:
        """Compares the values with those of the file. Raises AssertionError if one differs."""
        tensors, values = self._fetched(tf, session)
        expected = _expected()[self.name]
        for what, value in values.items():
            array = np.asarray(value)
            assert array.shape == tuple(expected[what]["shape"]), what
            parts = [array.real, array.imag] if np.iscomplexobj(array) else [array]
            for part, wanted in zip(parts, expected[what]["values"], strict=True):
                np.testing.assert_allclose(
                    part.astype(np.float64).ravel(), wanted, rtol=2e-4, atol=2e-5, err_msg=what
                )
            name = expected[what]["op"]
            if self.is_named and what.isidentifier() and "/" not in name:
                assert tensors[what].op.name == name, what

    def _fetched(self, tf: Any, session: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        tensors = {}
        for what, call in self.calls.items():
            with tf.name_scope(None):
                tensors[what] = call(tf)
        with session() as running:
            return tensors, running.run(tensors)


def _expected() -> Any:
    return json.loads(_FILE.read_text())


def write(tables: Mapping[str, Any]) -> None:
    """Writes the values of TensorFlow."""
    lines = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(what)}: {json.dumps(one)}" for what, one in table.items())
        + "\n}"
        for name, table in tables.items()
    )
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


PROGRAMS = [
    Table("unary", _UNARY, is_named=True),
    Table("binary", _BINARY, is_named=True),
    Table("reductions", _REDUCTIONS, is_named=True),
    Table("arrays", _ARRAYS),
    Table("selection", _SELECTION),
    Table("linear", _LINEAR),
    Table("neural", _NEURAL),
    Table("gradients", _GRADIENTS),
]
