"""Graphs and functions in files, to be loaded, run and trained in other processes."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.export.functions import ExportedFunction as ExportedFunction
from jflow.client.export.functions import load as load
from jflow.client.export.functions import save as save
from jflow.client.export.graphs import load_graph as load_graph
from jflow.client.export.graphs import save_graph as save_graph
from jflow.client.export.members import MemberKind as MemberKind
from jflow.client.export.members import register_member_kind as register_member_kind

_tracebacks.end_here(globals())
