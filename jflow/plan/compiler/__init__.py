"""Compilation in a separate process, so that a compiler that crashes ends only that."""

from jflow.plan.compiler.compiler import COMPILER as COMPILER
from jflow.plan.compiler.compiler import Compiler as Compiler
