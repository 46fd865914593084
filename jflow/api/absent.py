"""The table of names that TensorFlow 1 has and jflow has not, with what to use instead.

Names that JAX has under the same name are not listed: the message names JAX's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_EAGER = "graphs are built outside of jflow.connect, and variables inside of it are eager"
_KERAS = "call modules of Flax or Equinox in a jflow.function"
_QUANTIZED = "jflow has no quantized tensors; cast to int8, or use AQT or Qwix in a jflow.function"
_RAGGED = "jflow has no ragged tensors; pad, and keep the lengths for jflow.sequence_mask"
_OWN_OPS = "operations are JAX functions: trace any in graph code by tensor.graph.apply(fun, args)"
_RECURRENT = "write the loop as jflow.scan, with a cell of your own"
_HANDLES = "keep the value in a jflow.Variable, which stays on its device between steps"
_PROTOS = "a graph is written by jflow.train.export_meta_graph, in a format of its own"
_MATH = "its functions are in jflow itself, jflow.numpy, jflow.nn, jflow.lax and jax.scipy"
_CANDIDATES = "draw classes with jax.random.choice in a jflow.function"
_SPARSE = (
    "of sparse tensors jflow has sparse_tensor_to_dense, sparse_tensor_dense_matmul, sparse_merge, "
    "nn.embedding_lookup_sparse and batches; jax.experimental.sparse has more"
)
_MUTABLE_TABLES = "look such keys up in Python, in a function of jflow.data, and feed numbers"
_METRICS = (
    "add to variables in each step, such as jflow.assign_add(total, jflow.reduce_sum(x)), and "
    "divide them where they are read"
)
_RANDOM = "with a key: keep jax.random.key(0) in a variable, and split it in each step"
_BUILD = "it is about how TensorFlow was built"
_TIMES = "use the profiler of JAX, jflow.trace_steps or jflow.train.ProfilerHook"

_ROOT = {
    _EAGER: """
        control_flow_v2_enabled disable_control_flow_v2 disable_tensor_equality
        disable_v2_tensorshape enable_control_flow_v2 enable_eager_execution
        enable_tensor_equality enable_v2_behavior enable_v2_tensorshape
        check_pinned executing_eagerly_outside_functions init_scope
    """,
    _QUANTIZED: """
        QUANTIZED_DTYPES dequantize fake_quant_with_min_max_args
        fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars
        fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel
        fake_quant_with_min_max_vars_per_channel_gradient qint16 qint32 qint8 quantization quantize
        quantize_v2 quantized_concat quint16 quint8
    """,
    _RAGGED: """
        RaggedTensor RaggedTensorSpec ragged ragged_fill_empty_rows ragged_fill_empty_rows_grad
    """,
    _OWN_OPS: """
        NoGradient NotDifferentiable RegisterGradient load_file_system_library load_library
        load_op_library no_gradient nondifferentiable_batch_function raw_ops
        register_tensor_conversion_function user_ops
    """,
    _HANDLES: "delete_session_tensor get_session_handle get_session_tensor",
    _PROTOS: """
        GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER
        MetaGraphDef NameAttrList TensorInfo graph_util import_graph_def
    """,
    _MATH: "audio bitwise manip math signal spectral",
    _SPARSE: """
        sparse sparse_add sparse_concat sparse_fill_empty_rows sparse_mask sparse_matmul
        sparse_maximum sparse_minimum sparse_reduce_max sparse_reduce_max_sparse
        sparse_reduce_sum sparse_reduce_sum_sparse sparse_reorder sparse_reset_shape sparse_reshape
        sparse_retain sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum sparse_slice
        sparse_softmax sparse_split sparse_to_indicator sparse_transpose
        convert_to_tensor_or_sparse_tensor
    """,
    "use jflow.multiply": "mul",
    "use jflow.subtract": "sub",
    "use jflow.negative": "neg",
    "use jflow.stack": "pack parallel_stack",
    "use jflow.unstack": "unpack",
    "use jflow.matmul": "batch_matmul",
    "use jflow.where": "select",
    "use jflow.numpy.std": "reduce_std",
    "use jflow.numpy.var": "reduce_variance",
    _BUILD: "COMPILER_VERSION CXX11_ABI_FLAG CXX_VERSION GIT_VERSION MONOLITHIC_BUILD sysconfig",
    "use jflow.__version__": "VERSION version",
    "use jax.vmap in a jflow.function": "vectorized_map",
    "use jflow.random.poisson, " + _RANDOM: "random_poisson",
    "use jflow.random.gamma, " + _RANDOM: "random_gamma",
    "use jflow.random.permutation, " + _RANDOM: "random_index_shuffle",
    "use jflow.value_and_grad(loss)(variables), or jax.value_and_grad of arrays": "GradientTape",
    "use the results of jflow.scan or jflow.map_fn, which are stacked, or a queue": (
        "TensorArray TensorArraySpec"
    ),
    "call main() itself, or absl.app.run(main); jflow.run starts one program on all tasks": "app",
    "use jax.config; jflow.ConfigProto has the options of a session or connection": "config",
    "use jax.custom_vjp in a jflow.function": "custom_gradient grad_pass_through",
    "use jax.checkpoint in a jflow.function": "recompute_grad",
    "use argparse, or absl.flags, which is what TensorFlow has under this name": "flags",
    "use open and pathlib, or etils.epath for buckets": "gfile",
    "use logging, or absl.logging": "logging get_logger LogMessage",
    "train a model of Keras 3 by jflow.distribute.distribute_fit, or " + _KERAS: "keras",
    "build layers of jflow.get_variable and jflow.matmul, or " + _KERAS: "layers Module",
    "use optax.losses in a jflow.function, or jflow.nn's cross entropies and jflow.reduce_mean": (
        "losses"
    ),
    _METRICS: "metrics",
    "use jflow.export.save and jflow.export.load, whose files TensorFlow does not read": (
        "saved_model"
    ),
    "use jax.linearize, jax.hessian or jax.grad of jax.grad in a jflow.function": "hessians",
    "use the functions of jflow itself, such as jflow.matmul": "linalg",
    "use the functions of jflow itself, such as jflow.string_split": "strings",
    "use jflow.python_io, and the readers and decoders of jflow itself": "io",
    "use jflow.FIFOQueue and the others in jflow itself": "queue",
    "use jflow.assert_equal and the others in jflow itself": "debugging",
    "use jflow.float32 and the others in jflow itself": "dtypes DType types",
    "use jax.tree": "nest",
    "use jflow.TensorShape, or jflow.data.TensorSpec": (
        "IndexedSlicesSpec NoneTensorSpec OptionalSpec SparseTensorSpec TypeSpec "
        "type_spec_from_value"
    ),
    "import jflow as tf: the names of compat.v1 are in jflow itself": "compat",
    "use unittest or pytest; jflow.testing has clusters and failpoints": "test",
    "use distrax or numpyro in a jflow.function": "distributions",
    "convert columns in Python, in a function of jflow.data": "feature_column",
    "use jax.image in a jflow.function, or jflow.decode_image and the other decoders": (
        "image extract_image_patches extract_volume_patches"
    ),
    "use importlib.resources": "resource_loader",
    "use jax.debug.callback in a jflow.function": "print py_func py_function numpy_function",
    "XLA compiles every step": "autograph xla mlir lite wrap_function experimental",
    "use devices of JAX's platform tpu: jflow.device('/device:TPU:0')": "tpu",
    "use jmp, or casts to jflow.bfloat16": "mixed_precision",
    _TIMES: "profiler",
    "use jflow.numpy.fft": "fft2d fft3d fftnd ifft ifft2d ifft3d ifftnd irfftnd rfftnd",
    "use jflow.numpy.linalg.lstsq": "matrix_solve_ls",
    "use jax.scipy.linalg.sqrtm in a jflow.function": "matrix_square_root",
    "use jflow.numpy.linalg.eigvalsh": "self_adjoint_eigvals",
    "use jflow.numpy.fill_diagonal with inplace=False": "matrix_set_diag",
    "use jflow.numpy.histogram": "histogram_fixed_width histogram_fixed_width_bins",
    "use jflow.scatter_nd of ones at jflow.stack([labels, predictions], 1)": "confusion_matrix",
    "use jflow.clip_by_norm with the norm times the number of elements": "clip_by_average_norm",
    "use jflow.lgamma, which is gammaln: the sum of lgamma(x) less lgamma of the sum of x": "lbeta",
    "set jax_debug_nans, or use jflow.train.NanTensorHook": (
        "add_check_numerics_ops check_numerics verify_tensor_all_finite"
    ),
    "use jflow.reshape and jflow.transpose": (
        "batch_to_space batch_to_space_nd depth_to_space required_space_to_batch_paddings "
        "space_to_batch space_to_batch_nd space_to_depth"
    ),
    "use jax.vjp of jflow.nn.conv2d, or jflow.gradients": (
        "conv2d_backprop_filter_v2 conv2d_backprop_input_v2"
    ),
    "use numpy.broadcast_shapes": "broadcast_dynamic_shape broadcast_static_shape",
    "use jflow.scatter_nd_update": "batch_scatter_update",
    "use jflow.convert_to_tensor, which returns slices as a whole tensor": (
        "convert_to_tensor_or_indexed_slices"
    ),
    "use jflow.get_variable with partitioner=": "create_partitioned_variables",
    "use a size of tensor.shape: an int, or its value, which is None if it is unknown": (
        "dimension_at_index dimension_value"
    ),
    "use base64 or zlib in a function of jflow.data": (
        "decode_base64 decode_compressed encode_base64"
    ),
    "compute it in Python, in a function of jflow.data": (
        "edit_distance fingerprint reduce_join regex_replace"
    ),
    "use jflow.string_to_hash_bucket_fast, whose buckets are others": (
        "string_to_hash_bucket string_to_hash_bucket_strong"
    ),
    "use jflow.set_random_seed, and seed= of initializers and queues": "get_seed",
    "use jflow.constant and numpy.asarray": (
        "get_static_value make_ndarray make_tensor_proto parse_tensor serialize_tensor"
    ),
    "it is not needed: variables are read where the step uses them": "guarantee_const",
    "use jflow.reduce_all of jflow.less_equal(x[:-1], x[1:])": "is_non_decreasing",
    "use jflow.reduce_all of jflow.less(x[:-1], x[1:])": "is_strictly_increasing",
    "use jflow.is_tensor": "is_symbolic_tensor",
    "use jflow.slice, or a slice of Python: x[1:5:2]": "strided_slice",
    "use jflow.name_scope(name, default_name, values)": "op_scope",
    "use jflow.variable_scope(name, default_name, values)": "variable_op_scope",
    "use glob.glob, and jflow.train.string_input_producer": "matching_files",
    "write the fetched value in Python: a task writes checkpoints, and no other files": (
        "write_file"
    ),
    "use jflow.TFRecordReader, jflow.ParquetReader or another reader": "LMDBReader",
    "use jax.lax.approx_max_k": "approx_top_k",
    "use a jflow.FIFOQueue of one element as a lock": "CriticalSection",
    "use jflow.summary and TensorBoard": (
        "Event HistogramProto SessionLog Summary SummaryMetadata"
    ),
    "use jflow.Variable: each has one copy, on its device": (
        "VariableAggregation VariableSynchronization resource variant"
    ),
    "a gradient that does not exist is None": "UnconnectedGradients",
    "use time.time() in the client": "timestamp",
    "use jflow.initializers": "uniform_unit_scaling_initializer",
    "use jflow.numpy.setdiff1d with size=": "setdiff1d",
    "use jflow.numpy.isin": "sets",
    "use jflow.assert_type of each": "assert_same_float_dtype",
    "use isinstance(x, collections.abc.Iterable)": "assert_proper_iterable",
    "use DeviceSpec's text, such as '/job:ps/task:0/device:CPU:0'": "DeviceSpec",
    "use jflow.ConditionalAccumulator": "ConditionalAccumulatorBase",
}

_TRAIN = {
    "use jflow.checkpoint.save(path, state) and jflow.checkpoint.restore": (
        "Checkpoint CheckpointOptions"
    ),
    "give each checkpoint of jflow.checkpoint.save a path of its own, and remove old ones by "
    "jflow.train.remove_checkpoint": "CheckpointManager generate_checkpoint_state_proto",
    "use jflow.train.MonitoredTrainingSession": "basic_train_loop",
    "use jflow.train.Optimizer(optax.…), which takes any optimizer of Optax": (
        "sdca_fprint sdca_optimizer sdca_shrink_l1"
    ),
    "order the rows of jflow.train.load_variable, and pass them as the initializer": "VocabInfo",
    "compare jflow.train.get_global_step() with None": "assert_global_step",
    "use AQT or Qwix in a jflow.function": "do_quantize_training_on_graphdef",
    "use the names in jflow.train itself": "experimental queue_runner",
    "use glob.glob": "match_filenames_once",
    "read event files with tensorboard": "summary_iterator",
}

_SUMMARY = {
    "read event files with tensorboard": "Event SessionLog SummaryDescription TaggedRunMetadata",
    "write sounds and other tensors with tensorboardX in the client": (
        "Summary all_v2_summary_ops audio get_summary_description tensor_summary"
    ),
    "use jflow.summary.create_file_writer": "initialize",
}

_INITIALIZERS = {
    "use jflow.variance_scaling_initializer with distribution='uniform'": "uniform_unit_scaling",
}

_NN = {
    _RECURRENT: """
        bidirectional_dynamic_rnn dynamic_rnn raw_rnn rnn_cell static_bidirectional_rnn static_rnn
        static_state_saving_rnn
    """,
    _QUANTIZED: "quantized_avg_pool quantized_conv2d quantized_max_pool quantized_relu_x",
    _CANDIDATES: """
        all_candidate_sampler compute_accidental_hits fixed_unigram_candidate_sampler
        learned_unigram_candidate_sampler log_uniform_candidate_sampler nce_loss
        sampled_softmax_loss uniform_candidate_sampler
    """,
    "use optax.ctc_loss in a jflow.function": """
        collapse_repeated ctc_beam_search_decoder ctc_beam_search_decoder_v2 ctc_greedy_decoder
        ctc_loss ctc_loss_v2 ctc_unique_labels
    """,
    "use jflow.lax.conv_general_dilated": """
        atrous_conv2d atrous_conv2d_transpose conv1d conv3d convolution with_space_to_batch
    """,
    "use jflow.lax.conv_transpose with transpose_kernel=True": """
        conv1d_transpose conv2d_transpose conv3d_transpose conv_transpose
    """,
    "use jflow.lax.reduce_window": """
        avg_pool1d avg_pool3d dilation2d erosion2d fractional_avg_pool fractional_max_pool
        max_pool1d max_pool3d max_pool_with_argmax pool
    """,
    "use jflow.gradients, or jax.vjp of the convolution": """
        conv2d_backprop_filter conv2d_backprop_input conv3d_backprop_filter
        conv3d_backprop_filter_v2 depthwise_conv2d_backprop_filter
        depthwise_conv2d_backprop_input depthwise_conv2d_native_backprop_filter
        depthwise_conv2d_native_backprop_input
    """,
    "use jflow.nn.moments and jflow.nn.batch_normalization": """
        batch_norm_with_global_normalization fused_batch_norm normalize_moments
        sufficient_statistics weighted_moments
    """,
    "use jflow.reshape and jflow.transpose": "depth_to_space space_to_batch space_to_depth",
    "use jflow.nn.embedding_lookup_sparse, whose rows without ids are zero": (
        "safe_embedding_lookup_sparse"
    ),
    "use jflow.reduce_mean": "compute_average_loss scale_regularization_loss",
    "use optax.losses in a jflow.function": "log_poisson_loss",
    "use jflow.nn.relu of jflow.nn.xw_plus_b": "relu_layer",
    "use the names in jflow.nn itself": "experimental",
}

_TABLES = {_MUTABLE_TABLES: "experimental"}

_CONTRIB_TABLES = {
    _MUTABLE_TABLES: "MutableDenseHashTable MutableHashTable",
    "use jflow.contrib.lookup.FastHashSpec": "StrongHashSpec",
    "use jflow.contrib.lookup.index_table_from_tensor(mapping).lookup(tensor)": "string_to_index",
    "use jflow.contrib.lookup.index_to_string_table_from_tensor(mapping).lookup(tensor)": (
        "index_to_string"
    ),
    "use jflow.contrib.lookup.TextFileInitializer": (
        "TextFileIdTableInitializer TextFileStringTableInitializer"
    ),
}

_MODULES: Mapping[str, Mapping[str, str]] = {
    "jflow": _ROOT,
    "jflow.train": _TRAIN,
    "jflow.summary": _SUMMARY,
    "jflow.initializers": _INITIALIZERS,
    "jflow.nn": _NN,
    "jflow.lookup": _TABLES,
    "jflow.contrib.lookup": _CONTRIB_TABLES,
}


def _entries() -> Iterator[tuple[str, str]]:
    for module, table in _MODULES.items():
        for advice, names in table.items():
            for name in names.split():
                yield f"{module}.{name}", advice


ABSENT: Mapping[str, str] = dict(_entries())
"""What to use in place of each name, by the module and name."""
