"""Context stacks: current values set by `with` blocks, for all threads, or by default."""

from jflow.base.context.stack import Fallback as Fallback
from jflow.base.context.stack import Stack as Stack
