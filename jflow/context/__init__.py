"""What is current: the values that `with` blocks, calls for all threads, and defaults set."""

from jflow.context.stack import Fallback as Fallback
from jflow.context.stack import Stack as Stack
