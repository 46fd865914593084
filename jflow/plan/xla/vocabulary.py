"""Allowlists of the operations, attributes and element types that programs may consist of."""

from __future__ import annotations


def names(text: str) -> list[str]:
    """Splits a text into words."""
    return text.split()


_ELEMENTWISE = """
abs add and atan2 bitcast_convert cbrt ceil clamp compare complex convert cosine
count_leading_zeros divide exponential exponential_minus_one floor imag is_finite log log_plus_one
logistic maximum minimum multiply negate not or popcnt power real reduce_precision remainder
round_nearest_afz round_nearest_even rsqrt select shift_left shift_right_arithmetic
shift_right_logical sign sine sqrt subtract tan tanh xor
"""
_ARRAYS = """
broadcast broadcast_in_dim cholesky concatenate constant convolution dot dot_general dynamic_slice
dynamic_update_slice fft gather iota map optimization_barrier pad reduce reduce_window reshape
reverse rng rng_bit_generator scatter select_and_scatter slice sort transpose triangular_solve
"""
_CONTROL = "case composite custom_call if return while"
_OF_UNKNOWN_SIZES = """
dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape
get_dimension_size real_dynamic_slice
"""
_OF_MESHES = """
all_gather all_reduce all_to_all collective_broadcast collective_permute partition_id
reduce_scatter replica_id
"""

OPERATIONS = (
    {"func.call", "func.func", "func.return"}
    # How arrays are sharded over a mesh, which must be of one device.
    | {"sdy.manual_computation", "sdy.mesh", "sdy.return", "sdy.sharding_constraint"}
    | {
        f"stablehlo.{name}"
        for group in (_ELEMENTWISE, _ARRAYS, _CONTROL, _OF_UNKNOWN_SIZES, _OF_MESHES)
        for name in names(group)
    }
)
"""The operations that JAX lowers functions of arrays to.

Not among them are those that wait for another program (infeed, outfeed, send, recv, asynchronous
ones), and those that JAX does not use.
"""

ATTRIBUTES = frozenset(
    names("""
algorithm all_gather_dim api_version arg_attrs backend_config base_dilations batch_group_count
broadcast_dimensions broadcast_sizes call_target_name called_computations callee channel_handle
channel_id compare_type comparison_direction composite_attributes concat_dimension
decomposition dimension dimension_numbers dimensions dot_dimension_numbers edge_padding_high
edge_padding_low error_message exponent_bits feature_group_count fft_length fft_type function_type
has_side_effect in_shardings index indices_are_sorted indices_of_shape_operands interior_padding
iota_dimension is_stable known_expanding_dimensions known_nonexpanding_dimensions left_side
lhs_dilation limit_indices lower manual_axes mantissa_bits mesh name operand_layouts out_shardings
output_operand_aliases padding permutation precision_config replica_groups res_attrs
result_accuracy result_layouts rhs_dilation rng_algorithm rng_distribution scatter_dimension
scatter_dimension_numbers sharding slice_sizes source_target_pairs split_count split_dimension
start_indices strides sym_name sym_visibility transpose_a unique_indices unit_diagonal
use_global_device_ids value version window_dilations window_dimensions window_reversal
window_strides
jax.arg_info jax.buffer_donor jax.global_constant jax.result_info jax.uses_shape_polymorphism
mhlo.backend_config mhlo.frontend_attributes mhlo.layout_mode mhlo.memory_kind
mhlo.num_partitions mhlo.num_replicas mhlo.sharding sdy.sharding sdy.sharding_rule stablehlo.mesh
tf.aliasing_output
""")
)
"""Names of the attributes that these operations may have."""

BITS = {f"{sign}i{n}": n for sign in ("", "u") for n in (1, 2, 4, 8, 16, 32, 64)} | {
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "f4E2M1FN": 4,
    "f8E3M4": 8,
    "f8E4M3": 8,
    "f8E4M3B11FNUZ": 8,
    "f8E4M3FN": 8,
    "f8E4M3FNUZ": 8,
    "f8E5M2": 8,
    "f8E5M2FNUZ": 8,
    "f8E8M0FNU": 8,
    "complex<f32>": 64,
    "complex<f64>": 128,
}
"""The size of an element by its MLIR type."""
