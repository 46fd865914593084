"""Graphs and functions in files, to be loaded, run and trained in other processes."""

from jflow import tracebacks as _tracebacks
from jflow.export.functions import ExportedFunction as ExportedFunction
from jflow.export.functions import load as load
from jflow.export.functions import save as save
from jflow.export.graphs import load_graph as load_graph
from jflow.export.graphs import save_graph as save_graph
from jflow.export.members import MemberKind as MemberKind
from jflow.export.members import register_member_kind as register_member_kind

_tracebacks.end_here(globals())
