"""What the layout promises, beyond what linters look at."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import jflow as tf
from tests import retired_words
from tools.generate_api_page import modules

ROOT = Path(__file__).parent.parent
SOURCES = [path for path in (ROOT / "jflow").rglob("*.py") if "/v1/" not in path.as_posix()]
MAX_LINES = 500
LONGER = {
    # `Tensor`, `Operation` and `Graph` refer to each other: apart they were a circle of modules.
    "jflow/compiler/graph/graph.py": 600,
    # One public class, whose methods are a line each below their docstrings.
    "jflow/data/dataset.py": 600,
}
"""Files that may have more lines, because no concept in them stands alone."""
MAX_FUNCTION_LINES = 60
MAX_WINGS = 13
FACADES = {"contrib", "distribute", "testing"}
"""Public packages that only re-export."""

PUBLIC = [
    "AUTO_REUSE",
    "AggregationMethod",
    "ArrayRecordReader",
    "Assert",
    "AttrValue",
    "BoundState",
    "ClosureInputError",
    "ClusterCoordinator",
    "ConditionalAccumulator",
    "ConfigProto",
    "Connection",
    "Dimension",
    "FIFOQueue",
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "FixedLengthRecordReader",
    "GPUOptions",
    "Graph",
    "GraphDef",
    "GraphKeys",
    "GraphOptions",
    "IdentityReader",
    "IndexedSlices",
    "InteractiveSession",
    "IteratorState",
    "LocalCluster",
    "NodeDef",
    "OpError",
    "Operation",
    "OptimizerOptions",
    "PaddingFIFOQueue",
    "ParquetReader",
    "PartitionedVariable",
    "PerWorkerValues",
    "Print",
    "PriorityQueue",
    "ProgramRole",
    "QueueBase",
    "RandomShuffleQueue",
    "RayCluster",
    "ReaderBase",
    "RemoteValue",
    "Replay",
    "ReplayedStep",
    "RunMetadata",
    "RunOptions",
    "Session",
    "SparseConditionalAccumulator",
    "SparseFeature",
    "SparseTensor",
    "SparseTensorValue",
    "TFRecordReader",
    "TaskResources",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "TextLineReader",
    "VarLenFeature",
    "Variable",
    "VariableScope",
    "WholeFileReader",
    "abs",
    "accumulate_n",
    "acos",
    "acosh",
    "add",
    "add_n",
    "add_to_collection",
    "add_to_collections",
    "all_variables",
    "angle",
    "arg_max",
    "arg_min",
    "argmax",
    "argmin",
    "argsort",
    "as_dtype",
    "as_string",
    "asin",
    "asinh",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_integer",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_scalar",
    "assert_type",
    "assert_variables_initialized",
    "assign",
    "assign_add",
    "assign_sub",
    "atan",
    "atan2",
    "atanh",
    "batch_gather",
    "bfloat16",
    "bind",
    "bitcast",
    "bool",
    "boolean_mask",
    "broadcast_to",
    "case",
    "cast",
    "ceil",
    "checkpoint",
    "cholesky",
    "cholesky_solve",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "colocate_with",
    "complex",
    "complex128",
    "complex64",
    "concat",
    "cond",
    "conj",
    "connect",
    "constant",
    "constant_initializer",
    "container",
    "contrib",
    "control_dependencies",
    "convert_to_tensor",
    "cos",
    "cosh",
    "count_nonzero",
    "count_up_to",
    "cross",
    "cumprod",
    "cumsum",
    "data",
    "decode_csv",
    "decode_image",
    "decode_jpeg",
    "decode_json_example",
    "decode_png",
    "decode_raw",
    "deserialize_many_sparse",
    "device",
    "diag",
    "diag_part",
    "digamma",
    "disable_eager_execution",
    "disable_resource_variables",
    "disable_v2_behavior",
    "distribute",
    "div",
    "div_no_nan",
    "divide",
    "double",
    "dynamic_partition",
    "dynamic_stitch",
    "einsum",
    "enable_resource_variables",
    "encode_jpeg",
    "encode_png",
    "ensure_shape",
    "equal",
    "erf",
    "erfc",
    "errors",
    "estimator",
    "executing_eagerly",
    "exp",
    "expand_dims",
    "expm1",
    "export",
    "eye",
    "fill",
    "fixed_size_partitioner",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_div",
    "floordiv",
    "floormod",
    "foldl",
    "foldr",
    "function",
    "gather",
    "gather_nd",
    "get_collection",
    "get_collection_ref",
    "get_default_graph",
    "get_default_session",
    "get_local_variable",
    "get_variable",
    "get_variable_scope",
    "global_norm",
    "global_variables",
    "global_variables_initializer",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "grad",
    "gradients",
    "greater",
    "greater_equal",
    "group",
    "half",
    "identity",
    "identity_n",
    "igamma",
    "igammac",
    "imag",
    "initialize_all_tables",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "initializers",
    "inspect",
    "int16",
    "int32",
    "int64",
    "int8",
    "invert_permutation",
    "is_finite",
    "is_inf",
    "is_nan",
    "is_numeric_tensor",
    "is_tensor",
    "is_variable_initialized",
    "lab",
    "lax",
    "less",
    "less_equal",
    "lgamma",
    "lin_space",
    "linspace",
    "local_variables",
    "local_variables_initializer",
    "log",
    "log1p",
    "log_sigmoid",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lookup",
    "loop",
    "make_template",
    "map_fn",
    "matmul",
    "matrix_band_part",
    "matrix_determinant",
    "matrix_diag",
    "matrix_diag_part",
    "matrix_inverse",
    "matrix_solve",
    "matrix_transpose",
    "matrix_triangular_solve",
    "maximum",
    "meshgrid",
    "min_max_variable_partitioner",
    "minimum",
    "mod",
    "model_variables",
    "moving_average_variables",
    "multinomial",
    "multiply",
    "name_scope",
    "negative",
    "newaxis",
    "nn",
    "no_op",
    "no_regularizer",
    "norm",
    "not_equal",
    "numpy",
    "one_hot",
    "ones",
    "ones_initializer",
    "ones_like",
    "opentelemetry_spans",
    "orthogonal_initializer",
    "pad",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "performance_report",
    "placeholder",
    "placeholder_with_default",
    "polygamma",
    "pow",
    "progress",
    "python_io",
    "qr",
    "random",
    "random_crop",
    "random_normal",
    "random_normal_initializer",
    "random_shuffle",
    "random_uniform",
    "random_uniform_initializer",
    "range",
    "rank",
    "real",
    "read_file",
    "realdiv",
    "reciprocal",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "repeat",
    "report_uninitialized_variables",
    "reset_default_graph",
    "reshape",
    "resource_variables_enabled",
    "reverse",
    "reverse_sequence",
    "reverse_v2",
    "rint",
    "roll",
    "round",
    "rsqrt",
    "run",
    "saturate_cast",
    "scalar_mul",
    "scan",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
    "searchsorted",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "self_adjoint_eig",
    "sequence_mask",
    "serialize_many_sparse",
    "serialize_sparse",
    "set_random_seed",
    "shape",
    "shape_n",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "size",
    "slice",
    "sort",
    "sparse_merge",
    "sparse_placeholder",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
    "split",
    "sqrt",
    "square",
    "squared_difference",
    "squeeze",
    "stack",
    "stop_gradient",
    "string",
    "string_join",
    "string_split",
    "string_strip",
    "string_to_hash_bucket_fast",
    "string_to_number",
    "substr",
    "subtract",
    "summary",
    "svd",
    "switch_case",
    "tables_initializer",
    "tan",
    "tanh",
    "tensor_scatter_add",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_max",
    "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub",
    "tensor_scatter_nd_update",
    "tensor_scatter_sub",
    "tensor_scatter_update",
    "tensordot",
    "tile",
    "timeline",
    "to_bfloat16",
    "to_complex128",
    "to_complex64",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "trace",
    "trace_steps",
    "train",
    "trainable_variables",
    "transpose",
    "truediv",
    "truncated_normal",
    "truncated_normal_initializer",
    "truncatediv",
    "truncatemod",
    "tuple",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unique",
    "unique_with_counts",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
    "unstack",
    "value_and_grad",
    "variable_axis_size_partitioner",
    "variable_creator_scope",
    "variable_scope",
    "variables_initializer",
    "variance_scaling_initializer",
    "where",
    "where_v2",
    "while_loop",
    "zeros",
    "zeros_initializer",
    "zeros_like",
    "zeta",
]

# Public names of more than one class, or of a class and a type; this may only shrink.
SHARED = {
    "RunConfig": "TensorFlow has two with different rules",
}


def test_the_public_names_are_these_and_no_others() -> None:
    found = {name for name in dir(tf) if not name.startswith("_")}
    assert found - {"TYPE_CHECKING"} == set(PUBLIC)
    assert all(hasattr(tf, name) for name in PUBLIC)


def test_every_public_class_and_function_says_what_it_is() -> None:
    for name in PUBLIC:
        value = getattr(tf, name)
        if getattr(value, "__module__", "").startswith("jflow"):
            assert value.__doc__, name


def test_no_file_and_no_function_is_too_long() -> None:
    long = []
    for path in SOURCES:
        text = path.read_text()
        if text.count("\n") > LONGER.get(path.relative_to(ROOT).as_posix(), MAX_LINES):
            long.append(f"{path.relative_to(ROOT)} has {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert not long


def test_jax_internals_are_touched_in_one_file_only() -> None:
    touching = [path for path in SOURCES if re.search(r"\bjax\._src\b", path.read_text())]
    assert [path.name for path in touching] == ["internals.py"]


def test_the_time_of_day_ends_no_wait() -> None:
    """It may be set at any moment. Certificates, tokens and epochs are about days."""
    reading = re.compile(r"\btime\.time(_ns)?\b|from time import.*\btime\b|\bdatetime\.(utc)?now\b")
    wings = ("base", "net", "plan", "state", "task")
    found = {
        path.relative_to(ROOT / "jflow").as_posix()
        for path in SOURCES
        if path.relative_to(ROOT / "jflow").parts[0] in wings and reading.search(path.read_text())
    }
    drivers = {f"base/drivers/{name}.py" for name in ("loop", "threads")}  # for epochs of claims
    assert found == drivers | {"net/wire/authority.py", "net/wire/users.py"}


def test_the_architecture_page_draws_every_wing_and_room() -> None:
    """A line of the drawing begins with the names of wings or, indented, of rooms of a wing."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn: dict[str, set[str]] = {}
    for line in page.split("```")[1].splitlines():
        indent, names = re.match(r"( *)((?:[a-z_]+, )*[a-z_]*)", line).groups()
        if names and not indent:
            drawn[wing := names] = set()
        elif names:
            drawn[wing].update(names.split(", "))
    folders = [folder for folder in _packages(ROOT / "jflow") if folder.name not in FACADES]
    assert drawn == {wing.name: {room.name for room in _packages(wing)} for wing in folders}
    assert len(drawn) - len({"api"}) <= MAX_WINGS


def _packages(folder: Path) -> Iterator[Path]:
    return (path.parent for path in folder.glob("*/__init__.py"))


def _public_types(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names of classes and types that a module defines, and whether each is a class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[:1].isupper() and not name.isupper():
                yield name, False


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, list[bool]] = defaultdict(list)
    for path in SOURCES:
        for name, is_class in _public_types(ast.parse(path.read_text())):
            if not name.startswith("_"):
                found[name].append(is_class)
    shared = {name for name, kinds in found.items() if len(kinds) > 1 and any(kinds)}
    shared |= {"Array"} if len(found["Array"]) > 1 else set()
    assert not shared - SHARED.keys()


def test_no_room_asks_for_a_public_name_while_it_is_imported() -> None:
    """Two threads could wait for each other: for the lock of names and for that of a module."""
    pattern = re.compile(r"^from jflow import (?!_forks\b|tracebacks\b)", re.MULTILINE)
    faces = {ROOT / "jflow" / "__init__.py"}
    assert not [path for path in SOURCES if path not in faces and pattern.search(path.read_text())]


def test_retired_words_do_not_come_back() -> None:
    found = [f"{one.where}: {one.word} -> {one.say} in {one.text}" for one in retired_words.find()]
    assert not found


def test_the_glossary_has_each_term_once() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)
    terms = [term for row in rows if row != "term" for term in row.split(", ")]
    assert len(terms) > 60
    assert len(terms) == len(set(terms))


_IMPORT = re.compile(
    r"^\s*(?:>>> )?(?:from (jflow[\w.]*) import|import (jflow\.[\w.]+))", re.MULTILINE
)


def test_pages_examples_and_notebooks_import_public_modules_only() -> None:
    public = {module.__name__ for module in modules()} | {"jflow.testing", "jflow.testing.fixtures"}
    texts = {path: path.read_text() for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
    texts |= {path: path.read_text() for path in ROOT.glob("examples/**/*.py")}
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        texts[path] = "\n".join("".join(cell["source"]) for cell in cells)
    imported = {
        (path.name, match[1] or match[2])
        for path, text in texts.items()
        for match in _IMPORT.finditer(text)
    }
    assert {module for _, module in imported} >= {"jflow.lab", "jflow.data"}
    assert not [(name, module) for name, module in imported if module not in public]
