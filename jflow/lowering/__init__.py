"""Lowering of segments to XLA programs, exported for other tasks or compiled here."""

from jflow.lowering.callbacks import refuse_callbacks as refuse_callbacks
from jflow.lowering.explain import explained as explained
from jflow.lowering.export import export as export
from jflow.lowering.local import compile_all as compile_all
from jflow.lowering.local import compile_jaxpr as compile_jaxpr
from jflow.lowering.segment import Lowered as Lowered
from jflow.lowering.segment import lower as lower
from jflow.lowering.text import exported_signature as exported_signature
