"""Context stacks: current values set by `with` blocks, for all threads, or by default."""

from jflow.context.stack import Fallback as Fallback
from jflow.context.stack import Stack as Stack
