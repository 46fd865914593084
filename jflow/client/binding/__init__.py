"""Models as named variables: made by one program, found by others."""

from jflow.client.binding.state import BoundState as BoundState
from jflow.client.binding.state import bind as bind
