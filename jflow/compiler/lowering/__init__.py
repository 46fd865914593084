"""Lowering of segments to XLA programs, exported for other tasks or compiled here."""

from jflow.compiler.graph.text import exported_signature as exported_signature
from jflow.compiler.lowering.explain import explained as explained
from jflow.compiler.lowering.export import export as export
from jflow.compiler.lowering.limits import refuse_callbacks as refuse_callbacks
from jflow.compiler.lowering.local import compile_all as compile_all
from jflow.compiler.lowering.segment import Lowered as Lowered
from jflow.compiler.lowering.segment import lower as lower
