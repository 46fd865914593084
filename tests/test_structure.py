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
    "accumulate_n",
    "add_n",
    "convert_to_tensor",
    "tuple",
    "AggregationMethod",
    "AUTO_REUSE",
    "BoundState",
    "ArrayRecordReader",
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
    "GraphKeys",
    "GraphOptions",
    "IdentityReader",
    "IndexedSlices",
    "LocalCluster",
    "Operation",
    "OptimizerOptions",
    "PaddingFIFOQueue",
    "ParquetReader",
    "IteratorState",
    "PartitionedVariable",
    "PerWorkerValues",
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
    "SparseTensor",
    "TFRecordReader",
    "TaskResources",
    "Tensor",
    "TensorShape",
    "TextLineReader",
    "VarLenFeature",
    "Variable",
    "VariableScope",
    "WholeFileReader",
    "add_to_collection",
    "add_to_collections",
    "as_string",
    "assert_variables_initialized",
    "assign",
    "assign_add",
    "assign_sub",
    "bfloat16",
    "bool",
    "cast",
    "bind",
    "checkpoint",
    "clip_by_global_norm",
    "clip_by_norm",
    "colocate_with",
    "complex128",
    "complex64",
    "connect",
    "constant",
    "constant_initializer",
    "container",
    "contrib",
    "control_dependencies",
    "count_up_to",
    "data",
    "decode_csv",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "device",
    "distribute",
    "encode_jpeg",
    "encode_png",
    "ensure_shape",
    "errors",
    "estimator",
    "export",
    "fixed_size_partitioner",
    "float16",
    "float32",
    "float64",
    "function",
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
    "group",
    "identity",
    "initializers",
    "inspect",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_variable_initialized",
    "lab",
    "lax",
    "local_variables",
    "local_variables_initializer",
    "loop",
    "min_max_variable_partitioner",
    "model_variables",
    "moving_average_variables",
    "name_scope",
    "nn",
    "no_op",
    "no_regularizer",
    "numpy",
    "ones_initializer",
    "orthogonal_initializer",
    "parse_example",
    "parse_single_example",
    "placeholder",
    "progress",
    "random",
    "random_normal_initializer",
    "random_uniform_initializer",
    "report_uninitialized_variables",
    "reset_default_graph",
    "run",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
    "set_random_seed",
    "string",
    "string_join",
    "string_split",
    "string_strip",
    "string_to_number",
    "substr",
    "summary",
    "timeline",
    "opentelemetry_spans",
    "performance_report",
    "trace_steps",
    "train",
    "trainable_variables",
    "truncated_normal_initializer",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "value_and_grad",
    "variable_axis_size_partitioner",
    "variable_scope",
    "variable_creator_scope",
    "variables_initializer",
    "variance_scaling_initializer",
    "zeros_initializer",
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
