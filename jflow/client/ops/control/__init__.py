"""Branches and loops of graph code, whose bodies are Python functions of tensors."""

from jflow.client.ops.control.branches import case as case
from jflow.client.ops.control.branches import cond as cond
from jflow.client.ops.control.branches import switch_case as switch_case
from jflow.client.ops.control.loops import while_loop as while_loop
from jflow.client.ops.control.scans import foldl as foldl
from jflow.client.ops.control.scans import foldr as foldr
from jflow.client.ops.control.scans import map_fn as map_fn
from jflow.client.ops.control.scans import scan as scan
